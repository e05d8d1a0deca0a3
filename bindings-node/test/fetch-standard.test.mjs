// Compares the gate's fetch with the platform's: results and upstream requests are equal.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import zlib from "node:zlib";

import { Gate } from "tidegate";

import { delta, inFlight, ONCE, until } from "./support/provider-payloads.mjs";
import { echo, hangUp, json, never, stallAfter, upstream } from "./support/upstream.mjs";

const gate = new Gate();
const fetches = { platform: globalThis.fetch, gate: gate.fetch };

/**
 * Calls `run` twice: with the platform's fetch and with the gate's fetch. Checks that the results
 * are equal, and returns the result.
 */
async function both(run) {
  const [expected, actual] = [await seen(run, fetches.platform), await seen(run, fetches.gate)];
  assert.deepEqual(actual, expected);
  return actual;
}

async function seen(run, fetch) {
  try {
    return await run(fetch);
  } catch (error) {
    // Libraries read these properties.
    return { rejects: error.constructor.name, name: error.name, message: error.message };
  }
}

const head = (response) => ({
  status: response.status,
  statusText: response.statusText,
  ok: response.ok,
  url: response.url,
  redirected: response.redirected,
  type: response.type,
  body: response.body === null ? null : response.body.constructor.name,
  used: response.bodyUsed,
});

