// Tests of gate.map: results, their order, running items, and cancellation.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { afterEach, beforeEach, describe, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import OpenAI from "openai";
import { Gate } from "tidegate";
import { FakeTarget, ok, status, VirtualClock } from "tidegate/testing";

const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
/**
 * Returns a function for `gate.map` that occupies a slot of the target for `seconds` and returns
 * its item. It makes no HTTP request, which is faster. Default target: `small`.
 */
const holder = (gate, seconds, target) => (item) => gate.slot(target ?? "small", () => sleep(seconds).then(() => item));
const slots = (cap) => new Gate({ targets: { small: { cap, url: "none" } } });
const asker = (gate) => {
  const client = gate.wrap(new OpenAI({ baseURL: "https://models.example.com/v1", apiKey: "k" }));
  return async (item) => {
    const messages = [{ role: "user", content: `item ${item}` }];
    return (await client.chat.completions.create({ model: "small", messages })).choices[0].message.content;
  };
};
const all = async (results) => {
  const list = [];
  for await (const result of results) list.push(result);
  return list;
};
const numbers = (count) => Array.from({ length: count }, (_, number) => number);

/**
 * A source of the numbers from 0 that counts how many were taken (`taken`) and records whether it
 * was closed.
 */
class CountingSource {
  taken = 0;
  closed = false;
  constructor(end = Number.POSITIVE_INFINITY) {
    this.end = end;
  }

  *[Symbol.iterator]() {
    try {
      while (this.taken < this.end) yield this.taken++;
    } finally {
      this.closed = true;
    }
  }

  async *slowly() {
    try {
      while (this.taken < this.end) {
        await sleep(0.01);
        yield this.taken++;
      }
    } finally {
      this.closed = true;
    }
  }
}

/**
 * Returns a seeded random number generator: `next()` returns a number from 0 to 1, and `pick(list)`
 * an element of the list.
 */
function randomSource(seed) {
  let state = seed + 1;
  const next = () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
  return { next, pick: (list) => list[Math.floor(next() * list.length)] };
}

