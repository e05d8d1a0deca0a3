// Tests that any duration that users set is used, reduced or rejected, and none ends the process.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ConfigError, Gate, Refused } from "tidegate";
import { FakeTarget, overloaded, stream, VirtualClock } from "tidegate/testing";

import { CHAT } from "./support/provider-payloads.mjs";
import { json, upstream } from "./support/upstream.mjs";

const HUGE = [Number.MAX_SAFE_INTEGER, 1e19, 1e300, Number.MAX_VALUE];
const INVALID_NUMBERS = [-1, -Number.MAX_VALUE, Number.NaN, Number.POSITIVE_INFINITY];
const ANY = [...HUGE, ...INVALID_NUMBERS, Number.MIN_VALUE, -0, 0, 1];
const path = "/v1/chat/completions";
const chat = (headers = {}) => ({
  method: "POST",
  body: JSON.stringify({ model: "m" }),
  headers: { "content-type": "application/json", ...headers },
});

test("a huge deadline does not end the call", async () => {
  const gate = new Gate({ targets: { bedrock: { cap: 1, url: "none" } }, tools: { db: 1 } });
  for (const deadline of HUGE) {
    await gate.run({ deadline }, () =>
      gate.slot("bedrock", async () => {
        await gate.tool("db", () => {});
        const refused = gate.run({ deadline: 0.001 }, () => gate.slot("bedrock", () => {}));
        await assert.rejects(refused, Refused);
      }),
    );
  }
});

test("a huge retryAfter affects only its call", async () => {
  const gate = new Gate({ targets: { bedrock: { cap: 1, url: "none" } } });
  for (const seconds of HUGE) {
    await gate.slot("bedrock", (slot) => assert.equal(slot.failed(429, seconds), true));
  }
  assert.equal(gate.snapshot().targets.bedrock.state, "open");
});

test("drain accepts a huge wait and rejects an invalid one", async () => {
  for (const seconds of HUGE) assert.equal(await new Gate().drain(seconds), 0);
  for (const seconds of INVALID_NUMBERS) await assert.rejects(new Gate().drain(seconds), RangeError);
});

test("any timeout of an SDK is accepted", async (t) => {
  const up = await upstream(t, json(CHAT));
  const gate = new Gate();
  for (const timeout of [...ANY.map(String), `1${"0".repeat(400)}`, "soon"]) {
    const response = await gate.fetch(up.url + path, chat({ "x-stainless-timeout": timeout }));
    assert.ok([200, 504].includes(response.status), timeout);
  }
});

test("configurations and scripts use or reject any number", async () => {
  const gate = new Gate();
  for (const value of ANY) {
    for (const config of [
      { defaults: { deadline: value } },
      { defaults: { retry: { max: value } } },
      { tools: { db: { cap: 1, wait: value } } },
      { transport: { connect: value } },
    ]) {
      try {
        new Gate(config);
      } catch (error) {
        assert.ok(error instanceof ConfigError || error instanceof RangeError || error instanceof TypeError, error);
      }
    }
    const clock = new VirtualClock().start();
    try {
      for (const answer of [() => stream(["a", "b"], { after: value, every: value }), () => overloaded(value)]) {
        const target = new FakeTarget({ answers: [answer()] });
        const call = () => gate.run({ deadline: 10 }, () => gate.fetch(`http://model.example${path}`, chat()));
        await target.during(() => clock.until(call()));
      }
    } catch (error) {
      assert.ok(error instanceof Error, String(error));
    } finally {
      clock.stop();
    }
  }
});

test("virtual time advances by at most ten years", async () => {
  const clock = new VirtualClock().start();
  try {
    await clock.advance(3600 * 24 * 365);
    assert.equal(clock.time(), 3600 * 24 * 365);
    for (const seconds of [...HUGE, ...INVALID_NUMBERS]) await assert.rejects(clock.advance(seconds), RangeError);
  } finally {
    clock.stop();
  }
});