const requests = {
  "a bare URL": (fetch, url) => fetch(`${url}/a?b=c#d`),
  "an empty fragment": (fetch, url) => fetch(`${url}/a#`),
  "an object that says its URL": (fetch, url) => fetch({ toString: () => url }),
  "a URL object": (fetch, url) => fetch(new URL(`${url}/a b/ü?q=ü`)),
  "lower-case methods": (fetch, url) => fetch(url, { method: "post", body: "x" }),
  PATCH: (fetch, url) => fetch(url, { method: "PATCH", body: "x" }),
  "a method of one's own": (fetch, url) => fetch(url, { method: "PURGE" }),
  HEAD: (fetch, url) => fetch(url, { method: "HEAD" }),
  DELETE: (fetch, url) => fetch(url, { method: "DELETE" }),
  "plain headers": (fetch, url) => fetch(url, { headers: { "X-One": "1", accept: "text/plain", "user-agent": "me" } }),
  "a range": (fetch, url) => fetch(url, { headers: { range: "bytes=0-" } }),
  "pairs of headers": (fetch, url) =>
    fetch(url, {
      headers: [
        ["x-two", "a"],
        ["x-two", "b"],
      ],
    }),
  Headers: (fetch, url) => fetch(url, { headers: new Headers({ "x-three": "ÿ" }) }),
  "a string": (fetch, url) => fetch(url, { method: "POST", body: "grüße" }),
  "an empty string": (fetch, url) => fetch(url, { method: "POST", body: "" }),
  "a string with a type": (fetch, url) =>
    fetch(url, { method: "POST", body: "{}", headers: { "content-type": "application/json" } }),
  "an empty Uint8Array": (fetch, url) => fetch(url, { method: "PATCH", body: new Uint8Array() }),
  "null for a body": (fetch, url) => fetch(url, { method: "POST", body: null }),
  Uint8Array: (fetch, url) => fetch(url, { method: "PUT", body: new Uint8Array([0, 1, 255]) }),
  "a part of an ArrayBuffer": (fetch, url) =>
    fetch(url, { method: "PUT", body: new DataView(new TextEncoder().encode("abcdef").buffer, 1, 2) }),
  ArrayBuffer: (fetch, url) => fetch(url, { method: "PUT", body: new TextEncoder().encode("abc").buffer }),
  Blob: (fetch, url) => fetch(url, { method: "POST", body: new Blob(["abc"], { type: "audio/wav" }) }),
  "a Blob without a type": (fetch, url) => fetch(url, { method: "POST", body: new Blob(["abc"]) }),
  URLSearchParams: (fetch, url) => fetch(url, { method: "POST", body: new URLSearchParams({ a: "b c", d: "ü" }) }),
  ReadableStream: (fetch, url) => fetch(url, { method: "POST", body: new Blob(["streamed"]).stream(), duplex: "half" }),
  "an async iterable": (fetch, url) =>
    fetch(url, {
      method: "POST",
      duplex: "half",
      body: (async function* () {
        yield Buffer.from("one ");
        yield Buffer.from("two");
      })(),
    }),
  "a Request": (fetch, url) =>
    fetch(new Request(`${url}/r`, { method: "POST", body: "{}", headers: { "content-type": "application/json" } })),
  "a Request, changed": (fetch, url) =>
    fetch(new Request(`${url}/r`, { headers: { a: "1" } }), { headers: { b: "2" } }),
  "a Request without a body": (fetch, url) => fetch(new Request(url)),
  "a Request as the options": (fetch, url) =>
    fetch(url, new Request(`${url}/r`, { method: "PUT", body: "abc", headers: { a: "1" }, redirect: "manual" })),
  "options that are inherited": (fetch, url) =>
    fetch(url, Object.create({ method: "POST", body: new Uint8Array([7]), headers: { a: "1" } })),
  "a stream without duplex": (fetch, url) => fetch(url, { method: "POST", body: new Blob(["x"]).stream() }),
  "no bytes": (fetch, url) => fetch(url, { method: "POST", body: new Uint8Array() }),
  "an empty string, deleted": (fetch, url) => fetch(url, { method: "DELETE", body: "" }),
  "PATCH without a body": (fetch, url) => fetch(url, { method: "PATCH" }),
  "a number for a body": (fetch, url) => fetch(url, { method: "POST", body: 7 }),
  "a host of one's own": (fetch, url) => fetch(url, { headers: { host: "other.test" } }),
  "a length without a body": (fetch, url) => fetch(url, { headers: { "content-length": "3" } }),
  "the body's length": (fetch, url) => fetch(url, { method: "POST", body: "ü", headers: { "content-length": "2" } }),
  "too long a length": (fetch, url) => fetch(url, { method: "POST", body: "abc", headers: { "content-length": "5" } }),
  "no length": (fetch, url) => fetch(url, { method: "POST", body: "abc", headers: { "content-length": "x" } }),
  "a stream's length": (fetch, url) => fetch(url, streamed("3")),
  "no length for a stream": (fetch, url) => fetch(url, streamed("x")),
  "a transfer coding": (fetch, url) => fetch(url, { headers: { "transfer-encoding": "xchunked" } }),
  "an upgrade": (fetch, url) => fetch(url, { headers: { upgrade: "websocket", connection: "upgrade" } }),
  "keep-alive": (fetch, url) => fetch(url, { headers: { "keep-alive": "timeout=5" } }),
  "a connection to be closed": (fetch, url) => fetch(url, { headers: { connection: "Close" } }),
  "a connection to be kept": (fetch, url) => fetch(url, { headers: { connection: "keep-alive" } }),
  "an expectation": (fetch, url) => fetch(url, { method: "POST", body: "x", headers: { expect: "100-continue" } }),
  "GET with a body": (fetch, url) => fetch(url, { body: "x" }),
  "a stream that was read": (fetch, url) => {
    const body = new Blob(["x"]).stream();
    body.getReader();
    return fetch(url, { method: "POST", body, duplex: "half" });
  },
  "a malformed URL": (fetch) => fetch("http://["),
  "a relative URL": (fetch) => fetch("/models"),
  "no URL": (fetch) => fetch(undefined),
  "credentials in the URL": (fetch) => fetch("http://user:pass@127.0.0.1:1/"),
  "a forbidden method": (fetch, url) => fetch(url, { method: "TRACE" }),
  "a malformed method": (fetch, url) => fetch(url, { method: "a b" }),
  "a malformed header name": (fetch, url) => fetch(url, { headers: { "a b": "1" } }),
  "a malformed header value": (fetch, url) => fetch(url, { headers: { a: "1\n2" } }),
  "a header that is no byte string": (fetch, url) => fetch(url, { headers: { a: "€" } }),
  "a signal that is none": (fetch, url) => fetch(url, { signal: {} }),
  "an unknown redirect mode": (fetch, url) => fetch(url, { redirect: "maybe" }),
  "a wrong checksum": (fetch, url) => fetch(url, { integrity: "sha256-AAAA" }),
  "a Request with a wrong checksum": (fetch, url) => fetch(new Request(url, { integrity: "sha256-AAAA" })),
  "no checksum": (fetch, url) => fetch(url, { integrity: "" }),
  "nobody there": (fetch) => fetch("http://127.0.0.1:1/"),
  "another scheme": (fetch) => fetch("ftp://127.0.0.1/"),
  "data:": (fetch) => fetch("data:text/plain,hello"),
};