describe("on virtual time", () => {
  let clock;
  beforeEach(() => {
    clock = new VirtualClock().start();
  });
  afterEach(() => clock.stop());

  test("results are in order of completion or of the items", async () => {
    const late = async (item) => {
      await sleep(10 - item);
      return item * item;
    };
    const squares = numbers(5).map((n) => ({ index: n, item: n, value: n * n }));
    assert.deepEqual(await clock.until(all(new Gate().map(numbers(5), late, { ordered: true }))), squares);
    assert.deepEqual(await clock.until(all(new Gate().map(numbers(5), late))), squares.reverse());
  });

  test("an error is in the result of its item", async () => {
    const gate = new Gate({ targets: { small: { retry: { attempts: 1 } } } });
    const ask = asker(gate);
    const work = (item) => {
      if (item === 1) throw new RangeError("one");
      return ask(item);
    };
    const target = new FakeTarget({ otherwise: ok("hi") });
    target.route({ contains: "item 2" }, { otherwise: status(400) });
    await target.during(async () => {
      const results = await clock.until(all(gate.map(numbers(4), work, { ordered: true })));
      assert.deepEqual(
        results.map((result) => ("error" in result ? result.error.constructor.name : result.value)),
        ["hi", "RangeError", "BadRequestError", "hi"],
      );
    });
  });

  for (const seed of numbers(16)) {
    test(`every item has one result at any pace: ${seed}`, async () => {
      const { next, pick } = randomSource(seed);
      const [count, ahead, cap] = [Math.floor(next() * 200), pick([1, 2, 7, 50, 1000]), pick([1, 3, 16, 100])];
      const [ordered, before, slow, slowly] = [pick([true, false]), pick([0, 0.5, 8]), pick([0, 0, 0.3]), next() < 0.5];
      const gate = slots(cap);
      const source = new CountingSource(count);
      let [running, most] = [0, 0];
      const work = async (item) => {
        await sleep(next() * before);
        await gate.slot("small", async () => {
          most = Math.max(most, ++running);
          await sleep(next() * 3);
          running--;
        });
        if (next() < 0.1) throw new RangeError(String(item));
      };
      const handed = [];
      const reading = async () => {
        for await (const result of gate.map(slowly ? source.slowly() : source, work, { ordered, ahead })) {
          assert.equal(result.index, result.item);
          assert.ok(result.error === undefined || result.error instanceof RangeError);
          handed.push(result.index);
          assert.ok(source.taken - handed.length <= ahead);
          if (slow > 0) await sleep(next() * slow);
          assert.ok(source.taken - handed.length <= ahead);
        }
      };
      await clock.until(reading());
      assert.deepEqual(ordered ? handed : handed.sort((a, b) => a - b), numbers(count));
      assert.ok(most <= Math.min(cap, ahead));
      assert.ok(source.closed);
    });
  }

  for (const [cap, before] of [1, 10, 64].flatMap((cap) => [0, 5, 40].map((before) => [cap, before]))) {
    test(`slots stay in use: ${cap} slots, ${before} s before each call`, async () => {
      const rounds = 20;
      const gate = slots(cap);
      const hold = holder(gate, 10);
      const depths = [];
      const reading = async () => {
        for await (const result of gate.map(numbers(cap * rounds), async (item) => {
          await sleep(before);
          return hold(item);
        })) {
          if (result.index % 7 === 0) depths.push(gate.snapshot().targets.small.queue_depth);
        }
      };
      await clock.until(reading());
      assert.ok(clock.time() <= rounds * 10 + before + 5 * (before + 0.1), `${clock.time()} s`);
      if (before === 0) assert.ok(Math.max(...depths) <= 2 * Math.max(8, cap / 4) + 8);
    });
  }

  test("waiting calls of others do not slow the map", async () => {
    const gate = new Gate({ targets: { busy: { cap: 1, url: "none" }, small: { cap: 20, url: "none" } } });
    const crowd = new AbortController();
    for (const item of numbers(100)) gate.slot("busy", () => sleep(10), { signal: crowd.signal }).catch(() => item);
    await clock.until(all(gate.map(numbers(200), holder(gate, 10))));
    assert.ok(clock.time() <= 101, `${clock.time()} s`);
    crowd.abort();
  });

  test("an endless source is read only as far as ahead", async () => {
    const gate = slots(8);
    const source = new CountingSource();
    let handed = 0;
    const reading = async () => {
      for await (const _ of gate.map(source, holder(gate, 1), { ahead: 40 })) {
        if (++handed === 200) break;
        await sleep(60);
        assert.ok(source.taken - handed <= 40);
      }
    };
    await clock.until(reading());
    await turn();
    assert.ok(source.closed);
  });

  for (const how of ["break", "throw", "return", "abort"]) {
    test(`leaving the loop cancels all items: ${how}`, async () => {
      const gate = new Gate({ targets: { small: 4 } });
      const [source, controller, target] = [
        new CountingSource(),
        new AbortController(),
        new FakeTarget({ otherwise: ok("hi", { after: 10 }) }),
      ];
      const signals = [];
      const ask = asker(gate);
      const results = gate.map(
        source,
        (item, of) => {
          signals.push(of.signal);
          assert.equal(of.index, item);
          return ask(item);
        },
        { signal: controller.signal },
      );
      const leave = {
        break: async () => {
          for await (const _ of results) break;
        },
        throw: async () => {
          const broken = async () => {
            for await (const _ of results) throw new RangeError("enough");
          };
          await assert.rejects(broken(), /enough/);
        },
        return: async () => {
          await results.next();
          await results.return();
          assert.deepEqual(await results.next(), { done: true, value: undefined });
        },
        abort: async () => {
          setTimeout(() => controller.abort(new RangeError("enough")), 15_000);
          await assert.rejects(all(results), /enough/);
        },
      };
      await target.during(async () => {
        await clock.until(leave[how]());
        await clock.advance(0.1);
        target.assertNoCallInFlight();
        assert.ok(target.cancelled.length > 0);
        assert.equal(gate.snapshot().active, 0);
      });
      assert.ok(source.closed);
      assert.ok(signals.some((signal) => signal.aborted) && !signals[0].aborted);
    });
  }

  for (const how of ["return", "throw"]) {
    test(`leaving the map ends a pending next: ${how}`, async () => {
      const gate = slots(4);
      const [source, hold, signals] = [new CountingSource(), holder(gate, 10), []];
      const results = gate.map(source, (item, { signal }) => {
        signals.push(signal);
        return hold(item);
      });
      const pending = [results.next(), results.next()];
      await clock.advance(5);
      assert.ok(gate.snapshot().targets.small.queue_depth > 0);
      const boom = new Error("boom");
      if (how === "return") assert.deepEqual(await results.return(), { done: true, value: undefined });
      else await assert.rejects(results.throw(boom), (error) => error === boom);
      for (const next of pending) assert.deepEqual(await next, { done: true, value: undefined });
      await clock.advance(0.1);
      assert.equal(gate.snapshot().targets.small.queue_depth, 0);
      assert.ok(source.closed && signals.every((signal) => signal.aborted));
    });
  }

  test("a nested map ends with the outer one", async () => {
    const gate = slots(30);
    const hold = holder(gate, 10);
    const chapter = async (number) => (await all(gate.map(numbers(number % 7), hold))).length;
    const lengths = await clock.until(all(gate.map(numbers(140), chapter, { ordered: true })));
    assert.deepEqual(
      lengths.map(({ value }) => value),
      numbers(140).map((number) => number % 7),
    );
    assert.ok(clock.time() <= (420 / 30) * 10 + 20, `${clock.time()} s`);
    const left = async () => {
      for await (const _ of gate.map(new CountingSource(), (n) =>
        n === 0 ? 0 : all(gate.map(new CountingSource(), hold)),
      ))
        break;
    };
    await clock.until(left());
    await clock.advance(0.1);
    assert.equal(gate.snapshot().active, 0);
  });

  test("an error of the source is thrown after all results", async () => {
    const gate = slots(2);
    const handed = [];
    const broken = function* () {
      yield* numbers(20);
      throw new RangeError("the disk is gone");
    };
    const reading = async () => {
      for await (const { index } of gate.map(broken(), holder(gate, 10), { ordered: true })) handed.push(index);
    };
    await assert.rejects(clock.until(reading()), /the disk is gone/);
    assert.deepEqual(handed, numbers(20));
  });

  test("calls have the batch lane and the outer context", async () => {
    const gate = new Gate();
    await new FakeTarget({ otherwise: ok("hi", { after: 10 }) }).during(async () => {
      const maps = gate.run({ tenant: "acme", lane: "interactive", call: "around" }, () => [
        gate.map([1], asker(gate)),
        gate.map([2], asker(gate), { tenant: "nightly", lane: "standard" }),
      ]);
      for (const results of maps) await clock.until(all(results));
      const [late] = await clock.until(
        all(gate.run({ deadline: 5 }, () => gate.map([3], asker(gate), { tenant: undefined }))),
      );
      assert.match(String(late.error), /deadline/);
      assert.deepEqual(
        gate.calls().map(({ tenant, lane, label }) => [tenant, lane, label]),
        [
          ["acme", "batch", "around"],
          ["nightly", "standard", "around"],
          ["default", "batch", null],
        ],
      );
    });
  });

  test("eight items run at once if no call waits", async () => {
    const gate = new Gate({ mode: "off" });
    let [running, most] = [0, 0];
    const work = async () => {
      most = Math.max(most, ++running);
      await sleep(1);
      running--;
    };
    await clock.until(all(gate.map(numbers(100), work)));
    assert.equal(most, 8);
  });
});

