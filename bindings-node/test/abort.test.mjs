// Tests that aborting a call ends the upstream exchange, releases the slot and rejects with the
// signal's reason.
import assert from "node:assert/strict";
import { test } from "node:test";
import zlib from "node:zlib";

import { Gate } from "tidegate";

import { CHAT, delta, inFlight, queued, until } from "./support/provider-payloads.mjs";
import { json, never, stallAfter, upstream } from "./support/upstream.mjs";

const reason = new Error("enough");
const post = (body = {}) => ({
  method: "POST",
  body: JSON.stringify({ model: "m", ...body }),
  headers: { "content-type": "application/json" },
});

/**
 * Makes a call to a server that sends one chunk of the response and then nothing more. Returns the
 * response and its reader, after the reader has read that chunk.
 */
async function stalled(up, gate, signal) {
  up.handler = stallAfter(delta("hel"));
  const response = await gate.fetch(`${up.url}/v1/chat/completions`, { ...post({ stream: true }), signal });
  const reader = response.body.getReader();
  await reader.read();
  return { response, reader };
}

test("a call with an aborted signal is not sent", async (t) => {
  const up = await upstream(t);
  const gate = new Gate();
  await assert.rejects(gate.fetch(up.url, { signal: AbortSignal.abort(reason) }), (e) => e === reason);
  await assert.rejects(gate.fetch(up.url, { signal: AbortSignal.abort() }), { name: "AbortError" });
  await assert.rejects(gate.fetch(new Request(up.url, { signal: AbortSignal.abort() })), { name: "AbortError" });
  const body = new ReadableStream({ type: "bytes" });
  const init = { method: "POST", body, duplex: "half", signal: AbortSignal.abort(reason) };
  await assert.rejects(gate.fetch(up.url, init), (e) => e === reason);
  assert.equal(up.exchanges.length, 0);
});

test("a call with an aborted signal cancels its body", async (t) => {
  const up = await upstream(t);
  for (const fetch of [new Gate().fetch, globalThis.fetch]) {
    const cancelled = [];
    const body = new ReadableStream({ cancel: (reason) => void cancelled.push(reason) });
    const call = fetch(up.url, { method: "POST", body, duplex: "half", signal: AbortSignal.abort(reason) });
    await assert.rejects(call, reason);
    assert.deepEqual(cancelled, [reason]);
  }
});

test("a signal of another library aborts a call, with an AbortError if it has no reason", async (t) => {
  const up = await upstream(t, never);
  const gate = new Gate();
  for (const early of [true, false]) {
    const signal = Object.assign(new EventTarget(), { aborted: early });
    const call = gate.fetch(up.url, { ...post(), signal });
    if (!early) {
      await up.exchange();
      signal.dispatchEvent(new Event("abort"));
    }
    await assert.rejects(call, { name: "AbortError" });
    await until(() => inFlight(gate) === 0);
  }
});

test("an abort before the head releases the slot", async (t) => {
  const up = await upstream(t, never);
  const [gate, control] = [new Gate(), new AbortController()];
  const call = gate.fetch(up.url, { ...post(), signal: control.signal });
  const exchange = await up.exchange();
  control.abort(reason);
  await assert.rejects(call, (e) => e === reason);
  await exchange.closed;
  await until(() => inFlight(gate) === 0);
});

test("the signal of a Request aborts the call", async (t) => {
  const up = await upstream(t, never);
  const [gate, control] = [new Gate(), new AbortController()];
  const call = gate.fetch(new Request(up.url, { signal: control.signal }));
  const exchange = await up.exchange();
  control.abort(reason);
  await assert.rejects(call, (e) => e === reason);
  await exchange.closed;
});

test("an abort rejects a pending read", async (t) => {
  const up = await upstream(t);
  const [gate, control] = [new Gate(), new AbortController()];
  const { reader } = await stalled(up, gate, control.signal);
  const pull = reader.read();
  control.abort(reason);
  await assert.rejects(pull, (e) => e === reason);
  await assert.rejects(reader.closed, (e) => e === reason);
  await up.exchanges[0].closed;
  await until(() => inFlight(gate) === 0);
});