for (const cache of ["default", "no-store", "reload", "no-cache", "force-cache", "only-if-cached", "maybe"]) {
  const headers = { pragma: "a", "cache-control": "b" };
  requests[`cache: ${cache}`] = (fetch, url) => fetch(url, { cache });
  requests[`cache: ${cache}, and its headers`] = (fetch, url) => fetch(url, { cache, headers });
}
for (const name of ["if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since"]) {
  const headers = { [name]: "x" };
  requests[name] = (fetch, url) => fetch(url, { headers });
  requests[`${name} with a cache`] = (fetch, url) => fetch(url, { headers, cache: "force-cache" });
}
for (const mode of ["cors", "same-origin", "no-cors", "navigate", "maybe"]) {
  const headers = { "sec-fetch-mode": "x" };
  requests[`mode: ${mode}`] = (fetch, url) => fetch(url, { mode, headers });
  requests[`mode: ${mode}, with a body`] = (fetch, url) => fetch(url, { mode, headers, method: "POST", body: "x" });
}
Object.assign(requests, {
  "a sec-fetch-mode of one's own": (fetch, url) => fetch(url, { headers: { "sec-fetch-mode": "x" } }),
  "a Request with a cache and a mode": (fetch, url) =>
    fetch(new Request(url, { cache: "no-store", mode: "same-origin" })),
});

function streamed(length) {
  return { method: "POST", body: new Blob(["abc"]).stream(), duplex: "half", headers: { "content-length": length } };
}

test("request: large files are sent", async (t) => {
  const up = await upstream(t, ({ headers, body, response }) => {
    response.end(JSON.stringify([headers["content-length"], headers["transfer-encoding"], body.length]));
  });
  const file = new Blob([new Uint8Array(33 * 1024 * 1024)], { type: "audio/wav" });
  const form = new FormData();
  form.set("pur\npose", "fine\ntüne");
  form.append("file", file, 'ü".wav');
  form.append("file", file);
  for (const body of [file, form, "ü".repeat(33 * 1024 * 1024)]) {
    await both(async (fetch) => (await fetch(up.url, { method: "POST", body })).json());
  }
});

test("a body that is longer than declared is rejected", async (t) => {
  const up = await upstream(t, json({}));
  const init = { method: "POST", body: "abc", headers: { "content-length": "2" } };
  await assert.rejects(
    gate.fetch(up.url, init),
    (error) => error.message === "fetch failed" && /content-length/.test(error.cause.message),
  );
  assert.equal(up.exchanges.length, 0);
  // The length of a stream is known only at its end, so the exchange fails.
  for (const length of ["2", "5"]) await assert.rejects(gate.fetch(up.url, streamed(length)), TypeError);
});

test("connection headers are rejected", async (t) => {
  const up = await upstream(t, json({}));
  const hops = { "x-hop": "1", "proxy-connection": "keep-alive", te: "gzip" };
  await gate.fetch(up.url, { headers: { ...hops, connection: "keep-alive, X-Hop", "x-own": "1" } });
  const { headers } = up.exchanges[0];
  assert.deepEqual(
    [...Object.keys(hops), "connection", "x-own"].filter((name) => name in headers),
    ["x-own"],
  );
});

for (const [name, options] of Object.entries({ native: {}, "a fetch of one's own": { fetch: globalThis.fetch } })) {
  test(`a streamed body of another length fails and releases its slot: ${name}`, async (t) => {
    const up = await upstream(t, json({}));
    const gate = new Gate({ targets: { llm: { url: up.url, cap: 1, metrics: "off" } }, ...options });
    for (const [length, ...chunks] of [
      ["5", "abc"],
      ["3", "ab", "cd"],
      ["3", "abc", "d"],
      ["0", "a"],
    ]) {
      const body = new ReadableStream({
        start(controller) {
          for (const chunk of chunks) controller.enqueue(new TextEncoder().encode(chunk));
          controller.close();
        },
      });
      const init = { method: "POST", body, duplex: "half", headers: { "content-length": length } };
      await assert.rejects(gate.fetch(`${up.url}/v1/files`, init), TypeError, `${length} ${chunks}`);
      await until(() => inFlight(gate) === 0);
    }
    // The platform's own fetch sends what was declared before it fails.
    if (name !== "native") return;
    await (await gate.fetch(up.url)).text();
    // A broken request has no body.
    const whole = up.exchanges.filter(({ body }) => body !== undefined);
    assert.deepEqual(
      whole.map(({ request }) => request.method),
      ["GET"],
    );
  });
}

