// Runs the shared vectors of provider responses on calls through a gate.
import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { Gate } from "tidegate";

import { bodyOf, every, onlyTarget, pieces, read, splits } from "./support/vectors.mjs";

// The local clock of the cases: Fri, 21 Nov 2025 08:48:00 GMT.
const UNIX_TIME = 1763714880;
// Longer delays affect the call, but not the target.
const LONGEST_MS = 24 * 3600 * 1000;
// Seconds. Shorter delays are waited for. Delays between the two are neither waited for nor cut by
// a deadline, because machines may be slow.
const SHORT_MS = 100;
const LONG_MS = 10_000;

const CHAT = "/v1/chat/completions";
const EVENTS = { "content-type": "text/event-stream" };
// The shortest complete stream of each dialect.
const ENDS = {
  openai_chat: 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
  openai_completions: 'data: {"choices":[{"index":0,"text":"","finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
  openai_responses: 'data: {"type":"response.completed","response":{}}\n\n',
  anthropic_messages: 'event: message_stop\ndata: {"type":"message_stop"}\n\n',
  gemini: 'data: {"candidates":[{"finishReason":"STOP"}]}\n\n',
};

/**
 * Makes a call that the server fails with `handler`, and checks how the gate classifies the
 * failure. `safe` is whether the method allows a retry. `rounded` is the number of seconds by which
 * a delay may exceed the expected one.
 */
async function assertOutcome(up, { handler, data, expected, rounded = 0 }, path = CHAT, safe = true) {
  const { class: kind, retryable, never_executed, delay_ms: delay } = expected;
  // A full target is full for other calls too, even if this one must not be repeated.
  const isFull = ["rate_limited", "overloaded"].includes(kind);
  const cooled = (retryable || isFull) && delay !== null && delay <= LONGEST_MS;
  const tooLong = delay !== null && delay > LONG_MS;
  const allowed = delay !== null && SHORT_MS < delay && delay <= LONG_MS ? 1 : 2;
  const [why, attempts] = !retryable
    ? ["final", 1]
    : !safe && !never_executed
      ? ["unsafe", 1]
      : tooLong
        ? ["deadline", 1]
        : ["attempts", allowed];

  const gate = new Gate({ defaults: { retry: { attempts: allowed, base: "1ms", max: "1ms" } } });
  up.handler = handler;
  const before = up.exchanges.length;
  const began = performance.now();
  const ask = () =>
    gate.run({ deadline: tooLong ? Math.min(delay / 2000, 600) : 600 }, () =>
      gate.fetch(up.url + path, { method: "POST", body: '{"model": "m", "stream": true}' }),
    );
  const response = await ask();
  assert.deepEqual(Buffer.from(await response.arrayBuffer()), data);
  assert.equal(response.headers.get("x-should-retry"), "false");
  assert.equal(up.exchanges.length - before, attempts);
  const target = onlyTarget(gate);
  assert.deepEqual([target.gave_up, target.failed_attempts], [{ [why]: 1 }, { [kind]: attempts }]);
  assert.deepEqual(target.cool_downs, cooled ? { retry_after: attempts } : {});
  if (!cooled) return;
  const left = [target.cool_for ?? 0];
  if (tooLong) {
    // Another call is rejected at once, with a Retry-After.
    const refused = await ask();
    const { error } = await refused.json();
    assert.deepEqual([refused.status, error.code], [429, "cool_down"]);
    left.push(error.retry_after);
  }
  const least = (delay - (performance.now() - began)) / 1000;
  const most = delay / 1000 + Math.min(delay / 10_000, 1) + 0.02 + rounded;
  for (const seconds of left) assert.ok(least <= seconds && seconds <= most, `${least} <= ${seconds} <= ${most}`);
  assert.equal(up.exchanges.length - before, attempts);
}

every("classify", async ({ name, status, headers, body, verdict }, up) => {
  let data = bodyOf(body);
  let handler = pieces([data], headers, status);
  let path = CHAT;
  if (status === undefined) {
    // A stream whose first event is an error.
    data = Buffer.from(`event: error\ndata: ${data}\n\n`);
    handler = pieces([data], EVENTS);
    path = name.includes("Responses") ? "/v1/responses" : CHAT;
  } else if (status < 400) {
    // A redirect is not a failure. Without a location, fetch does not follow it.
    const gate = new Gate();
    up.handler = handler;
    assert.equal((await gate.fetch(up.url + path, { method: "POST", body: "{}" })).status, status);
    assert.deepEqual(onlyTarget(gate).failed_attempts, {});
    return;
  }
  const failing = { handler, data, expected: verdict };
  await assertOutcome(up, failing, path);
  await assertOutcome(up, failing, "/v1/made/up", false);
});

every("retry_after", async ({ name, wall = UNIX_TIME, headers: given = {}, body, delay_ms }, up) => {
  const headers = { ...given };
  let rounded = 0;
  if (headers.date === undefined) {
    headers.date = new Date(wall * 1000).toUTCString();
  } else if (name === "date beside a broken Date") {
    // A time relative to this machine's clock, rounded up to whole seconds.
    const ahead = Date.parse(headers["retry-after"]) - wall * 1000;
    headers["retry-after"] = new Date(Math.ceil(Date.now() / 1000) * 1000 + ahead).toUTCString();
    rounded = 1;
  }
  const data = bodyOf(body);
  const expected = { class: "rate_limited", retryable: true, never_executed: true, delay_ms };
  await assertOutcome(up, { handler: pieces([data], headers, 429), data, expected, rounded });
});

