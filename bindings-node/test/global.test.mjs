// A gate's fetch in the place of the platform's, for whatever takes no fetch: what needs the platform's still finds it.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Gate } from "tidegate";

import { ONCE } from "./support/shapes.mjs";
import { json, upstream } from "./support/upstream.mjs";

/** Puts the gate's fetch there for this test. */
function install(t, config) {
  const stock = globalThis.fetch;
  t.after(() => {
    globalThis.fetch = stock;
  });
  const gate = new Gate(config);
  globalThis.fetch = gate.fetch;
  return gate;
}

test("global: in mode off", async (t) => {
  const up = await upstream(t, json({ ok: true }));
  install(t, { mode: "off" });
  assert.deepEqual(await (await fetch(up.url)).json(), { ok: true });
});

test("global: what is not HTTP, and what is no URL", async (t) => {
  install(t);
  assert.equal(await (await fetch("data:,hello")).text(), "hello");
  await assert.rejects(fetch("/models"), { name: "TypeError" });
});

test("global: a dispatcher for this call", async (t) => {
  install(t, ONCE);
  const boom = new Error("boom");
  let dispatched = 0;
  const dispatcher = {
    dispatch(_, handler) {
      dispatched++;
      handler.onError(boom);
      return true;
    },
  };
  await assert.rejects(fetch("http://nowhere.test/", { dispatcher }), (error) => error.cause === boom);
  assert.equal(dispatched, 1);
});
