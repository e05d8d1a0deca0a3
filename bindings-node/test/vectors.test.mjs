// Runs the shared vectors of configuration, targets, errors, estimates and backoff.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import * as tidegate from "tidegate";

import { until } from "./support/provider-payloads.mjs";
import { hangUp, json, stallAfter, upstream } from "./support/upstream.mjs";
import { bodyOf, casesOf, every, files, pieces } from "./support/vectors.mjs";

const exported = { ...tidegate };
const { ConfigError, Gate, RequestError, TidegateError } = exported;
const internal = createRequire(import.meta.url);
const { native } = internal("../dist/native.js");
const { errorFrom } = internal("../dist/errors.js");

const CHAT = "/v1/chat/completions";

test("vectors: every file is run by a test file", () => {
  const here = ["backoff", "config_errors", "errors", "estimate", "limits", "target_matching"];
  const there = ["classify", "fallback", "proxies", "request_facts", "retry_after", "sse", "streams", "urls"];
  assert.deepEqual(new Set(files()), new Set([...here, ...there]));
});

every("config_errors", ({ config, toml, errors }) => {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-"));
  const path = join(folder, "tidegate.toml");
  if (toml !== undefined) writeFileSync(path, toml);
  const lines = toml === undefined ? errors : errors.map((line) => line.replace("line ", `${path}:`));
  assert.throws(
    () => (toml === undefined ? new Gate(config) : Gate.fromFile(path)),
    (error) => {
      assert.ok(error instanceof ConfigError);
      assert.deepEqual([error.kind, error.message.split("\n")], ["config", lines]);
      return true;
    },
  );
  rmSync(folder, { recursive: true });
});

test("a path is not a configuration", () => {
  assert.throws(() => new Gate("tidegate.toml"), { name: "ConfigError", message: /must be a table; got the string/ });
});

every("target_matching", ({ config, requests }) => {
  const gate = new Gate(config);
  for (const { url, model, target } of requests) {
    assert.equal(gate.targetFor(url, model ?? undefined) ?? null, target, `${url} ${model}`);
  }
});

every("limits", ({ config, ...expected }) => {
  const seen = new Gate(config).snapshot();
  for (const kind of ["targets", "tools"]) {
    for (const [name, limit] of Object.entries(expected[kind])) {
      const { adaptive, limit: slots } = seen[kind][name];
      const adaptiveLimit = Object.fromEntries(Object.keys(limit).map((key) => [key, adaptive?.[key] ?? null]));
      assert.deepEqual({ ...adaptiveLimit, limit: slots }, limit, name);
    }
  }
});

test("calls count for the target that targetFor returns", async (t) => {
  const up = await upstream(t);
  const gate = new Gate({ targets: { small: { url: up.url, models: ["small-*"] }, all: { url: up.url } } });
  for (const model of ["small-1", "large"]) {
    await gate.fetch(up.url + CHAT, { method: "POST", body: JSON.stringify({ model }) });
    assert.equal(gate.calls().at(-1).target, gate.targetFor(up.url + CHAT, model));
  }
  assert.throws(
    () => gate.targetFor("https://not a URL/?key=secret"),
    (error) => error instanceof RequestError && !error.message.includes("secret"),
  );
});

every("errors", ({ error: given, class: name, status, retryable, body }) => {
  const { kind, message, reason, target, retry_after, queue_position } = given;
  const error = errorFrom(native.Gate.failure(kind, message, reason, target, retry_after, queue_position));
  assert.equal(error.constructor, exported[name]);
  assert.ok(error instanceof TidegateError && error.name === name);
  const expectedError = body.error;
  assert.equal(error.message, expectedError.message);
  assert.deepEqual([error.kind, error.reason], [kind, reason]);
  assert.deepEqual([error.status, error.retryable], [status, retryable]);
  assert.deepEqual(
    [error.target ?? null, error.retryAfter ?? null, error.queuePosition ?? null],
    [expectedError.target, expectedError.retry_after, expectedError.queue_position],
  );
});

