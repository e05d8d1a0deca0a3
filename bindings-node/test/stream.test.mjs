// Tests of response streams: chunks are read on demand, and an early end is never an AbortError.
import assert from "node:assert/strict";
import { test } from "node:test";
import zlib from "node:zlib";

import { Gate, TidegateError, Truncated } from "tidegate";

import { CHAT_STREAM, delta, inFlight, ONCE } from "./support/provider-payloads.mjs";
import { event, events, upstream } from "./support/upstream.mjs";

const ask = (gate, up, path = "/v1/chat/completions") =>
  gate.fetch(`${up.url}${path}`, { method: "POST", body: JSON.stringify({ model: "m", stream: true }) });

test("each event is delivered as it arrives", async (t) => {
  let response;
  const up = await upstream(t, (exchange) => {
    response = exchange.response;
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(event(CHAT_STREAM[0]));
  });
  const gate = new Gate();
  const reader = (await ask(gate, up)).body.getReader();
  const decoder = new TextDecoder();
  for (const [at, line] of CHAT_STREAM.entries()) {
    if (at > 0) response.write(event(line));
    assert.equal(decoder.decode((await reader.read()).value), event(line));
  }
  response.end();
  assert.equal((await reader.read()).done, true);
  assert.equal(inFlight(gate), 0);
});

test("a slow reader slows the sender, because nothing is read ahead", async (t) => {
  const chunk = Buffer.alloc(64 * 1024);
  let sent = 0;
  const up = await upstream(t, ({ response }) => {
    response.writeHead(200);
    const more = () => {
      while (sent < 16384) {
        sent++;
        if (!response.write(chunk)) return response.once("drain", more);
      }
      response.end();
    };
    more();
  });
  const response = await new Gate().fetch(up.url);
  const reader = response.body.getReader();
  await reader.read();
  // The sender continues until the socket buffers are full, and then stops far from the end of its
  // gigabyte.
  for (let before = -1; before !== sent; ) {
    before = sent;
    for (let turn = 0; turn < 200; turn++) await new Promise(setImmediate);
  }
  assert.ok(sent < 1024, `${sent} chunks`);
  await reader.cancel();
});

test("a stream ends with the end of its encoding", async (t) => {
  let exchange;
  const up = await upstream(t, (came) => {
    exchange = came;
    came.response.writeHead(200, { "content-encoding": "br" });
    came.response.write(Buffer.concat([zlib.brotliCompressSync("hello"), Buffer.from("junk")]));
  });
  const gate = new Gate();
  assert.equal(await (await gate.fetch(up.url)).text(), "hello");
  assert.equal(inFlight(gate), 0);
  await exchange.closed;
});

test("a reader's own buffer is filled", async (t) => {
  const up = await upstream(t, events(...CHAT_STREAM));
  const reader = (await ask(new Gate(), up)).body.getReader({ mode: "byob" });
  let text = "";
  for (let buffer = new ArrayBuffer(10); ; ) {
    const { done, value } = await reader.read(new Uint8Array(buffer));
    if (done) break;
    text += Buffer.from(value).toString();
    buffer = value.buffer;
  }
  assert.equal(text, CHAT_STREAM.map(event).join(""));
});

test("a broken stream is an error, and not an AbortError", async (t) => {
  const up = await upstream(t, ({ response }) => {
    response.writeHead(200, { "content-type": "application/json", "content-length": "100000" });
    response.write("{".padEnd(70000, " "));
    setImmediate(() => response.destroy());
  });
  const response = await new Gate(ONCE).fetch(up.url);
  await assert.rejects(response.text(), (error) => {
    assert.equal(error.constructor, TypeError);
    assert.ok(error.cause instanceof TidegateError);
    assert.notEqual(error.name, "AbortError");
    assert.notEqual(error.cause.name, "AbortError");
    return true;
  });
});

test("a stream without its final event is truncated after its chunks", async (t) => {
  const up = await upstream(t, events(delta("hel"), delta("lo")));
  const gate = new Gate();
  const response = await ask(gate, up);
  let text = "";
  await assert.rejects(
    (async () => {
      for await (const chunk of response.body) text += Buffer.from(chunk).toString();
    })(),
    (error) => error.cause instanceof Truncated && error.cause.kind === "truncated",
  );
  assert.equal(text, event(delta("hel")) + event(delta("lo")));
  assert.equal(inFlight(gate), 0);
});

test("two hundred concurrent streams complete", async (t) => {
  const up = await upstream(t, events(...CHAT_STREAM));
  const gate = new Gate({ defaults: { cap: 200 } });
  const texts = await Promise.all(Array.from({ length: 200 }, async () => (await ask(gate, up)).text()));
  for (const text of texts) assert.equal(text, CHAT_STREAM.map(event).join(""));
  assert.equal(inFlight(gate), 0);
});