test("an abort in a stream without a pending read ends the exchange", async (t) => {
  const up = await upstream(t);
  const [gate, control] = [new Gate(), new AbortController()];
  const { reader } = await stalled(up, gate, control.signal);
  control.abort();
  await up.exchanges[0].closed;
  await assert.rejects(reader.read(), { name: "AbortError" });
  await until(() => inFlight(gate) === 0);
});

test("an abort before the body is used ends the exchange", async (t) => {
  const up = await upstream(t, stallAfter(delta("hel")));
  const [gate, control] = [new Gate(), new AbortController()];
  const init = { ...post({ stream: true }), signal: control.signal };
  const response = await gate.fetch(`${up.url}/v1/chat/completions`, init);
  control.abort(reason);
  await up.exchanges[0].closed;
  await assert.rejects(response.text(), (e) => e === reason);
});

const wholeBodies = {
  plain: json(CHAT, 200, { "content-type": "multipart/form-data; boundary=x" }),
  encoded: ({ response }) => {
    const headers = { "content-type": "multipart/form-data; boundary=x", "content-encoding": "gzip" };
    response.writeHead(200, headers).end(zlib.gzipSync(JSON.stringify(CHAT)));
  },
};
const reads = {
  text: (response) => response.text(),
  json: (response) => response.json(),
  arrayBuffer: (response) => response.arrayBuffer(),
  blob: (response) => response.blob(),
  formData: (response) => response.formData(),
  body: (response) => response.body.getReader().read(),
  "a reader's own buffer": (response) => response.body.getReader({ mode: "byob" }).read(new Uint8Array(8)),
  "the text of a clone": (response) => response.clone().text(),
  "the blob of a clone": (response) => response.clone().blob(),
};

for (const [kind, answer] of Object.entries(wholeBodies)) {
  for (const [name, read] of Object.entries(reads)) {
    test(`an abort after a whole response prevents reading it: ${kind}, ${name}`, async (t) => {
      const up = await upstream(t, answer);
      const [gate, control] = [new Gate(), new AbortController()];
      const response = await gate.fetch(up.url, { ...post(), signal: control.signal });
      control.abort(reason);
      await assert.rejects(read(response), (e) => e === reason);
    });
  }
}

test("an abort between the hops of a redirect rejects", async (t) => {
  const control = new AbortController();
  const up = await upstream(t, ({ path, response }) => {
    if (path === "/end") return;
    response.writeHead(302, { location: "/end" }).end();
  });
  const gate = new Gate();
  const call = gate.fetch(up.url, { signal: control.signal });
  const exchange = await up.exchange(1);
  control.abort(reason);
  await assert.rejects(call, (e) => e === reason);
  await exchange.closed;
  // The same with an abort before the next hop is sent, which raises no event later.
  const late = new AbortController();
  const { addEventListener } = late.signal;
  late.signal.addEventListener = function (...listener) {
    addEventListener.apply(this, listener);
    // The abort happens while the response of the first hop is processed.
    this.removeEventListener = () => late.abort(reason);
  };
  await assert.rejects(gate.fetch(up.url, { signal: late.signal }), (e) => e === reason);
  assert.equal(up.exchanges.filter(({ path }) => path === "/end").length, 1);
});

test("a clone is aborted with its response", async (t) => {
  const up = await upstream(t, stallAfter(delta("hel")));
  const [gate, control] = [new Gate(), new AbortController()];
  const init = { ...post({ stream: true }), signal: control.signal };
  const response = await gate.fetch(`${up.url}/v1/chat/completions`, init);
  const texts = [response.clone().text(), response.text()];
  control.abort(reason);
  for (const text of texts) await assert.rejects(text, (e) => e === reason);
});

test("cancelling the body with a pending read ends the exchange", async (t) => {
  const up = await upstream(t);
  const gate = new Gate();
  const { reader } = await stalled(up, gate);
  const pull = reader.read();
  await reader.cancel("no more");
  assert.equal((await pull).done, true);
  await up.exchanges[0].closed;
  await until(() => inFlight(gate) === 0);
});

