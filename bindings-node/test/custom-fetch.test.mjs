// Tests of a custom fetch that makes the exchanges below the gate.
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { Readable } from "node:stream";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import zlib from "node:zlib";

import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import OpenAI from "openai";
import { Gate } from "tidegate";
import { FakeTarget, ok } from "tidegate/testing";
import { Agent, MockAgent, ProxyAgent, fetch as undiciFetch } from "undici";

import { CHAT, CHAT_STREAM, delta, inFlight, MESSAGES, ONCE, queued, until } from "./support/provider-payloads.mjs";
import { echo, event, events, json, never, stallAfter, upstream } from "./support/upstream.mjs";

const chat = { method: "POST", body: JSON.stringify({ model: "m" }), headers: { "content-type": "application/json" } };
const path = "/v1/chat/completions";
const originalFetch = globalThis.fetch;
const reason = new Error("enough");

test("a custom fetch gets the request, and its response is returned", async (t) => {
  const up = await upstream(t, echo);
  const seen = [];
  const gate = new Gate({
    fetch: (input, init) => {
      seen.push([input, init.method, init.redirect, init.keepalive, init.signal instanceof AbortSignal]);
      return originalFetch(input, init);
    },
  });
  const response = await gate.fetch(`${up.url}/a?b#c`, { ...chat, keepalive: true, redirect: "manual" });
  assert.deepEqual(seen, [[`${up.url}/a?b#c`, "POST", "manual", true, true]]);
  assert.equal(response.url, `${up.url}/a?b`);
  assert.ok(response instanceof Response);
  const { headers, body } = await response.json();
  assert.deepEqual([headers["content-type"], body], ["application/json", chat.body]);
  assert.equal(inFlight(gate), 0);
});

test("a custom fetch and its retries run in the caller's asynchronous context", async (t) => {
  let left = 1;
  const up = await upstream(t, (exchange) => json(CHAT, left-- > 0 ? 503 : 200)(exchange));
  const storage = new AsyncLocalStorage();
  const seen = [];
  const gate = new Gate({
    fetch: (input, init) => {
      seen.push(storage.getStore());
      return originalFetch(input, init);
    },
    defaults: { retry: { base: "1ms", max: "2ms" } },
  });
  await storage.run("span", () => gate.fetch(up.url + path, chat));
  assert.deepEqual(seen, ["span", "span"]);
});

test("a custom fetch that calls its own gate makes one exchange", async (t) => {
  const up = await upstream(t, json(CHAT));
  const logged = [];
  const log = async (gate, request) => {
    const response = await gate.fetch(...request);
    logged.push(response.status);
    return response;
  };
  const defaults = { cap: 1, queue: 0 };
  const single = new Gate({ defaults, fetch: (...request) => log(single, request) });
  const outer = new Gate({ defaults, fetch: (...request) => log(inner, request) });
  const inner = new Gate({ defaults, fetch: (...request) => log(outer, request) });
  for (const [gate, ...gates] of [
    [single, single],
    [outer, outer, inner],
  ]) {
    logged.length = 0;
    up.exchanges.length = 0;
    const response = await gate.fetch(up.url + path, chat);
    assert.deepEqual([response.status, (await response.json()).id, up.exchanges.length], [200, CHAT.id, 1]);
    assert.deepEqual(
      gates.map((gate) => Object.values(gate.snapshot().targets)[0].attempts),
      gates.map(() => 1),
    );
    assert.deepEqual(
      logged,
      gates.map(() => 200),
    );
  }
});

test("what a custom fetch started passes the gate after the exchange", async (t) => {
  const up = await upstream(t, echo);
  let calls = 0;
  let end, later;
  const hasEnded = new Promise((resolve) => {
    end = resolve;
  });
  const gate = new Gate({
    fetch: (...request) => {
      calls++;
      later ??= hasEnded.then(() => gate.fetch(up.url));
      return originalFetch(...request);
    },
  });
  await (await gate.fetch(up.url)).text();
  end();
  await (await later).text();
  assert.equal(calls, 2);
});

