// Tests of the gate: configuration, contexts, tools, slots and records.
import assert from "node:assert/strict";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { ConfigError, Gate, Refused, TidegateError, UnknownNameError } from "tidegate";

import { CHAT, queued, until } from "./support/provider-payloads.mjs";
import { json, never, upstream } from "./support/upstream.mjs";

const chat = { method: "POST", body: JSON.stringify({ model: "m" }), headers: { "content-type": "application/json" } };
const path = "/v1/chat/completions";

test("configuration errors name the key and the nearest valid one", async () => {
  assert.throws(
    () => new Gate({ targets: { openai: { capp: 3 } } }),
    (error) => {
      assert.ok(error instanceof ConfigError && error instanceof TidegateError && error instanceof Error);
      assert.deepEqual([error.name, error.kind, error.retryable, error.status], ["ConfigError", "config", false, 400]);
      assert.match(error.message, /targets\.openai\.capp.*"cap"/);
      return true;
    },
  );
  assert.throws(() => new Gate({ tools: { db: 0 } }), ConfigError);
  // JSON has no such number, and null would switch the limit off.
  for (const rpm of [Number.NaN, Number.POSITIVE_INFINITY]) {
    assert.throws(() => new Gate({ targets: { openai: { rpm } } }), { name: "ConfigError", message: /^rpm: .*finite/ });
  }
  assert.throws(() => Gate.fromFile("none.toml"), { name: "ConfigError", message: /none\.toml/ });
  const file = join(await mkdtemp(join(tmpdir(), "tidegate-")), "tidegate.toml");
  await writeFile(file, 'mode = "observe"\n[tools]\ndb = 8\n');
  const gate = Gate.fromFile(file);
  assert.deepEqual([gate.mode, gate.snapshot().tools.db.limit], ["observe", 8]);
});

test("a nested context inherits tenant, lane and deadline", async (t) => {
  const up = await upstream(t, json(CHAT));
  const gate = new Gate();
  await gate.run({ tenant: "acme", lane: "batch" }, async () => {
    await Promise.resolve();
    await gate.fetch(up.url + path, chat);
    await gate.run({ lane: "interactive" }, () => gate.fetch(up.url + path, chat));
  });
  await gate.fetch(up.url + path, chat);
  const seen = gate.calls().map(({ tenant, lane }) => [tenant, lane]);
  assert.deepEqual(seen, [
    ["acme", "batch"],
    ["acme", "interactive"],
    ["default", "standard"],
  ]);
  assert.throws(() => gate.run({ lane: "fast" }, () => {}), {
    name: "RangeError",
    message: /interactive, standard, batch/,
  });
  for (const deadline of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) {
    assert.throws(() => gate.run({ deadline }, () => {}), RangeError);
  }
  for (const [context, message] of [
    [{ tennant: "acme" }, 'context: "tennant" is not a key; the keys are tenant, lane, deadline, call'],
    [{ toString: "acme" }, 'context: "toString" is not a key; the keys are tenant, lane, deadline, call'],
    [() => {}, "context: give an object with the keys tenant, lane, deadline, call"],
    [undefined, "context: give an object with the keys tenant, lane, deadline, call"],
    [{ tenant: 7 }, "tenant: give a string"],
    [{ lane: 7 }, "lane: give a string"],
    [{ call: 7 }, "call: give a string"],
    [{ deadline: "30s" }, 'deadline: give a number of seconds; got the string "30s"'],
    [{ deadline: "https://user@host" }, "deadline: give a number of seconds; got a string of 17 characters"],
    [{ deadline: {} }, "deadline: give a number of seconds; got a value of the type object"],
  ]) {
    assert.throws(() => gate.run(context, () => {}), { name: "TypeError", message });
  }
  assert.throws(() => gate.map([1], () => {}, { tenant: 7 }), { name: "TypeError", message: "tenant: give a string" });
  assert.equal(
    gate.run({ tenant: null, lane: null, deadline: null, call: null }, () => 1),
    1,
  );
  assert.equal(
    gate.run({}, () => "what it returns"),
    "what it returns",
  );
});

test("a deadline ends the call with a response that explains it", async (t) => {
  const up = await upstream(t, never);
  const gate = new Gate();
  const response = await gate.run({ deadline: 0.05 }, () => gate.fetch(up.url + path, chat));
  assert.deepEqual([response.status, response.headers.get("x-should-retry")], [504, "false"]);
  assert.equal((await response.json()).error.type, "tidegate_deadline");
  await up.exchanges[0].closed;
});

test("a tool limits calls to its cap and passes values and failures on", async () => {
  const gate = new Gate({ tools: { db: 2 } });
  let [now, most] = [0, 0];
  const work = async (value) => {
    most = Math.max(most, ++now);
    await new Promise(setImmediate);
    now--;
    return value;
  };
  const values = await Promise.all([1, 2, 3, 4, 5].map((value) => gate.tool("db", () => work(value))));
  assert.deepEqual([values, most], [[1, 2, 3, 4, 5], 2]);
  assert.equal(await gate.tool("db", () => "at once"), "at once");
  const boom = new Error("boom");
  await assert.rejects(
    gate.tool("db", () => Promise.reject(boom)),
    (error) => error === boom,
  );
  await assert.rejects(
    gate.tool("db", () => {
      throw boom;
    }),
    (error) => error === boom,
  );
  assert.equal(gate.snapshot().tools.db.in_flight, 0);
  await assert.rejects(
    gate.tool("dbs", () => {}),
    (error) => {
      assert.ok(error instanceof UnknownNameError);
      assert.match(error.message, /"db"/);
      return true;
    },
  );
});