test("leaving a for await loop ends the exchange", async (t) => {
  const up = await upstream(t, stallAfter(delta("hel")));
  const gate = new Gate();
  const response = await gate.fetch(`${up.url}/v1/chat/completions`, post({ stream: true }));
  for await (const _ of response.body) break;
  await up.exchanges[0].closed;
  await until(() => inFlight(gate) === 0);
});

for (const [name, touch] of Object.entries({
  "nobody touched": () => {},
  "somebody looked at": (response) => response.body.locked,
  "somebody began to read": (response) => response.body.getReader().read(),
})) {
  test(`a collected body that ${name} releases its slot`, async (t) => {
    const up = await upstream(t, stallAfter(delta("hel")));
    const gate = new Gate();
    // A signal that outlives the call must not keep the body alive.
    const { signal } = new AbortController();
    await (async () => {
      const init = { ...post({ stream: true }), signal };
      await touch(await gate.fetch(`${up.url}/v1/chat/completions`, init));
    })();
    await until(() => {
      globalThis.gc();
      return inFlight(gate) === 0;
    });
    await up.exchanges[0].closed;
    assert.equal(signal.aborted, false);
  });
}

test("an abort in the queue leaves the queue", async (t) => {
  const up = await upstream(t);
  const [gate, control] = [new Gate({ defaults: { cap: 1 } }), new AbortController()];
  const { reader } = await stalled(up, gate);
  const url = `${up.url}/v1/chat/completions`;
  const waits = Array.from({ length: 5 }, () => gate.fetch(url, { ...post(), signal: control.signal }));
  await until(() => queued(gate) === 5);
  control.abort(reason);
  for (const wait of waits) await assert.rejects(wait, (e) => e === reason);
  await until(() => queued(gate) === 0);
  await reader.cancel();
  up.handler = json(CHAT);
  assert.equal((await (await gate.fetch(url, post())).json()).id, CHAT.id);
  assert.equal(up.exchanges.length, 2);
});

test("a signal of a thousand calls has one listener, and none afterwards", async (t) => {
  const up = await upstream(t, json({}));
  const gate = new Gate();
  const warnings = [];
  // A gate may warn that another test's process has the same limits.
  const warned = (warning) => warning.name === "TidegateWarning" || warnings.push(warning);
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  const control = new AbortController();
  const { signal } = control;
  let aborts = 0;
  // napi's own conversion of a signal would overwrite `onabort`.
  signal.onabort = () => aborts++;
  let listeners = 0;
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...args) => {
    listeners++;
    return addEventListener.apply(signal, args);
  };
  signal.removeEventListener = (...args) => {
    listeners--;
    return removeEventListener.apply(signal, args);
  };
  const calls = Array.from({ length: 1000 }, () => gate.fetch(up.url, { ...post(), signal }));
  assert.equal(listeners, 1);
  for (const response of await Promise.all(calls)) await response.json();
  assert.equal(listeners, 0);
  up.handler = never;
  const pending = Array.from({ length: 100 }, () => gate.fetch(up.url, { ...post(), signal }));
  await up.exchange(1063);
  control.abort(reason);
  for (const call of pending) await assert.rejects(call, (e) => e === reason);
  assert.equal(aborts, 1);
  await until(() => inFlight(gate) === 0);
  assert.deepEqual(warnings, []);
});

test("an aborted signal of one call is collected", async (t) => {
  const up = await upstream(t, never);
  const gate = new Gate();
  const composite = await (async () => {
    const control = new AbortController();
    const signal = AbortSignal.any([control.signal]);
    const call = gate.fetch(up.url, { ...post(), signal });
    await up.exchange();
    control.abort(reason);
    await assert.rejects(call, (e) => e === reason);
    return new WeakRef(signal);
  })();
  for (let turn = 0; turn < 100 && composite.deref() !== undefined; turn++) {
    await new Promise(setImmediate);
    globalThis.gc();
  }
  assert.equal(composite.deref(), undefined);
});

