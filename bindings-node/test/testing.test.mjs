// Tests of the fake target and of virtual time.
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { afterEach, beforeEach, describe, mock, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { Gate } from "tidegate";
import {
  breakOff,
  errorEvent,
  FakeTarget,
  ok,
  overloaded,
  rateLimited,
  refuseConnection,
  stall,
  status,
  stream,
  truncate,
  VirtualClock,
} from "tidegate/testing";

import { CHAT, MESSAGES } from "./support/provider-payloads.mjs";
import { json, upstream } from "./support/upstream.mjs";

const openai = (gate = new Gate(), options = {}) =>
  gate.wrap(new OpenAI({ baseURL: "https://models.example.com/v1", apiKey: "sk-secret", ...options }));
const ask = async (client = openai(), more = {}) => {
  const answer = await client.chat.completions.create({ model: "small", messages: MESSAGES, ...more });
  return answer.choices[0].message.content;
};
const read = async (client = openai()) => {
  let text = "";
  for await (const chunk of await client.chat.completions.create({
    model: "small",
    messages: MESSAGES,
    stream: true,
  })) {
    text += chunk.choices[0]?.delta.content ?? "";
  }
  return text;
};
const statuses = (call) => call.attempts.map((attempt) => attempt.status);

describe("on virtual time", () => {
  let clock;
  beforeEach(() => {
    clock = new VirtualClock().start();
  });
  afterEach(() => clock.stop());

  test("a call waits for its Retry-After", async () => {
    const target = new FakeTarget({ answers: [rateLimited(90).times(2), overloaded(), ok("now")] });
    await target.during(async () => assert.equal(await clock.until(ask()), "now"));
    assert.deepEqual(target.calls.map(statuses), [[429, 429, 503, 200]]);
    assert.ok(clock.time() >= 180);
    target.assertNoCallInFlight();
  });

  for (const [url, settings] of [
    ["http://localhost:8000/v1", { url: "http://localhost:8000/v1", tokenizer: "vllm" }],
    ["http://llm/v1", { pool: ["http://10.0.0.1:8000", "http://10.0.0.2:8000"] }],
  ]) {
    test(`requests of the gate itself use no answer: ${url}`, async () => {
      const target = new FakeTarget({ answers: [rateLimited(90), ok("done")], otherwise: null });
      await target.during(async () => {
        const client = openai(new Gate({ targets: { llm: settings } }), { baseURL: url });
        assert.equal(await clock.until(ask(client)), "done");
        await clock.advance(5);
      });
      assert.deepEqual(target.calls.map(statuses), [[429, 200]]);
    });
  }

  test("the fake target answers every API, whole and streamed", async () => {
    const client = openai();
    const target = new FakeTarget({
      otherwise: ok("the tide", { toolCalls: [{ name: "search", arguments: { q: "moon" } }] }),
    });
    await target.during(async () => {
      const chat = await clock.until(client.chat.completions.create({ model: "small", messages: MESSAGES }));
      assert.equal(chat.choices[0].message.tool_calls[0].function.arguments, '{"q":"moon"}');
      const runner = client.chat.completions.stream({ model: "small", messages: MESSAGES });
      const whole = await clock.until(runner.finalChatCompletion());
      assert.equal(whole.choices[0].message.tool_calls[0].function.name, "search");
      const response = await clock.until(client.responses.stream({ model: "small", input: "x" }).finalResponse());
      assert.deepEqual(
        response.output.map(({ type }) => type),
        ["message", "function_call"],
      );
      const vectors = await clock.until(client.embeddings.create({ model: "small", input: ["a", "b"] }));
      assert.deepEqual(
        vectors.data.map(({ embedding }) => [...embedding]),
        [
          [0, 0.5, 1],
          [0, 0.5, 1],
        ],
      );
      const anthropic = new Gate().wrap(new Anthropic({ apiKey: "k" }));
      const message = await clock.until(
        anthropic.messages.stream({ model: "claude", max_tokens: 9, messages: MESSAGES }).finalMessage(),
      );
      assert.deepEqual(message.content[1].input, { q: "moon" });
    });
  });

  test("streams and timers have one order", async () => {
    const target = new FakeTarget({ otherwise: stream(["a", "b", "c"], { after: 2, every: 10 }) });
    const seen = [];
    const note = (what) => seen.push([what, Math.round(clock.time())]);
    await target.during(async () => {
      setTimeout(note, 7000, "timeout");
      const interval = setInterval(() => note("interval"), 9000);
      const chunks = (async () => {
        const options = { model: "small", messages: MESSAGES, stream: true };
        for await (const chunk of await openai().chat.completions.create(options)) {
          const text = chunk.choices[0].delta.content;
          if (text) note(text);
        }
      })();
      await clock.until(Promise.all([chunks, sleep(20_000).then(() => note("sleep"))]));
      clearInterval(interval);
    });
    assert.deepEqual(seen, [
      ["a", 2],
      ["timeout", 7],
      ["interval", 9],
      ["b", 12],
      ["interval", 18],
      ["sleep", 20],
      ["c", 22],
    ]);
  });

  for (const cut of [truncate(["half "]), breakOff(["half "]), errorEvent(["half "])]) {
    test(`a broken stream is an error and is not retried: ${JSON.stringify(cut)}`, async () => {
      const target = new FakeTarget({ answers: [cut] });
      await target.during(() => assert.rejects(clock.until(read())));
      assert.equal(target.attempts.length, 1);
    });
  }

  for (const cut of [errorEvent(), breakOff(), refuseConnection(), status(503)]) {
    test(`a failure before the first token is retried: ${JSON.stringify(cut)}`, async () => {
      const target = new FakeTarget({ answers: [cut], otherwise: ok("whole") });
      await target.during(async () => assert.equal(await clock.until(read()), "whole"));
      assert.equal(target.attempts.length, 2);
    });
  }

  test("an aborted attempt is recorded", async () => {
    const target = new FakeTarget({ otherwise: ok("late", { after: 60 }) });
    const controller = new AbortController();
    await target.during(async () => {
      const call = new Gate().fetch("https://models.example.com/v1/chat/completions", {
        method: "POST",
        body: JSON.stringify({ model: "small" }),
        signal: controller.signal,
      });
      setTimeout(() => controller.abort(), 5000);
      await assert.rejects(clock.until(call), { name: "AbortError" });
    });
    assert.deepEqual(
      target.cancelled.map(({ ended }) => ended),
      [5],
    );
  });

  test("a stalled stream times out in the SDK, or is named in the error", async () => {
    const target = new FakeTarget({ otherwise: stall(["half"]) });
    await target.during(async () => {
      const gate = new Gate({ defaults: { idle: 45 } });
      await assert.rejects(clock.until(read(openai(gate))));
      assert.ok(clock.time() >= 45 && clock.time() < 50);
      const chunks = await clock.until(
        openai().chat.completions.create({ model: "small", messages: MESSAGES, stream: true }),
      );
      assert.throws(() => target.assertNoCallInFlight(), /call 1, attempt 1: POST \/v1\/chat\/completions \(small\)/);
      chunks.controller.abort();
      await clock.advance(1);
      target.assertNoCallInFlight();
    });
  });

  test("a fan-out has the same trace in each run", async () => {
    const storm = async (seed) => {
      clock.stop();
      clock = new VirtualClock({ seed }).start();
      const good = ok("the tide comes in", { after: 2, every: 0.5 });
      const bad = Array.from({ length: 9 }, () => [good.times(9), status(500)]).flat();
      const target = new FakeTarget({
        answers: [rateLimited(90).times(5), ...bad],
        otherwise: good,
        capacity: 8,
        retryAfter: 7,
      });
      await target.during(async () => {
        const gate = new Gate({
          targets: { small: { cap: 10, retry: { attempts: 20 }, deadline: 3600 } },
          tools: { search: 12 },
        });
        // The SDK's timeout of ten minutes is on virtual time.
        const client = openai(gate, { timeout: 3_600_000 });
        const agent = async (number) => {
          await sleep(number * 250);
          await gate.tool("search", () => sleep(1500));
          return read(client);
        };
        const texts = await clock.until(Promise.all(Array.from({ length: 200 }, (_, number) => agent(number))));
        assert.ok(texts.every((text) => text === "the tide comes in"));
      });
      target.assertNoCallInFlight();
      return [clock.time(), target.trace()];
    };
    const first = await storm(1);
    assert.ok(first[0] > 300, `${first[0]} s of virtual time`);
    assert.deepEqual(await storm(1), first);
    assert.notDeepEqual(await storm(2), first);
  });

  test("deadlines are virtual", async () => {
    const gate = new Gate();
    await new FakeTarget({ otherwise: ok("late", { after: 60 }) }).during(() =>
      assert.rejects(clock.until(gate.run({ deadline: 20 }, () => ask(openai(gate)))), /deadline/),
    );
    assert.equal(Math.round(clock.time()), 20);
  });

  test("a wait that can never end, or takes too long, is an error", async () => {
    await assert.rejects(clock.until(new Promise(() => {})), /nothing is left/);
    await assert.rejects(clock.until(sleep(7_200_000), 3600), /not settled within 3600 s/);
    assert.throws(() => new VirtualClock().start(), /cannot be nested/);
  });

  test("advance runs what is due", async () => {
    const seen = [];
    for (const seconds of [1, 2, 3, 4]) setTimeout(() => seen.push(seconds), seconds * 1000);
    await clock.advance(2.5);
    assert.deepEqual(seen, [1, 2]);
    assert.equal(clock.time(), 2.5);
    await clock.advance(10);
    assert.deepEqual(seen, [1, 2, 3, 4]);
  });

  test("timers run in the context in which they were set", async () => {
    const storage = new AsyncLocalStorage();
    const seen = [];
    storage.run("timeout", () => setTimeout(() => seen.push(storage.getStore()), 10));
    const interval = storage.run("interval", () => setInterval(() => seen.push(storage.getStore()), 20));
    await clock.advance(0.045);
    clearInterval(interval);
    assert.deepEqual(seen, ["timeout", "interval", "interval"]);
  });

  test("promisify and refresh work as with the platform's timers", async () => {
    assert.equal(await clock.until(promisify(setTimeout)(5000, "value")), "value");
    assert.equal(clock.time(), 5);
    let runs = 0;
    const timer = setTimeout(() => runs++, 1000);
    await clock.advance(1.5);
    timer.refresh();
    await clock.advance(0.9);
    assert.equal(runs, 1);
    await clock.advance(0.2);
    assert.equal(runs, 2);
    clearTimeout(timer);
    timer.refresh();
    await clock.advance(2);
    assert.equal(runs, 2);
  });

  // The clock counts whole nanoseconds, and 0.2 + 0.1 is 0.30000000000000004.
  test("advance ends if its end is between two nanoseconds", async () => {
    const seen = [];
    for (const milliseconds of [100, 200, 300]) setTimeout(() => seen.push(milliseconds), milliseconds);
    for (let step = 1; step <= 3; step++) await clock.advance(0.1);
    assert.deepEqual([seen, clock.time()], [[100, 200, 300], 0.3]);
    await clock.advance(1e-10);
    assert.equal(clock.time(), 0.3);
  });

  test("until ends if its end is between two nanoseconds", async () => {
    await clock.advance(0.2);
    setTimeout(() => {}, 1000);
    await assert.rejects(clock.until(new Promise(() => {}), 0.1), /not settled within 0.1 s/);
    assert.equal(clock.time(), 0.3);
  });
});

test("the clock works beside mocked timers", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const clock = new VirtualClock({ timers: false }).start();
  try {
    const target = new FakeTarget({ answers: [rateLimited(90), ok("hi")] });
    await target.during(async () => {
      let timed = false;
      setTimeout(() => {
        timed = true;
      }, 60_000);
      const call = ask();
      await clock.advance(60);
      mock.timers.tick(60_000);
      assert.ok(timed);
      assert.equal(await clock.until(call), "hi");
    });
  } finally {
    clock.stop();
    mock.timers.reset();
  }
});