test("calls of the caller's code pass the gate while a custom fetch reads or sends its streams", async (t) => {
  const up = await upstream(t, echo);
  let [calls, asked] = [0, 0];
  const gate = new Gate({
    fetch: (...request) => {
      calls++;
      return originalFetch(...request);
    },
  });
  const ask = async () => {
    asked++;
    await (await gate.fetch(up.url)).text();
  };
  const pull = async (controller) => {
    await ask();
    controller.enqueue(Buffer.from("x"));
    controller.close();
  };
  const body = new ReadableStream({ pull }, { highWaterMark: 0 });
  const response = await gate.fetch(up.url, { method: "POST", body, duplex: "half" });
  assert.equal(asked, 1);
  await response.body.pipeThrough(new TransformStream({ transform: ask })).pipeTo(new WritableStream());
  assert.ok(asked > 1);
  assert.equal(calls, 1 + asked);
});

test("a URL object may be changed after the call", async (t) => {
  const up = await upstream(t, echo);
  for (const fetch of [undefined, originalFetch]) {
    const gate = new Gate(fetch && { fetch });
    const url = new URL(up.url);
    const calls = ["/1", "/2"].map((path) => {
      url.pathname = path;
      return gate.fetch(url);
    });
    for (const [at, call] of calls.entries()) {
      const response = await call;
      assert.deepEqual([(await response.json()).path, new URL(response.url).pathname], [`/${at + 1}`, `/${at + 1}`]);
    }
  }
});

test("a custom fetch handles redirects and encodings", async (t) => {
  const text = JSON.stringify({ text: "hello ".repeat(20_000) });
  const up = await upstream(t, ({ path, response }) => {
    if (path === "/from") return response.writeHead(302, { location: "/to" }).end();
    response.writeHead(200, "Fine", { "content-type": "application/json", "content-encoding": "gzip" });
    response.end(zlib.gzipSync(text));
  });
  const gate = new Gate({ fetch: originalFetch });
  const response = await gate.fetch(`${up.url}/from`);
  assert.deepEqual([response.redirected, response.url, response.statusText], [true, `${up.url}/to`, "Fine"]);
  assert.equal(response.headers.get("content-encoding"), "gzip");
  assert.equal(await response.text(), text);
});

test("a custom fetch may replace the body and keep the headers of the upstream", async (t) => {
  const up = await upstream(t, ({ response }) => {
    response.writeHead(200, { "content-length": "500", "set-cookie": ["a=1", "b=2"] }).end("x".repeat(500));
  });
  for (const body of ["short", "", null]) {
    const gate = new Gate({
      fetch: async (...request) => {
        const response = await originalFetch(...request);
        await response.arrayBuffer();
        return new Response(body, response);
      },
    });
    const response = await gate.fetch(up.url);
    assert.equal(await response.text(), body ?? "");
    assert.equal(response.headers.get("content-length"), "500");
    assert.deepEqual(response.headers.getSetCookie(), ["a=1", "b=2"]);
  }
});

test("a custom fetch gets the caller's body and options, and sends the body again after a redirect", async (t) => {
  const up = await upstream(t, (exchange) => {
    if (exchange.path === "/from") return exchange.response.writeHead(307, { location: "/to" }).end();
    return echo(exchange);
  });
  const form = new FormData();
  form.append("file", new Blob(["in a form"]), "a.txt");
  const bodies = {
    "a text": "a text",
    "a+text": new URLSearchParams("a text"),
    "a blob": new Blob(["a blob"]),
    "in a form": form,
  };
  for (const [text, body] of Object.entries(bodies)) {
    for (const method of ["POST", "PATCH", "REPORT"]) {
      const seen = [];
      const fetch = (input, init) => {
        seen.push(init);
        return originalFetch(input, init);
      };
      const response = await new Gate({ fetch }).fetch(`${up.url}/from`, { method, body });
      const received = await response.json();
      assert.deepEqual([received.method, seen.length], [method, 1]);
      assert.ok(received.body.includes(text), received.body);
      assert.equal(seen[0].body.constructor, body.constructor);
      assert.ok(!("redirect" in seen[0]));
    }
  }
});