test("the loser of a race continues until its signal is aborted", async (t) => {
  const up = await upstream(t, never);
  const [gate, control] = [new Gate(), new AbortController()];
  const call = gate.fetch(up.url, { ...post(), signal: control.signal });
  await up.exchange();
  assert.equal(await Promise.race([call, "timer"]), "timer");
  assert.equal(inFlight(gate), 1);
  control.abort(reason);
  await assert.rejects(call, (e) => e === reason);
  await up.exchanges[0].closed;
  await until(() => inFlight(gate) === 0);
});

test("an abort during an upload cancels the body", async (t) => {
  const up = await upstream(t);
  const [gate, control] = [new Gate(), new AbortController()];
  const cancelled = Promise.withResolvers?.() ?? deferred();
  const body = new ReadableStream({
    pull: (controller) => controller.enqueue(new Uint8Array(1)),
    cancel: (why) => cancelled.resolve(why),
  });
  const arrived = new Promise((resolve) => up.server.prependOnceListener("request", resolve));
  const call = gate.fetch(up.url, { method: "POST", body, duplex: "half", signal: control.signal });
  const request = await arrived;
  control.abort(reason);
  await assert.rejects(call, (e) => e === reason);
  assert.equal(await cancelled.promise, reason);
  await new Promise((resolve) => (request.destroyed ? resolve() : request.on("close", resolve)));
});

test("a queued call whose streamed body fails leaves the queue", async (t) => {
  const up = await upstream(t);
  const gate = new Gate({ targets: { llm: { url: up.url, cap: 1, metrics: "off" } } });
  const { reader } = await stalled(up, gate);
  const url = `${up.url}/v1/chat/completions`;
  let upload;
  const body = new ReadableStream({
    start: (controller) => {
      upload = controller;
    },
  });
  const call = gate.fetch(url, { method: "POST", body, duplex: "half" });
  await until(() => queued(gate) === 1);
  upload.error(reason);
  await assert.rejects(call, (e) => e === reason);
  await until(() => queued(gate) === 0);
  await reader.cancel();
  up.handler = json(CHAT);
  assert.equal((await (await gate.fetch(url, post())).json()).id, CHAT.id);
  assert.equal(up.exchanges.length, 2);
});

test("an abort while the body of a Request is read rejects", async () => {
  const [gate, control] = [new Gate(), new AbortController()];
  const body = new ReadableStream({ pull: () => new Promise(() => {}) });
  const request = new Request("http://127.0.0.1:1/", { ...post(), body, duplex: "half" });
  const call = gate.fetch(request, { signal: control.signal });
  control.abort(reason);
  await assert.rejects(call, (e) => e === reason);
});

test("a body whose cancel never settles does not delay the rejection", async (t) => {
  const up = await upstream(t, never);
  const [gate, control] = [new Gate(), new AbortController()];
  const body = new ReadableStream({
    pull(controller) {
      controller.enqueue(new Uint8Array(1));
      return new Promise(() => {});
    },
    cancel: () => new Promise(() => {}),
  });
  const arrived = new Promise((resolve) => up.server.prependOnceListener("request", resolve));
  const call = gate.fetch(up.url, { method: "POST", body, duplex: "half", signal: control.signal });
  await arrived;
  control.abort(reason);
  await assert.rejects(call, (e) => e === reason);
});

function deferred() {
  let resolve;
  const promise = new Promise((r) => {
    resolve = r;
  });
  return { promise, resolve };
}

test("aborts at every stage leave no slot in use", async (t) => {
  const up = await upstream(t, json(CHAT));
  const gate = new Gate({ defaults: { cap: 8 } });
  for (let turns = 0; turns < 60; turns++) {
    const calls = Array.from({ length: 16 }, (_, at) => {
      const control = new AbortController();
      const call = gate.fetch(`${up.url}/v1/chat/completions`, { ...post(), signal: control.signal });
      return { call: call.then((response) => response.json()), control: at % 2 === 0 ? control : undefined };
    });
    for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
    for (const { control } of calls) control?.abort(reason);
    const ends = await Promise.allSettled(calls.map(({ call }) => call));
    for (const [at, end] of ends.entries()) {
      if (end.status === "rejected") assert.ok(calls[at].control !== undefined && end.reason === reason, end.reason);
    }
  }
  await until(() => gate.snapshot().active === 0);
  await until(() => inFlight(gate) === 0);
});
