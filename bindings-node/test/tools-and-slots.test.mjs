// Tests of model slots and tools together, and of explanations.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import OpenAI from "openai";
import { Gate } from "tidegate";
import { FakeTarget, ok, VirtualClock } from "tidegate/testing";

const TEXT = "the tide comes in";

const client = (gate) =>
  gate.wrap(new OpenAI({ baseURL: "https://models.example.com/v1", apiKey: "k", timeout: 3_600_000 }));

const ask = (sdk, stream) =>
  sdk.chat.completions.create({ model: "small", stream, messages: [{ role: "user", content: "hi" }] });

async function read(stream) {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0].delta.content ?? "";
  return text;
}

const shape = () => new Gate({ targets: { small: 1 }, tools: { db: 1 } });
const held = (gate) => gate.snapshot().tools.db.slot_held.small;

describe("model slots and tools", () => {
  let clock;
  const warned = [];
  const listen = (warning) => {
    if (warning.code === "TIDEGATE_SLOT_HELD") warned.push(warning);
  };
  before(() => {
    clock = new VirtualClock().start();
    process.on("warning", listen);
  });
  after(() => {
    clock.stop();
    process.off("warning", listen);
  });

  /**
   * Runs `script(stream)` with an open response stream, while another caller occupies the tool for
   * two seconds. Returns the result of `script`.
   */
  const whileHolding = (gate, script) =>
    new FakeTarget({ otherwise: ok(TEXT, { after: 0.01, every: 0.1 }) }).during(() =>
      clock.until(
        (async () => {
          const other = gate.tool("db", () => sleep(2000));
          const done = gate.run({ tenant: "acme" }, async () => {
            const stream = await ask(client(gate), true);
            return script(stream);
          });
          await other;
          return done;
        })(),
      ),
    );

  test("waiting for a tool with an open response warns once for each line", async () => {
    const gate = shape();
    const wants = () => gate.tool("db", () => {});
    warned.length = 0;
    await whileHolding(gate, async (stream) => {
      await wants();
      assert.equal(await read(stream), TEXT);
      const again = await ask(client(gate), true);
      const other = gate.run({}, () => gate.tool("db", () => sleep(1000)));
      await wants();
      await Promise.all([other, read(again)]);
      assert.deepEqual(held(gate), { waited: 2 });
    });
    assert.equal(warned.length, 1);
    assert.match(warned[0].message, /tool db .*slot of small.*yieldSlot: true/);
    assert.match(warned[0].detail, /tools-and-slots\.test\.mjs/);
  });

  test("there is no warning in a separate scope or outside of any", async () => {
    const gate = shape();
    warned.length = 0;
    await whileHolding(gate, async (stream) => {
      await gate.run({}, () => gate.tool("db", () => {}));
      await stream.controller.abort();
      assert.equal(held(gate), undefined);
    });
    await new FakeTarget({ otherwise: ok(TEXT) }).during(() =>
      clock.until(
        (async () => {
          const stream = await ask(client(gate), true);
          await gate.tool("db", () => {});
          assert.equal(held(gate), undefined);
          return read(stream);
        })(),
      ),
    );
    assert.equal(warned.length, 0);
  });

  test("a slot of a target warns and is kept", async () => {
    const gate = shape();
    warned.length = 0;
    await clock.until(
      (async () => {
        const other = gate.tool("db", () => sleep(1000));
        await gate.run({}, () => gate.slot("small", () => gate.tool("db", () => {}, { yieldSlot: true })));
        await other;
      })(),
    );
    assert.match(warned[0].message, /Release the slot/);
  });

  for (const callerFirst of [true, false]) {
    /**
     * Runs two callers at the same time: one acquires a model slot and then the tool, the other one
     * acquires them in the opposite order. Returns the answer that each caller got, or the name of
     * its error.
     */
    const bothOrders = async (yieldSlot) => {
      const gate = shape();
      const sdk = client(gate);
      const holdsSlot = async () => {
        await sleep(callerFirst ? 0 : 100);
        return gate.run({ deadline: 60 }, async () => {
          const stream = await ask(sdk, true);
          await sleep(200);
          await gate.tool("db", () => sleep(1000), { yieldSlot });
          return read(stream);
        });
      };
      const holdsTool = async () => {
        await sleep(callerFirst ? 100 : 0);
        return gate.run({ deadline: 60 }, () =>
          gate.tool("db", async () => {
            await sleep(200);
            return read(await ask(sdk, true));
          }),
        );
      };
      const target = new FakeTarget({ otherwise: ok(TEXT, { after: 0.01, every: 0.1 }) });
      const ended = await target.during(() => clock.until(Promise.allSettled([holdsSlot(), holdsTool()])));
      target.assertNoCallInFlight();
      return ended.map(({ value, reason }) => value ?? reason.name);
    };

    test(`two calls in opposite orders finish with yieldSlot, caller first: ${callerFirst}`, async () => {
      assert.deepEqual(await bothOrders(true), [TEXT, TEXT]);
      assert.notDeepEqual(await bothOrders(false), [TEXT, TEXT]);
    });
  }

  test("a slot that is held in another slot's run counts for deadlocks, and the caller's context applies", async () => {
    const gate = new Gate({ targets: { small: 4 }, tools: { a: 1, b: 1, c: 1 } });
    const [a, b, c] = await clock.until(Promise.all(["a", "b", "c"].map((name) => gate.acquireTool(name))));
    const wants = [
      c.run(() => gate.tool("a", () => "got a")).finally(() => c.release()),
      a.run(() => b.run(() => gate.tool("c", () => "got c"))).finally(() => a.release()),
    ];
    const [first, second] = await clock.until(Promise.allSettled(wants));
    assert.deepEqual([first.value, second.reason?.reason], ["got a", "deadlock"]);
    await new FakeTarget({ otherwise: ok(TEXT) }).during(async () => {
      await clock.until(gate.run({ tenant: "acme", call: "job" }, () => b.run(() => ask(client(gate), false))));
      const [{ tenant, label }] = gate.calls();
      assert.deepEqual([tenant, label], ["acme", "job"]);
    });
  });

  test("a tool has a rate and a cap", async () => {
    const tools = { db: { cap: 8, rps: 2 }, once: { cap: 8, rpm: 1, on_full: "refuse" } };
    const gate = new Gate({ tools });
    const begin = clock.time();
    const nine = async () => {
      for (let n = 0; n < 9; n++) await gate.tool("db", () => {});
      await gate.tool("once", () => {});
      return gate.tool("once", () => {}).catch((error) => error);
    };
    const refused = await clock.until(nine());
    assert.deepEqual([refused.reason, refused.why.rule], ["no_budget", "requests"]);
    const took = clock.time() - begin;
    assert.ok(took >= 3 && took <= 5, `${took} s`);
  });

  test("a call is explained by label and by number", async () => {
    const gate = new Gate({ targets: { small: { cap: 1, wait: 90 } }, tools: { db: 1 } });
    const sdk = client(gate);
    const call = (name) => gate.run({ call: name, tenant: "acme" }, () => ask(sdk, false));
    await new FakeTarget({ otherwise: ok("hi", { after: 60 }) }).during(() =>
      clock.until(
        (async () => {
          const first = call("first");
          await sleep(1000);
          const second = call("job-17");
          await sleep(4000);
          const explanation = gate.explain("job-17");
          assert.deepEqual(
            [explanation.state, explanation.rule, explanation.target, explanation.tool],
            ["waiting", "slots", "small", null],
          );
          assert.deepEqual(
            [explanation.label, explanation.tenant, explanation.lane, explanation.ahead],
            ["job-17", "acme", "standard", 0],
          );
          assert.ok(Math.abs(explanation.waited - 4) < 0.1 && explanation.text.includes("a slot of small"));
          assert.equal(gate.explain(explanation.call).label, "job-17");
          assert.deepEqual(
            gate.explain().map(({ label, state }) => [label, state]),
            [
              ["job-17", "waiting"],
              ["first", "in_flight"],
            ],
          );
          for (const [limit, length] of [
            [0, 0],
            [1, 1],
            [Number.POSITIVE_INFINITY, 2],
          ]) {
            assert.equal(gate.explain(undefined, limit).length, length);
          }
          for (const limit of [-1, Number.NaN]) assert.throws(() => gate.explain(undefined, limit), RangeError);
          const third = call("third").catch((error) => error);
          await Promise.all([first, second]);
          assert.equal(gate.explain("job-17"), undefined);
          assert.equal(gate.explain(-1), undefined);
          const refused = await third;
          const record = gate.calls().find(({ outcome }) => outcome === "refused");
          assert.equal(record.label, "third");
          assert.equal(refused.error.call, record.id);
        })(),
      ),
    );
    assert.deepEqual(gate.explain(), []);
  });
});