test("strings and functions can be iterated", async () => {
  const gate = new Gate();
  const values = async (items) => {
    const found = [];
    for await (const { value } of gate.map(items, (item) => item, { ordered: true })) found.push(value);
    return found;
  };
  const numbers = Object.assign(() => {}, {
    *[Symbol.iterator]() {
      yield* [1, 2];
    },
  });
  const pages = Object.assign(() => {}, {
    async *[Symbol.asyncIterator]() {
      yield* [3, 4];
    },
  });
  assert.deepEqual(await values("tide"), ["t", "i", "d", "e"]);
  assert.deepEqual(await values(""), []);
  assert.deepEqual(await values(numbers), [1, 2]);
  assert.deepEqual(await values(pages), [3, 4]);
});

test("invalid arguments are errors", () => {
  const gate = new Gate();
  const work = (item) => item;
  assert.throws(() => gate.map(work, [1]), /must be a function/);
  for (const items of [3, null, undefined, {}, work]) {
    assert.throws(() => gate.map(items, work), /items must be an iterable/);
  }
  assert.throws(() => gate.map([1], work, { ahead: 0 }), RangeError);
  assert.throws(() => gate.map([1], work, { lane: "slow" }), RangeError);
});

test("an abandoned map does not keep the process alive", () => {
  const program = `
    import { Gate } from "tidegate";
    const gate = new Gate({ targets: { small: { cap: 1, url: "none" } } });
    const results = gate.map((function* () { for (let n = 0; ; n++) yield n; })(), (n) => gate.slot("small", () => n), { ahead: 20 });
    console.log((await results.next()).value.value);`;
  const done = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    cwd: import.meta.dirname,
    timeout: 60_000,
    encoding: "utf8",
  });
  assert.deepEqual([done.status, done.stdout.trim()], [0, "0"], done.stderr);
});
