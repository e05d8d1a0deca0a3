// Tests of the official client with a pool of replicas.
import assert from "node:assert/strict";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";

import OpenAI from "openai";
import { ConfigError, Gate, UnknownNameError } from "tidegate";

import { CHAT, MESSAGES, until } from "./support/provider-payloads.mjs";
import { json, upstream } from "./support/upstream.mjs";

// Sessions stay at a replica only if their common prefix is long.
const LONG = [{ role: "user", content: "what a session has in common ".repeat(200) }];
const SETTINGS = { slow_start: "none", poll: "50ms" };

/**
 * Returns a handler that acts as a vLLM server with the model `small`. The handler `chat` answers
 * all requests except those for health, models and metrics.
 */
const replica = (chat) => (exchange) => {
  if (exchange.path === "/health") return json({})(exchange);
  if (exchange.path === "/v1/models")
    return json({ object: "list", data: [{ id: "small", max_model_len: 4096 }] })(exchange);
  if (exchange.path === "/metrics") {
    exchange.response.end("vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n");
    return undefined;
  }
  return chat(exchange);
};

const servers = (t, count) => Promise.all(Array.from({ length: count }, () => upstream(t, replica(json(CHAT)))));
const calls = ({ exchanges }) => exchanges.filter(({ path }) => path === "/v1/chat/completions");
const client = (gate) => gate.wrap(new OpenAI({ baseURL: "http://llama/v1", apiKey: "k" }));
const ask = (sdk, session) =>
  sdk.chat.completions.create(
    { model: "small", messages: session ? LONG : MESSAGES },
    session && { headers: { "x-session-id": session } },
  );
const replicas = (gate) => gate.snapshot().targets.llama.replicas;
const urls = (gate) => replicas(gate).map(({ url }) => url);

describe("a pool", () => {
  test("calls go to all replicas", async (t) => {
    const all = await servers(t, 3);
    const gate = new Gate({
      targets: { llama: { pool: { replicas: all.map(({ url }) => `${url}/v1`), ...SETTINGS } } },
    });
    const sdk = client(gate);
    await Promise.all(Array.from({ length: 30 }, () => ask(sdk)));
    const counts = all.map((server) => calls(server).length);
    assert.ok(counts.every((count) => count > 0));
    assert.equal(
      counts.reduce((one, other) => one + other),
      30,
    );
    assert.match(gate.prometheus(), /tidegate_replica_in_choice\{replica="[^"]+",target="llama"\} 1/);
    await until(() => replicas(gate).every(({ models }) => models?.[0] === "small"));
    assert.equal((await sdk.models.list()).data[0].id, "small");
  });

  test("calls of a session go to one replica", async (t) => {
    const all = await servers(t, 3);
    // Long enough that no replica is suspected on a slow machine.
    const pool = { replicas: all.map(({ url }) => url), health: "none", poll: "none" };
    const gate = new Gate({ targets: { llama: { pool } } });
    const sdk = client(gate);
    // Until all replicas have listed their models, those that have are preferred.
    await ask(sdk);
    await until(() => replicas(gate).every(({ models }) => models?.[0] === "small"));
    const before = all.map((server) => calls(server).length);
    for (let n = 0; n < 10; n++) await ask(sdk, "mine");
    const counts = all.map((server, n) => calls(server).length - before[n]);
    assert.deepEqual(
      counts.toSorted((one, other) => one - other),
      [0, 0, 10],
    );
  });

  test("full replicas are skipped without using the retry budget", async (t) => {
    const [full, good] = await servers(t, 2);
    full.handler = replica(json({ error: { message: "full", code: 503 } }, 503));
    const gate = new Gate({
      targets: { llama: { pool: { replicas: [full.url, good.url], ...SETTINGS }, retry: { ratio: 0, reserve: 0 } } },
    });
    const sdk = client(gate);
    for (let n = 0; n < 20; n++) assert.equal((await ask(sdk)).choices[0].message.content, "hello");
    assert.equal(calls(good).length, 20);
  });

  test("replicas can change while calls are in flight", async (t) => {
    const [one, other] = await servers(t, 2);
    const gate = new Gate({ targets: { llama: { pool: {} }, openai: 8 } });
    const waits = ask(client(gate));
    await until(() => gate.snapshot().targets.llama.queue_depth === 1);
    gate.setReplicas("llama", [one.url]);
    await waits;
    gate.setReplicas("llama", new Set([{ url: other.url, weight: 2, models: "small" }]));
    await ask(client(gate));
    assert.deepEqual(
      [one, other].map((server) => calls(server).length),
      [1, 1],
    );
    const [left] = replicas(gate);
    assert.deepEqual([left.url, left.weight, left.models], [other.url, 2, ["small"]]);
    assert.throws(() => gate.setReplicas("lama", []), UnknownNameError);
    assert.throws(() => gate.setReplicas("openai", [one.url]), /it is not a pool/);
    assert.throws(
      () => gate.setReplicas("llama", [{ url: one.url, wieght: 2 }]),
      (error) => error instanceof ConfigError && /wieght: unknown key; did you mean "weight"/.test(error.message),
    );
    for (const wrong of [one.url, { url: one.url }])
      assert.throws(() => gate.setReplicas("llama", wrong), /pass a list/);
    assert.deepEqual(urls(gate), [other.url]);
  });

  test("records and slots name the replica", async (t) => {
    const [one] = await servers(t, 1);
    const gate = new Gate({ targets: { llama: { pool: [one.url] }, openai: 8 } });
    await ask(client(gate));
    assert.deepEqual(
      gate
        .calls()
        .at(-1)
        .attempts.map((attempt) => attempt.replica),
      [one.url],
    );
    assert.equal(await gate.slot("llama", (slot) => slot.replica), one.url);
    assert.equal(await gate.slot("openai", (slot) => slot.replica), null);
  });

  test("changes of the replica file apply", async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "tidegate-"));
    t.after(() => rmSync(folder, { recursive: true }));
    const [one, other] = await servers(t, 2);
    const file = join(folder, "replicas.json");
    writeFileSync(file, JSON.stringify({ replicas: [one.url] }));
    const gate = new Gate({ targets: { llama: { pool: { file, file_every: "100ms" } } } });
    await ask(client(gate));
    writeFileSync(`${file}.new`, other.url);
    renameSync(`${file}.new`, file);
    await until(() => urls(gate)[0] === other.url);
    await ask(client(gate));
    assert.deepEqual(
      [one, other].map((server) => calls(server).length),
      [1, 1],
    );
    assert.equal(gate.snapshot().targets.llama.replicas_problem, null);
  });
});
