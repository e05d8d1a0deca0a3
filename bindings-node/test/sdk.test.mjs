// Tests of the official clients.
import assert from "node:assert/strict";
import { test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import OpenAI, { AzureOpenAI } from "openai";
import { Gate, TidegateError } from "tidegate";

import {
  CHAT,
  CHAT_STREAM,
  delta,
  inFlight,
  MESSAGE,
  MESSAGES,
  ONCE,
  queued,
  until,
} from "./support/provider-payloads.mjs";
import { event, events, hangUp, json, never, stallAfter, upstream } from "./support/upstream.mjs";

const openai = (up, options = {}) => new OpenAI({ baseURL: `${up.url}/v1`, apiKey: "k", ...options });
const ask = (client, more = {}, options = {}) =>
  client.chat.completions.create({ model: "small", messages: MESSAGES, ...more }, options);

const RETRYABLE_HEADERS = { "x-should-retry": "true", "retry-after": "0" };

test("a client that another client's fetch calls keeps its own fetch", async (t) => {
  const up = await upstream(t, json(CHAT));
  const used = [];
  const gate = new Gate({ defaults: { cap: 1, queue: 0 } });
  const client = (name, before) => {
    const fetch = async (...request) => {
      used.push(name);
      await before?.();
      return await globalThis.fetch(...request);
    };
    return gate.wrap(openai(up, { fetch }));
  };
  const guard = client("guard");
  await ask(client("main", () => ask(guard)));
  assert.deepEqual([used, up.exchanges.length], [["main", "guard"], 2]);
});

test("wrap returns a copy with the client's settings and without its retries", async (t) => {
  const up = await upstream(t, json(CHAT, 200, { "x-request-id": "r1" }));
  const original = openai(up, { organization: "o", timeout: 7000, maxRetries: 5, defaultHeaders: { "x-mine": "1" } });
  const { fetch } = original;
  const gate = new Gate();
  const client = gate.wrap(original);
  assert.ok(client instanceof OpenAI);
  assert.notEqual(client, original);
  assert.deepEqual([original.maxRetries, original.fetch], [5, fetch]);
  assert.deepEqual([client.maxRetries, client.timeout, client.organization], [0, 7000, "o"]);
  const answer = await ask(client);
  assert.deepEqual([answer.id, answer._request_id], [CHAT.id, "r1"]);
  await ask(client.withOptions({ timeout: 5000 }));
  await ask(original);
  assert.equal(up.exchanges[0].headers["x-mine"], "1");
  assert.equal(Object.values(gate.snapshot().targets)[0].attempts, 2);
});

for (const [options, attempts] of [
  [{}, 3],
  [{ maxRetries: 0 }, 1],
  [{ maxRetries: 6 }, 7],
]) {
  test(`the gate makes ${attempts} attempts for a client with ${JSON.stringify(options)}`, async (t) => {
    const up = await upstream(t, json({}, 500));
    const defaults = { retry: { attempts: 3, base: "1ms", max: "2ms" } };
    const client = new Gate({ defaults }).wrap(openai(up, options));
    await assert.rejects(ask(client), OpenAI.InternalServerError);
    assert.equal(up.exchanges.length, attempts);
    await assert.rejects(ask(new Gate({ defaults }).wrap(client)), OpenAI.InternalServerError);
    assert.equal(up.exchanges.length, 2 * attempts);
  });
}

test("retries are switched off at the client and not at one request of its copy", async (t) => {
  const up = await upstream(t, json({}, 500));
  const gate = new Gate({ defaults: { retry: { attempts: 3, base: "1ms", max: "2ms" } } });
  const client = openai(up);
  const body = { model: "small", messages: [{ role: "user", content: "hello" }] };
  const withRetries = gate.wrap(client).chat.completions.create(body, { maxRetries: 0 });
  await assert.rejects(withRetries, OpenAI.InternalServerError);
  assert.equal(up.exchanges.length, 3);
  await assert.rejects(ask(gate.wrap(client.withOptions({ maxRetries: 0 }))), OpenAI.InternalServerError);
  assert.equal(up.exchanges.length, 4);
});

test("wrap keeps the settings of an Azure client", async (t) => {
  const up = await upstream(t, json(CHAT));
  const client = new Gate().wrap(
    new AzureOpenAI({ endpoint: up.url, apiKey: "k", apiVersion: "2024-10-21", deployment: "mine" }),
  );
  assert.ok(client instanceof AzureOpenAI);
  await ask(client);
  assert.equal(up.exchanges[0].path, "/openai/deployments/mine/chat/completions?api-version=2024-10-21");
  assert.equal(up.exchanges[0].headers["api-key"], "k");
});

test("wrap keeps a function as the key of an older openai client", () => {
  class Client {
    constructor(options) {
      this._options = options;
      this.apiKey = typeof options.apiKey === "string" ? options.apiKey : "Missing Key";
      this.fetch = options.fetch ?? fetch;
    }

    // As in openai 5.19 to 6.28.
    withOptions(options) {
      return new Client({ ...this._options, fetch: this.fetch, apiKey: this.apiKey, ...options });
    }
  }
  for (const apiKey of [async () => "k", "k"]) {
    for (const mode of ["enforce", "off"]) {
      const client = new Client({ apiKey });
      const copy = new Gate({ mode }).wrap(client);
      assert.notEqual(copy, client);
      assert.equal(copy._options.apiKey, apiKey);
    }
  }
});

test("only enforce mode disables the retries of the SDK", () => {
  const client = new OpenAI({ apiKey: "k", maxRetries: 5 });
  assert.equal(new Gate({ mode: "observe" }).wrap(client).maxRetries, 5);
  const off = new Gate({ mode: "off" }).wrap(client);
  assert.deepEqual([off.maxRetries, off.fetch], [5, client.fetch]);
});

test("wrap rejects other objects", () => {
  const gate = new Gate();
  for (const other of [{}, new Map(), null, undefined, "openai", { withOptions() {} }]) {
    assert.throws(() => gate.wrap(other), { name: "TypeError", message: /gate\.fetch/ });
  }
});

test("openai: streams and responses complete", async (t) => {
  const up = await upstream(t, events(...CHAT_STREAM));
  const client = new Gate().wrap(openai(up));
  let text = "";
  for await (const chunk of await ask(client, { stream: true })) text += chunk.choices[0]?.delta.content ?? "";
  assert.equal(text, "hello");
  const completed = { type: "response.completed", response: { id: "resp_1", status: "completed", output: [] } };
  up.handler = events({ type: "response.output_text.delta", delta: "hi" }, completed);
  const types = [];
  for await (const { type } of await client.responses.create({ model: "small", input: "x", stream: true })) {
    types.push(type);
  }
  assert.deepEqual(types, ["response.output_text.delta", "response.completed"]);
});

test("openai: a file is uploaded", async (t) => {
  const up = await upstream(t, json({ text: "hello" }));
  const client = new Gate().wrap(openai(up));
  const file = new File(["RIFF"], "a.wav");
  assert.equal((await client.audio.transcriptions.create({ file, model: "whisper-1" })).text, "hello");
  assert.match(up.exchanges[0].body.toString(), /filename="a.wav"[\s\S]*RIFF/);
});

test("anthropic: messages and streams complete", async (t) => {
  const up = await upstream(t, json(MESSAGE));
  const client = new Gate().wrap(new Anthropic({ baseURL: up.url, apiKey: "k" }));
  assert.equal(client.maxRetries, 0);
  const request = { model: "claude", max_tokens: 9, messages: MESSAGES };
  assert.equal((await client.messages.create(request)).id, MESSAGE.id);
  up.handler = ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const data of [
      { type: "message_start", message: { ...MESSAGE, content: [], stop_reason: null } },
      { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
      { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "hello" } },
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 2 } },
      { type: "message_stop" },
    ]) {
      response.write(`event: ${data.type}\n${event(data)}`);
    }
    response.end();
  };
  const message = await client.messages.stream(request).finalMessage();
  assert.equal(message.content[0].text, "hello");
});