test("an invalid request cancels its streamed body", async (t) => {
  const up = await upstream(t, json({}));
  const cancelled = [];
  const body = new ReadableStream({ cancel: (why) => void cancelled.push(why) });
  const call = gate.fetch(up.url, { ...streamed("x"), body });
  await assert.rejects(call, (error) => error === cancelled[0]);
});

for (const [name, request] of Object.entries(requests)) {
  test(`request: ${name}`, async (t) => {
    const up = await upstream(t, echo);
    await both(async (fetch) => {
      const response = await request(fetch, up.url);
      const text = await response.text();
      const sent = text.startsWith("{") ? JSON.parse(text) : text;
      return { ...head(response), sent };
    });
  });
}

for (const [name, options] of Object.entries({ native: {}, "a fetch of one's own": { fetch: globalThis.fetch } })) {
  test(`the JSON body of a Request as the options can be sent again: ${name}`, async (t) => {
    let left = 1;
    const up = await upstream(t, (exchange) => (left-- > 0 ? json({}, 503)(exchange) : echo(exchange)));
    const gate = new Gate({ defaults: { retry: { base: "1ms", max: "2ms" } }, ...options });
    const headers = { "content-type": "application/json", "x-own": "1" };
    const request = new Request("http://proxy.test/", { method: "POST", body: '{"model":"m"}', headers });
    const sent = await (await gate.fetch(`${up.url}/v1/chat/completions`, request)).json();
    assert.deepEqual(
      [sent.method, sent.path, sent.headers["content-type"], sent.headers["x-own"], sent.body, up.exchanges.length],
      ["POST", "/v1/chat/completions", "application/json", "1", '{"model":"m"}', 2],
    );
  });
}

test("request: FormData", async (t) => {
  const up = await upstream(t, echo);
  const form = new FormData();
  form.set("model", "whisper");
  form.set("file", new Blob(["RIFF"], { type: "audio/wav" }), "a.wav");
  const both = [];
  for (const fetch of Object.values(fetches)) {
    const { headers, body } = await (await fetch(up.url, { method: "POST", body: form })).json();
    const boundary = headers["content-type"].split("boundary=")[1];
    delete headers["content-length"];
    both.push({ ...headers, "content-type": "", body: body.replaceAll(boundary, "BOUNDARY") });
  }
  assert.deepEqual(both[1], both[0]);
});

const answers = {
  json: json({ a: "ü" }),
  "no body": ({ response }) => response.writeHead(204).end(),
  "not modified": ({ response }) => response.writeHead(304).end(),
  empty: ({ response }) => response.writeHead(200, { "content-length": "0" }).end(),
  "an error": json({ error: 1 }, 404),
  "a status of one's own": ({ response }) => response.writeHead(299, "Fine").end("x"),
  "a status beyond all": ({ response }) => response.writeHead(999, "Odd").end("x"),
  cookies: ({ response }) => response.writeHead(200, { "set-cookie": ["a=1", "b=2"], "x-y": ["1", "2"] }).end("x"),
  "a byte-order mark": ({ response }) => response.writeHead(200).end("\ufeff{}"),
  "invalid UTF-8": ({ response }) => response.writeHead(200).end(Buffer.from([0x61, 0xff, 0x62])),
  binary: ({ response }) => response.writeHead(200, { "content-type": "audio/wav" }).end(Buffer.alloc(3, 7)),
  "latin-1 in a header": ({ response }) => response.writeHead(200, { "x-y": "ÿ" }).end(),
  gzip: encoded("gzip", zlib.gzipSync),
  "x-gzip": encoded("X-GZip", zlib.gzipSync),
  deflate: encoded("deflate", zlib.deflateSync),
  "raw deflate": encoded("deflate", zlib.deflateRawSync),
  br: encoded("br", zlib.brotliCompressSync),
  // Node before 22.15 has no zstd.
  ...(zlib.zstdCompressSync && { zstd: encoded("zstd", zlib.zstdCompressSync) }),
  "gzip in gzip": encoded("gzip, gzip", (data) => zlib.gzipSync(zlib.gzipSync(data))),
  "an unknown encoding": encoded("rot13", (data) => data),
  "two lines of encodings": encoded(["gzip", "gzip"], (data) => zlib.gzipSync(zlib.gzipSync(data))),
  "an encoding that is a property": encoded("constructor", (data) => data),
  "an encoding that is a prototype": encoded("__proto__", (data) => data),
  "six encodings": encoded("gzip, gzip, gzip, gzip, gzip, gzip", (data) => data),
  "gzip cut short": encoded("gzip", (data) => zlib.gzipSync(data).subarray(0, 20)),
  "no gzip at all": encoded("gzip", (data) => data),
  "gzip without content": ({ response }) => response.writeHead(200, { "content-encoding": "gzip" }).end(),
};

