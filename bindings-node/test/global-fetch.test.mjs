// Tests of a gate's fetch as the global one: what a gate cannot send goes to the original fetch.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { Gate } from "tidegate";
import { Agent } from "undici";

import { json, upstream } from "./support/upstream.mjs";

const originalFetch = globalThis.fetch;
afterEach(() => {
  globalThis.fetch = originalFetch;
});

const callers = {
  itself: (gate) => gate.fetch,
  wrapped:
    (gate) =>
    (...request) =>
      gate.fetch(...request),
  "wrapped in an async function":
    (gate) =>
    async (...request) => {
      await null;
      return gate.fetch(...request);
    },
};

for (const [name, made] of Object.entries(callers)) {
  test(`${name}: the platform rejects what no gate can send`, async () => {
    globalThis.fetch = made(new Gate());
    await assert.rejects(fetch("/relative"), TypeError);
    assert.equal(await (await fetch("data:,hello")).text(), "hello");
  });

  test(`${name}: mode off uses the original fetch`, async (t) => {
    const up = await upstream(t, json({ ok: true }));
    globalThis.fetch = made(new Gate({ mode: "off" }));
    assert.deepEqual(await (await fetch(up.url)).json(), { ok: true });
  });

  test(`${name}: the caller's dispatcher is used`, async (t) => {
    const up = await upstream(t, json({ ok: true }));
    const dispatcher = new Agent();
    t.after(() => dispatcher.close());
    globalThis.fetch = made(new Gate());
    assert.equal((await fetch(up.url, { dispatcher })).status, 200);
  });
}

for (const mode of ["enforce", "off"]) {
  test(`a custom fetch that calls the global one makes one exchange, mode ${mode}`, async (t) => {
    const up = await upstream(t, json({ ok: true }));
    const gate = new Gate({ mode, defaults: { cap: 1, queue: 0 }, fetch: (...request) => fetch(...request) });
    globalThis.fetch = gate.fetch;
    const init = { method: "POST", body: JSON.stringify({ model: "m" }) };
    const response = await fetch(`${up.url}/v1/chat/completions`, init);
    assert.deepEqual([response.status, await response.json(), up.exchanges.length], [200, { ok: true }, 1]);
  });
}