test("an error response of the provider is returned after the gate's retries", async (t) => {
  const up = await upstream(t, json({ error: { message: "slow down", code: "x" } }, 429, RETRYABLE_HEADERS));
  const gate = new Gate({ defaults: { retry: { attempts: 3 } } });
  for (const client of [gate.wrap(openai(up)), openai(up, { fetch: gate.fetch })]) {
    const before = up.exchanges.length;
    await assert.rejects(ask(client), (error) => error instanceof OpenAI.RateLimitError && error.code === "x");
    // Only the gate retries. The SDK does not, wrapped or not.
    assert.equal(up.exchanges.length - before, 3);
  }
});

test("a broken connection is not retried by the SDK", async (t) => {
  const up = await upstream(t, hangUp);
  const gate = new Gate(ONCE);
  await assert.rejects(ask(gate.wrap(openai(up))), (error) => {
    assert.ok(error instanceof OpenAI.APIConnectionError);
    assert.ok(error.cause.cause instanceof TidegateError);
    return true;
  });
  assert.equal(up.exchanges.length, 1);
  // An SDK that still retries gets a response, because it would retry a rejection.
  await assert.rejects(ask(openai(up, { fetch: gate.fetch })), (error) => {
    assert.ok(error instanceof OpenAI.InternalServerError);
    assert.equal(error.code, "transport");
    return true;
  });
  assert.equal(up.exchanges.length, 2);
  const anthropic = new Anthropic({ baseURL: up.url, apiKey: "k", fetch: gate.fetch });
  const request = { model: "claude", max_tokens: 9, messages: MESSAGES };
  await assert.rejects(anthropic.messages.create(request), Anthropic.InternalServerError);
  assert.equal(up.exchanges.length, 3);
  // In mode observe, the SDK keeps its retries.
  const watched = openai(up, { fetch: new Gate({ mode: "observe", ...ONCE }).fetch, maxRetries: 1 });
  await assert.rejects(ask(watched), OpenAI.APIConnectionError);
  assert.equal(up.exchanges.length, 5);
});