test("a custom fetch gets the headers in the caller's form", async () => {
  let seen;
  const gate = new Gate({
    fetch: async (_, { headers }) => {
      seen = headers;
      return Response.json({});
    },
  });
  const url = "http://nowhere.test/";
  const object = { Authorization: "Bearer k", "x-own": "1" };
  const pairs = Object.entries(object);
  await gate.fetch(url, { headers: object });
  assert.deepEqual({ ...seen, "x-tenant": "a" }, { ...object, "x-tenant": "a" });
  await gate.fetch(url, { headers: pairs });
  assert.deepEqual([...seen, ["x-tenant", "a"]], [...pairs, ["x-tenant", "a"]]);
  for (const request of [[url, { headers: new Headers(object) }], [new Request(url, { headers: object })]]) {
    await gate.fetch(...request);
    assert.ok(seen instanceof Headers);
    assert.equal(seen.get("authorization"), "Bearer k");
  }
  await gate.fetch(url);
  assert.ok(seen instanceof Headers);
});

test("a custom fetch gets the cache and the mode of a Request", async () => {
  const seen = [];
  const fetch = async (_, { cache, mode }) => {
    seen.push([cache, mode]);
    return Response.json({});
  };
  const gate = new Gate({ fetch });
  const url = "http://nowhere.test/";
  for (const init of [{}, { cache: "no-store", mode: "same-origin" }]) await gate.fetch(new Request(url, init));
  assert.deepEqual(seen, [
    [undefined, undefined],
    ["no-store", "same-origin"],
  ]);
});

test("a custom fetch sends the body of a Request again after a redirect", async (t) => {
  const up = await upstream(t, (exchange) => {
    if (exchange.path === "/from") return exchange.response.writeHead(307, { location: "/to" }).end();
    return echo(exchange);
  });
  const request = new Request(`${up.url}/from`, chat);
  const { headers, body } = await (await new Gate({ fetch: originalFetch }).fetch(request)).json();
  assert.deepEqual([headers["content-type"], body], ["application/json", chat.body]);
});

test("a custom fetch sends what the body was at the time of the call", async () => {
  const sent = [];
  let finish;
  const held = new Promise((resolve) => {
    finish = resolve;
  });
  const gate = new Gate({
    defaults: { cap: 1 },
    fetch: async (input, init) => {
      sent.push(await new Request(input, init).text());
      await held;
      return new Response("{}");
    },
  });
  const bytes = Buffer.from("0");
  const view = new DataView(bytes.buffer, bytes.byteOffset, 1);
  const query = new URLSearchParams("n=0");
  const form = new FormData();
  const calls = ["0", "1", "2"].flatMap((text) => {
    bytes.write(text);
    query.set("n", text);
    form.set("n", new Blob([`form ${text}`]), "n.txt");
    return [bytes, view, query, form].map((body) => gate.fetch("http://nowhere.test/", { method: "POST", body }));
  });
  await until(() => sent.length === 1);
  finish();
  await Promise.all(calls.map(async (call) => (await call).text()));
  assert.deepEqual(
    sent.map((text) => /form \d/.exec(text)?.[0] ?? text).sort(),
    ["0", "1", "2"].flatMap((text) => [text, text, `n=${text}`, `form ${text}`]).sort(),
  );
});

test("the gate retries a custom fetch and returns the last response", async (t) => {
  let left = 2;
  const up = await upstream(t, (exchange) => json(CHAT, left-- > 0 ? 503 : 200)(exchange));
  const gate = new Gate({ fetch: originalFetch, defaults: { retry: { base: "1ms", max: "2ms" } } });
  const response = await gate.fetch(up.url + path, chat);
  assert.deepEqual([response.status, (await response.json()).id, up.exchanges.length], [200, CHAT.id, 3]);
});

test("the caller gets the error that a custom fetch threw", async () => {
  const boom = new Error("boom");
  let calls = 0;
  const gate = new Gate({
    fetch: async () => {
      calls++;
      throw boom;
    },
  });
  await assert.rejects(gate.fetch("http://nowhere.test/", chat), (error) => error === boom);
  // Unknown failures are not retried.
  assert.equal(calls, 1);
  const sync = new Gate({
    fetch: () => {
      throw boom;
    },
  });
  await assert.rejects(sync.fetch("http://nowhere.test/", chat), (error) => error === boom);
  const refused = new Gate({ ...ONCE, fetch: originalFetch });
  await assert.rejects(refused.fetch("http://127.0.0.1:1/", chat), { message: "fetch failed", name: "TypeError" });
  assert.equal(inFlight(gate), 0);
});