function encoded(encoding, encode) {
  const data = encode(Buffer.from(JSON.stringify({ text: "hello ".repeat(5000) })));
  return ({ response }) => {
    response.writeHead(200, { "content-encoding": encoding, "content-type": "application/json" });
    response.write(data.subarray(0, 11));
    response.end(data.subarray(11));
  };
}

const readers = {
  text: (response) => response.text(),
  json: (response) => response.json(),
  arrayBuffer: async (response) => Buffer.from(await response.arrayBuffer()).toString("latin1"),
  blob: async (response) => {
    const blob = await response.blob();
    return { type: blob.type, text: await blob.text() };
  },
  "for await": async (response) => {
    const chunks = [];
    for await (const chunk of response.body ?? []) chunks.push(chunk);
    return Buffer.concat(chunks).toString("latin1");
  },
  byob: async (response) => {
    const reader = response.body?.getReader({ mode: "byob" });
    let text = "";
    for (let buffer = new Uint8Array(7); reader; ) {
      const { done, value } = await reader.read(buffer);
      if (done) break;
      text += Buffer.from(value).toString("latin1");
      buffer = new Uint8Array(value.buffer);
    }
    return text;
  },
  "a clone": async (response) => {
    const copy = response.clone();
    const texts = [await copy.text(), await response.text()];
    return { ...head(copy), texts };
  },
  "a clone of a clone": async (response) => response.clone().clone().text(),
  twice: async (response) => {
    await response.text();
    return response.text();
  },
  "body after text": async (response) => {
    await response.text();
    return { ...head(response), locked: response.body?.locked };
  },
  "text after body": async (response) => {
    const touched = response.body?.locked;
    return { touched, text: await response.text() };
  },
  "a clone after text": async (response) => {
    await response.text();
    return head(response.clone());
  },
  "a Response around it": async (response) => new Response(response.body, response).text(),
};

for (const [name, answer] of Object.entries(answers)) {
  test(`response: ${name}`, async (t) => {
    const up = await upstream(t, answer);
    for (const read of Object.values(readers)) {
      await both(async (fetch) => {
        const response = await fetch(up.url);
        // The gate adds a header that tells the SDK not to retry.
        const headers = [...response.headers].filter(([name]) => name !== "date" && name !== "x-should-retry");
        const before = head(response);
        return { before, headers, content: await read(response), after: head(response) };
      });
    }
  });
}

test("a response with too many encodings is rejected, with the reason", async (t) => {
  const up = await upstream(t, json({}, 200, { "content-encoding": "gzip, ".repeat(6) }));
  for (const fetch of Object.values(fetches)) {
    await assert.rejects(fetch(up.url), ({ cause }) => /content-encoding/.test(cause.message));
  }
});

/** Returns the code of the cause with which a call, or the read of its response, rejects. */
async function failureCode(call) {
  try {
    await (await call).text();
  } catch (error) {
    return error.cause.code;
  }
}

test("failures of the network have the codes of the platform's fetch", async (t) => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const refusing = `http://127.0.0.1:${server.address().port}/`;
  server.close();
  await once(server, "close");
  const up = await upstream(t, hangUp);
  const cut = await upstream(t, ({ request, response }) => {
    response.writeHead(200, { "content-length": "9" });
    response.write("cut", () => request.socket.destroy());
  });
  for (const [url, code] of [
    [refusing, "ECONNREFUSED"],
    [up.url, "UND_ERR_SOCKET"],
    [cut.url, "UND_ERR_SOCKET"],
  ]) {
    for (const fetch of [fetches.platform, new Gate(ONCE).fetch]) assert.equal(await failureCode(fetch(url)), code);
  }
  const chat = { method: "POST", body: JSON.stringify({ model: "m", stream: true }) };
  const timed = (limits) => {
    const { fetch } = new Gate({ defaults: { ...ONCE.defaults, ...limits } });
    return failureCode(fetch(`${up.url}/v1/chat/completions`, chat));
  };
  up.handler = never;
  assert.equal(await timed({ first_token: "10ms" }), "UND_ERR_HEADERS_TIMEOUT");
  up.handler = stallAfter(delta("hel"));
  assert.equal(await timed({ idle: "10ms" }), "UND_ERR_BODY_TIMEOUT");
});

