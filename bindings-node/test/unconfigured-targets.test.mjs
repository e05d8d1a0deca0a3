// Tests of more API keys than the gate keeps targets for: they share the capacity of the target
// `others`, but each key has cool-downs of its own.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Gate } from "tidegate";

import { CHAT } from "./support/provider-payloads.mjs";
import { json, upstream } from "./support/upstream.mjs";

const KEYS = 300;
const LAST = KEYS - 1;

test("a Retry-After for one of many keys delays only that key", async (t) => {
  const refuse = json({ error: {} }, 429, { "retry-after": "3600" });
  const up = await upstream(t, (exchange) =>
    exchange.headers.authorization === `Bearer k${LAST}` ? refuse(exchange) : json(CHAT)(exchange),
  );
  const gate = new Gate({ defaults: { retry: { attempts: 1 } } });
  const ask = async (key) => {
    const headers = { authorization: `Bearer k${key}` };
    const init = { method: "POST", headers, body: JSON.stringify({ model: "m" }) };
    const response = await gate.fetch(`${up.url}/v1/chat/completions`, init);
    return { status: response.status, after: response.headers.get("retry-after"), body: await response.json() };
  };
  const all = async () => {
    for (let key = 0; key < LAST; key++) assert.equal((await ask(key)).status, 200);
  };
  await all();
  assert.equal((await ask(LAST)).status, 429);
  const sent = up.exchanges.length;
  await all();
  const { status, after, body } = await gate.run({ deadline: 60 }, () => ask(LAST));
  assert.deepEqual([status, body.error.code, up.exchanges.length], [429, "cool_down", sent + LAST]);
  assert.ok(Number(after) > 3000 && Number(after) <= 3602, after);
  const { in_flight, queue_depth } = gate.snapshot().targets.others;
  assert.deepEqual([in_flight, queue_depth], [0, 0]);
});
