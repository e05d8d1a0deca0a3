// Tests of pools with a custom fetch: the exchange goes to the replica, with the same options.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Gate } from "tidegate";

import { CHAT } from "./support/provider-payloads.mjs";
import { json, upstream } from "./support/upstream.mjs";

const path = "/v1/chat/completions";
const headers = { "content-type": "application/json", authorization: "Bearer mine", host: "llama" };
const chat = { method: "POST", body: JSON.stringify({ model: "m" }), headers };
const originalFetch = globalThis.fetch;

function pool(replicas, rest) {
  const settings = { replicas: replicas.map((replica) => replica.url), health: "none", poll: "none" };
  return new Gate({ targets: { llama: { pool: settings } }, ...rest });
}

for (const mode of ["enforce", "observe", "off"]) {
  test(`the exchange goes to the replica, mode ${mode}`, async (t) => {
    const replicas = [await upstream(t, json(CHAT)), await upstream(t, json(CHAT))];
    const seen = [];
    const fetch = (input, init) => {
      seen.push([input, new Headers(init.headers).get("authorization"), new Headers(init.headers).get("host")]);
      return originalFetch(input, init);
    };
    const gate = pool(replicas, { fetch, mode });
    for (let n = 0; n < 8; n++) {
      const response = await gate.fetch(`http://llama${path}`, chat);
      assert.deepEqual(await response.json(), CHAT);
    }
    const there = new Set(replicas.map((replica) => replica.url + path));
    assert.equal(seen.length, 8);
    for (const [url, key, host] of seen) {
      assert.ok(there.has(url), url);
      assert.deepEqual([key, host], ["Bearer mine", null]);
    }
  });
}

test("a call that one replica rejects is sent to the other", async (t) => {
  const replicas = [await upstream(t, json({ error: { message: "full" } }, 503)), await upstream(t, json(CHAT))];
  const gate = pool(replicas, { fetch: originalFetch });
  for (let n = 0; n < 8; n++) {
    const response = await gate.fetch(`http://llama${path}`, chat);
    assert.deepEqual([response.status, await response.json()], [200, CHAT]);
  }
  assert.ok((gate.snapshot().targets.llama.retries.elsewhere ?? 0) <= 8);
});