test("timers of the platform can be cleared on virtual time", () => {
  mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  try {
    const run = mock.fn();
    const [timeout, interval] = [setTimeout(run, 10), setInterval(run, 10)];
    const clock = new VirtualClock().start();
    clearTimeout(timeout);
    clearInterval(interval);
    clock.stop();
    mock.timers.tick(100);
    assert.equal(run.mock.callCount(), 0);
  } finally {
    mock.timers.reset();
  }
});

test("the fake target works on real time, and gates have their earlier state afterwards", async (t) => {
  const up = await upstream(t, json(CHAT));
  const gate = new Gate();
  const client = gate.wrap(new OpenAI({ baseURL: `${up.url}/v1`, apiKey: "k" }));
  assert.equal(await ask(client), "hello");
  for (const text of ["first", "second"]) {
    await new FakeTarget({ answers: [rateLimited(0.01), ok(text)] }).during(async () => {
      assert.equal(gate.calls().length, 0);
      assert.equal(await ask(client), text);
    });
  }
  assert.equal(await ask(client), "hello");
  assert.equal(gate.calls().length, 2);
  assert.equal(up.exchanges.length, 2);
});

test("the fake target replaces a custom fetch", async () => {
  const gate = new Gate({ fetch: (url) => assert.fail(`sent for real: ${url}`) });
  const target = new FakeTarget({ otherwise: ok("fake") });
  await target.during(async () => assert.equal(await ask(openai(gate)), "fake"));
  assert.equal(target.attempts.length, 1);
});