test("a failed TLS handshake of a custom fetch is a failed connection, with its code in the message", async () => {
  for (const code of [
    "CERT_HAS_EXPIRED",
    "DEPTH_ZERO_SELF_SIGNED_CERT",
    "ERR_TLS_CERT_ALTNAME_INVALID",
    "SELF_SIGNED_CERT_IN_CHAIN",
    "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  ]) {
    // An error of another realm is not an instance of this realm's `Error`.
    const thrown = runInNewContext('new TypeError("fetch failed", { cause: new Error("a URL with a key") })');
    thrown.cause.code = code;
    const gate = new Gate({
      ...ONCE,
      fetch: async () => {
        throw thrown;
      },
    });
    const headers = { ...chat.headers, "x-stainless-lang": "js" };
    const response = await gate.fetch("http://nowhere.test/", { ...chat, headers });
    const { error } = await response.json();
    assert.deepEqual([response.status, error.code], [502, "connect"]);
    assert.match(error.message, new RegExp(`TypeError ${code}`));
  }
});

test("a broken body rejects with the error of the custom fetch, unless it is an AbortError", async (t) => {
  const up = await upstream(t);
  for (const thrown of [new Error("broken"), new DOMException("theirs", "AbortError")]) {
    const gate = new Gate({
      fetch: async () => {
        const body = new ReadableStream({
          pull: (controller) => {
            controller.enqueue(Buffer.alloc(100_000));
            controller.error(thrown);
          },
        });
        return new Response(body, { headers: { "content-type": "application/octet-stream" } });
      },
    });
    await assert.rejects((await gate.fetch(up.url)).text(), (error) => {
      if (thrown.name !== "AbortError") return error === thrown;
      // The text of the custom fetch may contain a URL with a key.
      assert.match(error.cause.message, /AbortError/);
      assert.doesNotMatch(error.cause.message, /theirs/);
      return error.name === "TypeError" && error.cause.cause === thrown;
    });
  }
});

test("an abort reaches a custom fetch, and the slot is held until it ends", async () => {
  let settle;
  const aborted = [];
  const gate = new Gate({
    defaults: { cap: 1 },
    fetch: (_, { signal }) => {
      signal.addEventListener("abort", () => aborted.push(signal.reason));
      return new Promise((_, reject) => {
        settle = () => reject(signal.reason);
      });
    },
  });
  const control = new AbortController();
  const call = gate.fetch("http://nowhere.test/", { ...chat, signal: control.signal });
  await until(() => settle !== undefined);
  control.abort(reason);
  await assert.rejects(call, (error) => error === reason);
  await until(() => aborted.length === 1);
  assert.deepEqual(aborted, [reason]);
  assert.equal(inFlight(gate), 1);
  settle();
  await until(() => inFlight(gate) === 0);
});

test("a custom fetch is not called after an abort in the queue", async (t) => {
  const up = await upstream(t, never);
  let asked = 0;
  const gate = new Gate({
    defaults: { cap: 1 },
    fetch: (...request) => {
      asked++;
      return originalFetch(...request);
    },
  });
  const [first, second] = [new AbortController(), new AbortController()];
  const calls = [first, second].map(({ signal }) => gate.fetch(up.url + path, { ...chat, signal }));
  await until(() => queued(gate) === 1 && asked === 1);
  second.abort(reason);
  await assert.rejects(calls[1], (error) => error === reason);
  first.abort(reason);
  await assert.rejects(calls[0], (error) => error === reason);
  await until(() => inFlight(gate) === 0);
  assert.equal(asked, 1);
});

test("aborts and cancels in a stream of a custom fetch end the exchange", async (t) => {
  const up = await upstream(t, stallAfter(delta("hel")));
  const gate = new Gate({ fetch: originalFetch });
  const control = new AbortController();
  const init = { method: "POST", body: JSON.stringify({ model: "m", stream: true }) };
  const reader = (await gate.fetch(up.url + path, { ...init, signal: control.signal })).body.getReader();
  await reader.read();
  const pull = reader.read();
  control.abort(reason);
  await assert.rejects(pull, (error) => error === reason);
  await up.exchanges[0].closed;
  for await (const _ of (await gate.fetch(up.url + path, init)).body) break;
  await up.exchanges[1].closed;
  await until(() => inFlight(gate) === 0);
  up.handler = events(...CHAT_STREAM);
  assert.equal(await (await gate.fetch(up.url + path, init)).text(), CHAT_STREAM.map(event).join(""));
  up.handler = events(delta("hel"));
  const cut = await gate.fetch(up.url + path, init);
  await assert.rejects(cut.text(), (error) => error.cause.kind === "truncated");
});

test("aborts and cancels end the body of a custom fetch that ignores its signal", async () => {
  const cancelled = [];
  const chunk = Buffer.from(event(delta("hel")));
  const bodies = {
    platform: () =>
      new ReadableStream({
        start: (controller) => controller.enqueue(chunk),
        cancel: () => void cancelled.push("platform"),
      }),
    node: () => {
      const destroy = (error, done) => {
        cancelled.push("node");
        done(error);
      };
      const body = new Readable({ read: () => {}, destroy });
      body.push(chunk);
      return body;
    },
  };
  for (const [name, body] of Object.entries(bodies)) {
    for (const end of [(_, control) => control.abort(reason), (reader) => reader.cancel()]) {
      const headers = { "content-type": "text/event-stream" };
      const gate = new Gate({
        fetch: async () => Object.defineProperty(new Response(null, { headers }), "body", { value: body() }),
      });
      const control = new AbortController();
      const init = { method: "POST", body: JSON.stringify({ model: "m", stream: true }), signal: control.signal };
      const reader = (await gate.fetch(`http://nowhere.test${path}`, init)).body.getReader();
      await reader.read();
      cancelled.length = 0;
      await end(reader, control);
      await until(() => cancelled.length === 1);
      assert.deepEqual(cancelled, [name]);
      await until(() => inFlight(gate) === 0);
    }
  }
});

test("a custom fetch reads at most one chunk ahead", async () => {
  let pulled = 0;
  const gate = new Gate({
    fetch: async () =>
      new Response(
        new ReadableStream(
          {
            pull(controller) {
              pulled++;
              controller.enqueue(Buffer.alloc(70_000));
            },
          },
          { highWaterMark: 0 },
        ),
      ),
  });
  const reader = (await gate.fetch("http://nowhere.test/")).body.getReader();
  for (let read = 0; read < 5; read++) await reader.read();
  for (let turn = 0; turn < 500; turn++) await new Promise(setImmediate);
  assert.ok(pulled <= 9, `${pulled} chunks for 5 that were read`);
  await reader.cancel();
  await until(() => inFlight(gate) === 0);
});

test("a custom fetch may return the body as a stream of Node", async () => {
  let body;
  const gate = new Gate({
    fetch: async () => Object.defineProperty(new Response(), "body", { value: body }),
  });
  body = Readable.from([Buffer.from("one "), Buffer.from("two")]);
  assert.equal(await (await gate.fetch("http://nowhere.test/")).text(), "one two");
  // The caller reads no more.
  body = new Readable({
    read() {
      this.push(Buffer.alloc(70_000));
    },
  });
  for await (const _ of (await gate.fetch("http://nowhere.test/")).body) break;
  await until(() => inFlight(gate) === 0);
  await until(() => body.destroyed);
  // The body fails.
  const boom = new Error("boom");
  body = new Readable({ read: () => body.destroy(boom) });
  await assert.rejects(
    async () => (await gate.fetch("http://nowhere.test/")).text(),
    (error) => error === boom,
  );
  // The body is no stream of bytes.
  body = Readable.from(["text", "text"]);
  await assert.rejects(async () => (await gate.fetch("http://nowhere.test/")).text());
  await until(() => inFlight(gate) === 0);
  await until(() => body.destroyed);
});

test("a response of a custom fetch after an abort is cancelled", async () => {
  const cancelled = [];
  const bodies = [
    () => new ReadableStream({ cancel: () => void cancelled.push("platform") }),
    () => new Readable({ read: () => {}, destroy: () => void cancelled.push("node") }),
  ];
  for (const [at, body] of bodies.entries()) {
    let aborted = false;
    let answer;
    const gate = new Gate({
      fetch: (_, { signal }) => {
        signal.addEventListener("abort", () => {
          aborted = true;
        });
        return new Promise((resolve) => {
          answer = () => resolve(Object.defineProperty(new Response(), "body", { value: body() }));
        });
      },
    });
    const control = new AbortController();
    const call = gate.fetch("http://nowhere.test/", { signal: control.signal });
    await until(() => answer !== undefined);
    control.abort(reason);
    await assert.rejects(call, (error) => error === reason);
    await until(() => aborted);
    answer();
    await until(() => cancelled.length === at + 1);
    await until(() => inFlight(gate) === 0);
  }
  assert.deepEqual(cancelled, ["platform", "node"]);
});

test("a streamed upload is cancelled if the call ends before its fetch", async (t) => {
  const up = await upstream(t, never);
  const gate = new Gate({ targets: { llm: { url: up.url, cap: 1, queue: 1 } }, fetch: originalFetch });
  const holder = new AbortController();
  const held = gate.fetch(up.url + path, { ...chat, signal: holder.signal });
  await up.exchange();
  const cancelled = [];
  const upload = (init) => {
    const body = new ReadableStream({ cancel: (why) => void cancelled.push(why) });
    return gate.fetch(up.url + path, { method: "POST", body, duplex: "half", ...init });
  };
  const control = new AbortController();
  const waiting = upload({ signal: control.signal });
  await until(() => queued(gate) === 1);
  // The queue is full, so the gate answers.
  assert.equal((await upload()).status, 429);
  control.abort(reason);
  await assert.rejects(waiting, (error) => error === reason);
  assert.deepEqual(cancelled, [undefined, reason]);
  holder.abort(reason);
  await assert.rejects(held, (error) => error === reason);
});

test("a custom fetch sends a streamed upload", async (t) => {
  const up = await upstream(t, echo);
  const gate = new Gate({ fetch: originalFetch });
  const body = new Blob(["one ", "two"]).stream();
  const response = await gate.fetch(up.url, { method: "POST", body, duplex: "half" });
  assert.equal((await response.json()).body, "one two");
});

test("a fake target answers a streamed upload in place of a custom fetch or a dispatcher", async (t) => {
  const dispatcher = new Agent();
  t.after(() => dispatcher.close());
  const target = new FakeTarget({ otherwise: ok("fake") });
  await target.during(async () => {
    for (const [options, init] of [[{ fetch: originalFetch }], [{}, { dispatcher }]]) {
      const body = new Blob([chat.body]).stream();
      const upload = { ...chat, ...init, body, duplex: "half" };
      const response = await new Gate(options).fetch(`http://nowhere.test${path}`, upload);
      assert.equal((await response.json()).choices[0].message.content, "fake");
    }
  });
  assert.deepEqual(
    target.attempts.map(({ body }) => body),
    [chat.body, chat.body],
  );
});

test("wrap keeps a custom fetch unless the transport is native", async (t) => {
  const up = await upstream(t, json(CHAT));
  const seen = [];
  const fetch = (...request) => {
    seen.push(request[0]);
    return originalFetch(...request);
  };
  const client = new OpenAI({ baseURL: `${up.url}/v1`, apiKey: "k", fetch });
  const ask = (sdk) => sdk.chat.completions.create({ model: "small", messages: MESSAGES });
  const gate = new Gate();
  const kept = gate.wrap(client);
  assert.equal((await ask(kept)).id, CHAT.id);
  assert.equal(seen.length, 1);
  assert.equal(Object.values(gate.snapshot().targets)[0].attempts, 1);
  await ask(gate.wrap(client, { transport: "native" }));
  assert.equal(seen.length, 1);
  // The name in Python.
  for (const mode of ["enforce", "off"]) {
    assert.throws(() => new Gate({ mode }).wrap(client, { transport: "keep" }), RangeError);
  }
  // Wrapping again replaces the gate and keeps the custom fetch.
  const other = new Gate();
  await ask(other.wrap(kept));
  assert.equal(seen.length, 2);
  assert.equal(Object.values(gate.snapshot().targets)[0].attempts, 2);
  assert.equal(Object.values(other.snapshot().targets)[0].attempts, 1);
});

test("MSW handlers answer calls below the gate", async (t) => {
  let left = 1;
  const server = setupServer(
    http.post("https://api.openai.com/v1/chat/completions", async ({ request }) => {
      if (left-- > 0)
        return HttpResponse.json(
          { error: { message: "slow down" } },
          { status: 429, headers: { "retry-after-ms": "1" } },
        );
      return HttpResponse.json({ ...CHAT, model: (await request.json()).model });
    }),
    http.post("https://api.openai.com/v1/embeddings", () => HttpResponse.error()),
  );
  server.listen({ onUnhandledRequest: "error" });
  t.after(() => server.close());
  const gate = new Gate();
  // A client that is created while MSW is active has MSW's fetch.
  const client = gate.wrap(new OpenAI({ apiKey: "k" }));
  const answer = await client.chat.completions.create({ model: "mocked", messages: MESSAGES });
  assert.equal(answer.model, "mocked");
  assert.equal(
    gate.snapshot().targets["api.openai.com/mocked"]?.attempts ?? Object.values(gate.snapshot().targets)[0].attempts,
    2,
  );
  await assert.rejects(client.embeddings.create({ model: "m", input: "x" }), OpenAI.APIConnectionError);
});

test("undici: a fetch with its own dispatcher is used", async (t) => {
  const up = await upstream(t, json(CHAT));
  const seen = [];
  const dispatcher = new Agent().compose((dispatch) => (options, handler) => {
    seen.push(options.path);
    return dispatch(options, handler);
  });
  t.after(() => dispatcher.close());
  const own = new Gate({ fetch: (input, init) => undiciFetch(input, { ...init, dispatcher }) });
  assert.equal((await (await own.fetch(up.url + path, chat)).json()).id, CHAT.id);
  assert.deepEqual(seen, [path]);
  const mock = new MockAgent();
  mock.disableNetConnect();
  mock.get("http://mocked.test").intercept({ path, method: "POST" }).reply(200, CHAT);
  const mocked = new Gate({ fetch: (input, init) => undiciFetch(input, { ...init, dispatcher: mock }) });
  assert.equal((await (await mocked.fetch(`http://mocked.test${path}`, chat)).json()).id, CHAT.id);
});

test("undici: the dispatcher of one call makes its exchange", async () => {
  const boom = new Error("boom");
  const dispatcher = {
    dispatch(_, handler) {
      handler.onError(boom);
      return true;
    },
  };
  const gate = new Gate(ONCE);
  await assert.rejects(gate.fetch("http://nowhere.test/", { ...chat, dispatcher }), (error) => error.cause === boom);
  const client = new OpenAI({ apiKey: "k", fetchOptions: { dispatcher } });
  const call = (transport) => gate.wrap(client, { transport }).models.list();
  await assert.rejects(call("auto"), (error) => error.cause.cause === boom);
  const nobody = client.withOptions({ baseURL: "http://127.0.0.1:1" });
  const native = gate.wrap(nobody, { transport: "native" }).models.list();
  await assert.rejects(native, (error) => error.cause.cause.kind === "connect");
});

test("undici: a proxy's dispatcher among a client's fetchOptions is used", async (t) => {
  const up = await upstream(t, json(CHAT));
  const tunnels = [];
  const { createServer } = await import("node:http");
  const { connect } = await import("node:net");
  const proxy = createServer().on("connect", (request, socket) => {
    tunnels.push(request.url);
    const onward = connect(new URL(up.url).port, "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 Connected\r\n\r\n");
      onward.pipe(socket).pipe(onward);
    });
    for (const end of [socket, onward]) end.on("error", () => {});
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const dispatcher = new ProxyAgent({ uri: `http://127.0.0.1:${proxy.address().port}`, proxyTunnel: true });
  t.after(async () => {
    await dispatcher.destroy();
    proxy.closeAllConnections();
    proxy.close();
  });
  const fetch = (input, init) => undiciFetch(input, init);
  const options = { baseURL: "http://upstream.test/v1", apiKey: "k", fetch, fetchOptions: { dispatcher } };
  const client = new Gate().wrap(new OpenAI(options));
  assert.equal((await client.chat.completions.create({ model: "m", messages: MESSAGES })).id, CHAT.id);
  assert.deepEqual(tunnels, ["upstream.test:80"]);
});