every("request_facts", async ({ method = "POST", path, headers = {}, body, facts }, up) => {
  const { route, dialect, model, stream, repeatable } = facts;
  const known = dialect !== "other";
  const gate = new Gate({ defaults: { retry: { attempts: 2, base: "1ms", max: "1ms" } } });
  const outcome = async (handler) => {
    up.handler = handler;
    await read(gate.fetch(up.url + path, { method, headers, body: body === undefined ? undefined : bodyOf(body) }));
    return gate.calls().at(-1)?.outcome ?? "beside";
  };

  const before = up.exchanges.length;
  const failed = await outcome(pieces([], {}, 500));
  assert.equal(up.exchanges.length - before, repeatable ? 2 : 1);
  assert.equal(failed, route === "inference" ? "failed" : "beside");
  if (route !== "inference") return;
  assert.equal(gate.calls().at(-1).model, model);
  // Without a content type, the response to a streaming request is read as a stream. It has no end,
  // or is a JSON body.
  assert.equal(await outcome(pieces(["{}\n"])), known && stream ? "truncated" : "completed");
  for (const [name, end] of Object.entries(ENDS)) {
    const choices = ["openai_chat", "openai_completions"];
    const ends = !known || name === dialect || (choices.includes(name) && choices.includes(dialect));
    assert.equal(await outcome(pieces([end], EVENTS)), ends ? "completed" : "truncated", name);
  }
});

// Bytes pass unchanged and the end is detected, wherever the body is cut into chunks.
every("sse", async ({ bytes, events }, up) => {
  // An event with an error makes the response a failed one, although it is complete.
  const outcome = events.some(({ data }) => data.includes('"error": {\n')) ? "failed" : "completed";
  const before = Buffer.concat([Buffer.from(bytes, "latin1"), Buffer.from("\n\n")]);
  const end = Buffer.from(ENDS.openai_chat);
  // Failures start cool-downs, which other tests check.
  const ways = splits(before, outcome === "failed" ? 1 : 25);
  const gate = new Gate({ defaults: { retry: { attempts: 1 } } });
  const client = gate.wrap(new OpenAI({ baseURL: `${up.url}/v1`, apiKey: "k" }));
  for (const chunks of ways) {
    up.handler = pieces([...chunks, end], EVENTS);
    const ask = client.chat.completions.create({ model: "m", messages: [], stream: true });
    const { data, whole } = await read(ask.asResponse());
    assert.deepEqual([data, whole], [Buffer.concat([before, end]), true], String(chunks));
    assert.equal(gate.calls().at(-1).outcome, outcome, String(chunks));
  }
});

/** Makes a request in the format of a provider (`dialect`), with the wrapped client of its SDK. */
function ask(gate, up, { dialect, stream = true }) {
  const options = { apiKey: "k", baseURL: dialect === "anthropic_messages" ? up.url : `${up.url}/v1` };
  const openai = () => gate.wrap(new OpenAI(options));
  switch (dialect) {
    case "openai_chat":
      return openai().chat.completions.create({ model: "m", messages: [], stream }).asResponse();
    case "openai_completions":
      return openai().completions.create({ model: "m", prompt: "", stream }).asResponse();
    case "openai_responses":
      return openai().responses.create({ model: "m", input: "", stream }).asResponse();
    case "anthropic_messages":
      return gate
        .wrap(new Anthropic(options))
        .messages.create({ model: "m", max_tokens: 1, messages: [], stream })
        .asResponse();
    case "gemini":
      return gate.fetch(`${up.url}/v1beta/models/m:${stream ? "streamGenerateContent" : "generateContent"}`, {
        method: "POST",
        body: "{}",
      });
    default:
      return gate.fetch(`${up.url}/v1/embeddings`, { method: "POST", body: JSON.stringify({ model: "m", stream }) });
  }
}

every("streams", async (one, up) => {
  const { body, headers = { "content-type": "text/event-stream; charset=utf-8" }, signals, end } = one;
  const content = Array.isArray(body) ? Buffer.from(body.map((line) => `${line}\n`).join("")) : bodyOf(body);
  // A fetch decodes bodies, so the body must be encoded here.
  const sent = headers["content-encoding"] === "gzip" ? gzipSync(content) : content;
  const usage = signals.find((signal) => signal.usage)?.usage;
  for (const chunks of splits(sent, 8)) {
    const how = chunks.map((chunk) => chunk.length).join(" ");
    // A separate gate, because failures start a cool-down of the target.
    const gate = new Gate({ defaults: { retry: { attempts: 1 } } });
    up.handler = pieces(chunks, headers);
    const { data, whole } = await read(ask(gate, up, one));
    assert.deepEqual([data, whole], [content, end !== "truncated"], how);
    const [call] = gate.calls();
    assert.equal(call.outcome, end === "complete" ? "completed" : end, how);
    const [attempt] = call.attempts;
    assert.equal(attempt.first_token_at !== null, signals.includes("first_token"), how);
    assert.deepEqual([call.input_tokens, call.output_tokens], [usage?.input ?? null, usage?.output ?? null], how);
  }
});