/** Checks that a response equals the vector of the error with this code. */
async function assertResponseEquals(response, code) {
  const expected = casesOf("errors").find(({ body }) => body.error.code === code);
  const content = await response.json();
  assert.equal(response.status, expected.status);
  for (const name of ["content-type", "x-should-retry"]) {
    assert.equal(response.headers.get(name), expected.headers[name]);
  }
  // The call's number, and the rule that blocked it, are not part of the vectors.
  const { call, why, ...error } = content.error;
  assert.deepEqual(Object.keys(error), Object.keys(expected.body.error));
  if (code in REFUSALS) {
    assert.equal(typeof call, "number");
    assert.deepEqual(Object.keys(why).sort(), ["ahead", "expected", "rule", "since", "text", "waited"]);
  }
  assert.deepEqual(
    [content.type, content.error.type, content.error.code],
    [expected.body.type, expected.body.error.type, code],
  );
}

const REFUSALS = {
  no_slot: { on_full: "refuse" },
  queue_full: { queue: 0 },
  wait_budget: { wait: "1ms" },
  deadline: {},
};

for (const [code, settings] of Object.entries(REFUSALS)) {
  test(`rejection responses equal the vectors: ${code}`, async (t) => {
    const up = await upstream(t, stallAfter({ choices: [] }));
    const gate = new Gate({ targets: { up: { url: up.url, cap: 1, ...settings } } });
    const ask = (body) => gate.fetch(up.url + CHAT, { method: "POST", body: JSON.stringify(body) });
    const held = await ask({ model: "m", stream: true });
    const context = code === "deadline" ? { deadline: 0.02 } : {};
    await assertResponseEquals(await gate.run(context, () => ask({ model: "m" })), code);
    await held.body.cancel().catch(() => {});
  });
}

test("failure responses equal the vectors", async (t) => {
  const up = await upstream(t, hangUp);
  const gate = new Gate({ defaults: { retry: { attempts: 1 } } });
  // An SDK that would retry a rejection.
  const headers = { "x-stainless-lang": "js" };
  const ask = () => gate.fetch(up.url + CHAT, { method: "POST", headers, body: "{}" });
  await assertResponseEquals(await ask(), "transport");
  up.handler = json({}, 429, { "retry-after": "3600" });
  await (await ask()).text();
  await assertResponseEquals(await gate.run({ deadline: 60 }, ask), "cool_down");
  await gate.drain(0);
  await assertResponseEquals(await ask(), "draining");
});

every("estimate", async ({ path = CHAT, body, input, max_output }, up) => {
  const gate = new Gate();
  up.handler = json({ usage: { prompt_tokens: 7, completion_tokens: 5 } });
  await (await gate.fetch(up.url + path, { method: "POST", body: bodyOf(body) })).text();
  const [call] = gate.calls();
  assert.deepEqual([call.estimated_input_tokens, call.max_output_tokens], [input, max_output]);
  if (path === CHAT) assert.deepEqual([call.input_tokens, call.output_tokens], [7, 5]);
});

// Seconds. Tests wait for shorter backoffs and cancel the call in the first longer one.
const MAX_WAIT_MS = 20;

every("backoff", async ({ retry, retry_after, bounds }, up) => {
  const gate = new Gate({ defaults: { cap: 1, deadline: "7d", retry: { ...retry, reserve: 100 } } });
  up.handler = pieces([], retry_after === undefined ? {} : { "retry-after": retry_after }, 500);
  const long = bounds.findIndex(([, most]) => most > MAX_WAIT_MS);
  const checked = long < 0 ? bounds.length : long + 1;
  const caller = new AbortController();
  const call = gate.fetch(up.url + CHAT, { method: "POST", body: '{"model": "m"}', signal: caller.signal });
  if (long < 0) {
    assert.equal((await call).status, 500);
  } else {
    const retries = () =>
      Object.values(gate.snapshot().targets)
        .flatMap((target) => Object.values(target.retries))
        .reduce((sum, count) => sum + count, 0);
    await until(() => retries() >= checked);
    caller.abort();
    // A random backoff can be so short that further attempts are made before the abort.
    await assert.rejects(call, { name: "AbortError" });
  }
  await gate.drain();
  const slept = gate.calls()[0].attempts.map((attempt) => attempt.backoff);
  if (long < 0) assert.equal(slept.pop(), null);
  assert.ok(slept.length >= checked);
  for (const [at, backoff] of slept.entries()) {
    const [least, most] = bounds[at];
    assert.ok(least <= backoff * 1000 && backoff * 1000 <= most, `${backoff} s after failure ${at + 1}`);
  }
});