test("a tool slot is held until it is released, disposed or collected", async () => {
  const gate = new Gate({ tools: { db: 1 } });
  const held = () => gate.snapshot().tools.db.in_flight;
  const slot = await gate.acquireTool("db");
  assert.equal(held(), 1);
  slot.release();
  slot.release();
  assert.equal(held(), 0);
  await (await gate.acquireTool("db"))[Symbol.asyncDispose]();
  assert.equal(held(), 0);
  await (async () => void (await gate.acquireTool("db")))();
  await until(() => {
    globalThis.gc();
    return held() === 0;
  });
  await (await gate.acquireTool("db")).run(async () => assert.equal(held(), 1));
});

test("a wait for a tool can be aborted", async () => {
  const gate = new Gate({ tools: { db: 1 } });
  const slot = await gate.acquireTool("db");
  const control = new AbortController();
  const reason = new Error("enough");
  const waiting = gate.acquireTool("db", { signal: control.signal });
  await until(() => gate.snapshot().tools.db.queue_depth === 1);
  control.abort(reason);
  await assert.rejects(waiting, (error) => error === reason);
  await assert.rejects(
    gate.tool("db", () => {}, { signal: control.signal }),
    (error) => error === reason,
  );
  slot.release();
  await until(() => gate.snapshot().tools.db.queue_depth === 0);
});

test("a cycle of tools is rejected", async () => {
  const gate = new Gate({ tools: { a: 1, b: 1 } });
  await gate.tool("a", async () => {
    const inside = gate.tool("a", () => {});
    await assert.rejects(
      inside,
      (error) => error instanceof Refused && error.reason === "deadlock" && !error.retryable,
    );
    await gate.tool("b", async () => {
      await assert.rejects(
        gate.tool("a", () => {}),
        { name: "Refused" },
      );
    });
  });
});

test("a slot of a target is held while the function runs", async () => {
  const gate = new Gate({ targets: { bedrock: { url: "none", cap: 1 } } });
  const seen = () => gate.snapshot().targets.bedrock;
  assert.equal(await gate.slot("bedrock", async () => seen().in_flight), 1);
  const boom = new Error("boom");
  let kept;
  const failing = gate.slot("bedrock", (slot) => {
    kept = slot;
    assert.throws(() => slot.failed(7), RangeError);
    assert.equal(slot.failed(400), false);
    throw boom;
  });
  await assert.rejects(failing, (error) => error === boom);
  assert.throws(() => kept.failed(503), /slot was released/);
  assert.equal(seen().in_flight, 0);
  assert.deepEqual(
    gate.calls().map(({ outcome }) => outcome),
    ["completed", "failed"],
  );
  await assert.rejects(
    gate.slot("bedrok", () => {}),
    UnknownNameError,
  );
});

test("snapshot, metrics and records describe the calls", async (t) => {
  const up = await upstream(t, json(CHAT, 200));
  const gate = new Gate({ targets: { here: { url: up.url } } });
  await gate.fetch(up.url + path, chat);
  assert.deepEqual(Object.keys(gate.snapshot().targets), ["here"]);
  assert.match(gate.prometheus(), /target="here"/);
  const [call] = gate.calls();
  assert.deepEqual([call.target, call.model, call.outcome, call.attempts[0].status], ["here", "m", "completed", 200]);
});

test("the model of a request is found in any form of body", async (t) => {
  const up = await upstream(t, json(CHAT));
  const gate = new Gate();
  const url = up.url + path;
  const body = JSON.stringify({ model: "seen" });
  const headers = { "content-type": "application/json" };
  for (const request of [
    [url, { method: "POST", body }],
    [url, { method: "POST", body: Buffer.from(body), headers }],
    [url, { method: "POST", body: new Blob([body]), headers }],
    // Mistral's SDK passes a Request without options.
    [new Request(url, { method: "POST", body, headers })],
  ]) {
    await gate.fetch(...request);
  }
  assert.deepEqual(
    gate.calls().map(({ model }) => model),
    ["seen", "seen", "seen", "seen"],
  );
});

test("drain waits for active calls and rejects new ones", async (t) => {
  let finish;
  const up = await upstream(t, ({ response }) => {
    finish = () => response.end("{}");
  });
  const gate = new Gate();
  const call = gate.fetch(up.url + path, chat);
  await up.exchange();
  assert.equal(await gate.drain(0), 1);
  const refused = await gate.fetch(up.url + path, chat);
  assert.deepEqual([refused.status, (await refused.json()).error.code], [503, "draining"]);
  const drained = gate.drain();
  finish();
  assert.equal((await call).status, 200);
  assert.equal(await drained, 0);
  await assert.rejects(gate.drain(-1), RangeError);
  for (const [seconds, got] of [
    ["10", 'the string "10"'],
    [null, "null"],
  ]) {
    const message = `seconds: give a number of seconds; got ${got}`;
    await assert.rejects(gate.drain(seconds), { name: "TypeError", message });
  }
});

test("mode off uses the current platform fetch", async (t) => {
  const gate = new Gate({ mode: "off" });
  const stock = globalThis.fetch;
  t.after(() => {
    globalThis.fetch = stock;
  });
  globalThis.fetch = async () => new Response("mine");
  assert.equal(await (await gate.fetch("http://127.0.0.1:1/")).text(), "mine");
  assert.deepEqual(gate.snapshot().targets, {});
});

test("queued calls wait for a slot", async (t) => {
  const open = [];
  const up = await upstream(t, ({ response }) => open.push(() => response.end("{}")));
  const gate = new Gate({ defaults: { cap: 1 } });
  const calls = [1, 2, 3].map(() => gate.fetch(up.url + path, chat));
  for (let left = 2; left >= 0; left--) {
    await up.exchange(2 - left);
    await until(() => queued(gate) === left);
    open.shift()();
  }
  for (const response of await Promise.all(calls)) assert.equal(response.status, 200);
});