test("a rejected call is a status error with the reason", async (t) => {
  const up = await upstream(t, stallAfter(delta("hel")));
  const gate = new Gate({ defaults: { cap: 1, queue: 0 } });
  const client = gate.wrap(openai(up));
  const held = await ask(client, { stream: true });
  for (const refused of [client, openai(up, { fetch: gate.fetch })]) {
    await assert.rejects(ask(refused), (error) => {
      assert.ok(error instanceof OpenAI.RateLimitError);
      assert.deepEqual([error.status, error.code, error.error.queue_position], [429, "queue_full", 0]);
      assert.equal(error.headers.get("x-should-retry"), "false");
      return true;
    });
  }
  held.controller.abort();
  assert.equal(up.exchanges.length, 1);
});

test("a truncated stream is an error, and not an AbortError", async (t) => {
  const up = await upstream(t, events(delta("hel"), delta("lo")));
  let text = "";
  await assert.rejects(
    (async () => {
      const client = new Gate().wrap(openai(up));
      for await (const chunk of await ask(client, { stream: true })) text += chunk.choices[0].delta.content;
    })(),
    (error) => error.cause.kind === "truncated",
  );
  assert.equal(text, "hello");
});

test("openai: aborts before the head and in a stream reject", async (t) => {
  const up = await upstream(t, never);
  const gate = new Gate();
  const client = gate.wrap(openai(up));
  const control = new AbortController();
  const call = ask(client, {}, { signal: control.signal });
  const exchange = await up.exchange();
  control.abort();
  await assert.rejects(call, OpenAI.APIUserAbortError);
  await exchange.closed;
  up.handler = stallAfter(delta("hel"));
  const stream = await ask(client, { stream: true });
  for await (const _ of stream) stream.controller.abort();
  await (await up.exchange(1)).closed;
  up.handler = stallAfter(delta("hel"));
  for await (const _ of await ask(client, { stream: true })) break;
  await (await up.exchange(2)).closed;
  assert.equal(inFlight(gate), 0);
});

test("openai: the timeout of the SDK ends a call", async (t) => {
  const up = await upstream(t, never);
  const gate = new Gate();
  await assert.rejects(ask(gate.wrap(openai(up, { timeout: 50 }))), OpenAI.APIConnectionTimeoutError);
  await (await up.exchange()).closed;
  assert.equal(up.exchanges.length, 1);
});

test("openai: a wrapped client throws its timeout error if no replica of a pool accepts calls", async () => {
  const gate = new Gate({ targets: { llama: { pool: ["http://127.0.0.1:9"] } } });
  const client = gate.wrap(new OpenAI({ baseURL: "http://llama/v1", apiKey: "k" }));
  // The first call also waits between its attempts, until the gate has found the replica down.
  await assert.rejects(ask(client, {}, { timeout: 2000 }));
  await assert.rejects(ask(client, {}, { timeout: 2000 }), OpenAI.APIConnectionTimeoutError);
  const { refused } = gate.snapshot().targets.llama.tenants.default;
  assert.ok(refused.client_timeout >= 1, "the gate ended the wait, before the timer of the SDK");
});

test("openai: a wait ends with a response before the timeout of the SDK, so that the SDK does not retry", async (t) => {
  const up = await upstream(t, stallAfter(delta("hel")));
  const gate = new Gate({ defaults: { cap: 1 } });
  const held = await ask(gate.wrap(openai(up)), { stream: true });
  const waiting = ask(openai(up, { fetch: gate.fetch }), {}, { timeout: 2000 });
  await until(() => queued(gate) === 1);
  await assert.rejects(waiting, (error) => error.status === 504 && error.code === "client_timeout");
  held.controller.abort();
  assert.equal(up.exchanges.length, 1);
});