test("an invalid route changes nothing", async () => {
  const target = new FakeTarget();
  const invalid = { name: "RangeError", message: /status: 42 is not a status/ };
  assert.throws(() => target.route({}, { otherwise: status(42) }), invalid);
  target.route({ model: "small" }, { otherwise: ok("small") });
  await target.during(async () => assert.equal(await ask(), "small"));
});

test("numbers that are not finite are rejected", () => {
  const after = Number.POSITIVE_INFINITY;
  for (const script of [{ otherwise: ok("x", { after }) }, { answers: [rateLimited(Number.NaN)] }]) {
    assert.throws(() => new FakeTarget(script), { name: "RangeError", message: /must be a finite number/ });
  }
});

test("unmatched requests fail the test", async () => {
  const target = new FakeTarget({ answers: [ok("once")], otherwise: null });
  target.route({ model: "gpt-*", contains: "rain" }, { otherwise: ok("weather") });
  const swallowed = async () => {
    assert.equal(await ask(), "once");
    assert.equal(await ask(openai(), { model: "gpt-5", messages: [{ role: "user", content: "rain?" }] }), "weather");
    await assert.rejects(ask());
  };
  await assert.rejects(target.during(swallowed), /no answer for:\n {2}POST models.example.com\/v1\/chat\/completions/);
  assert.ok(!JSON.stringify(target.attempts).includes("sk-secret"));
  assert.throws(() => new FakeTarget({ otherwise: ok("x", { after: -1 }) }), RangeError);
});