test("the error has the stack of the caller", async () => {
  async function theCaller(fetch) {
    await fetch("http://127.0.0.1:1/");
  }
  for (const fetch of [...Object.values(fetches), new Gate({ fetch: fetches.platform }).fetch]) {
    await assert.rejects(theCaller(fetch), ({ stack }) => stack.includes("at async theCaller"));
  }
});

test("the function has the name and the length of the platform's", () => {
  assert.deepEqual([gate.fetch.name, gate.fetch.length], ["fetch", fetches.platform.length]);
});

test("failed redirects and decodings release their slots", async (t) => {
  const up = await upstream(t, ({ path, response }) => {
    response.writeHead(
      ...(path === "/302" ? [302, { location: "/" }] : [200, { "content-encoding": "gzip,".repeat(6) }]),
    );
    response.write("more to come");
  });
  await assert.rejects(gate.fetch(`${up.url}/302`, { redirect: "error" }), TypeError);
  await assert.rejects(gate.fetch(up.url), TypeError);
  for (const exchange of up.exchanges) await exchange.closed;
});

test("a response is an instance of the platform's Response", async (t) => {
  const up = await upstream(t, json({}, 200, { "x-a": "1" }));
  const response = await gate.fetch(up.url);
  assert.ok(response instanceof Response);
  assert.ok(response.headers instanceof Headers);
  assert.equal(response.headers, response.headers);
  assert.equal(Object.prototype.toString.call(response), "[object Response]");
  assert.equal(response.constructor.name, "Response");
  assert.ok(response.body instanceof ReadableStream);
  assert.equal(response.body, response.body);
});

const redirects = {};
for (const status of [301, 302, 303, 307, 308]) {
  for (const method of ["GET", "HEAD", "POST", "PUT", "DELETE"]) {
    redirects[`${status} ${method}`] = (fetch, url) => fetch(`${url}/${status}?to=/end`, init(method));
  }
}
const init = (method) => ({
  method,
  headers: { authorization: "Bearer k", cookie: "c=1", "x-mine": "1", "content-language": "de" },
  ...(method === "POST" || method === "PUT" ? { body: "x" } : {}),
});
Object.assign(redirects, {
  "to another origin": (fetch, url, other) => fetch(`${url}/307?to=${other}/end`, init("POST")),
  "to credentials at another origin": (fetch, url, other) =>
    fetch(`${url}/302?to=${other.replace("//", "//u:p@")}/end`),
  "a fragment goes along": (fetch, url) => fetch(`${url}/302?to=/end#mine`),
  "relative to the path": (fetch, url) => fetch(`${url}/302?to=end?x=1`),
  "without a location": (fetch, url) => fetch(`${url}/302`),
  "to nowhere": (fetch, url) => fetch(`${url}/302?to=${encodeURIComponent("http://[")}`),
  "to another scheme": (fetch, url) => fetch(`${url}/302?to=data:text/plain,x`),
  "in a circle": (fetch, url) =>
    fetch(`${url}/307?to=${encodeURIComponent("/307?to=/307")}`).then(() => fetch(`${url}/302?to=?to=%3Fto`)),
  manual: (fetch, url) => fetch(`${url}/302?to=/end`, { redirect: "manual" }),
  error: (fetch, url) => fetch(`${url}/302?to=/end`, { redirect: "error" }),
  "a stream, 307": (fetch, url) =>
    fetch(`${url}/307?to=/end`, { method: "POST", body: new Blob(["x"]).stream(), duplex: "half" }),
  "a stream, 303": (fetch, url) =>
    fetch(`${url}/303?to=/end`, { method: "POST", body: new Blob(["x"]).stream(), duplex: "half" }),
});

for (const [name, request] of Object.entries(redirects)) {
  test(`redirect: ${name}`, async (t) => {
    const redirect = (exchange) => {
      const url = new URL(exchange.path, "http://x");
      const status = Number(url.pathname.slice(1));
      if (!(status > 300)) return echo(exchange);
      const to = url.searchParams.get("to");
      exchange.response.writeHead(status, to === null ? {} : { location: to }).end("moved");
    };
    const [up, other] = [await upstream(t, redirect), await upstream(t, echo)];
    await both(async (fetch) => {
      const response = await request(fetch, up.url, other.url);
      const text = await response.text();
      return { ...head(response), text: text.startsWith("{") ? JSON.parse(text) : text };
    });
  });
}
