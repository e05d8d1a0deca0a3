// Tests that a custom global dispatcher of undici makes the exchanges.
import assert from "node:assert/strict";
import diagnostics from "node:diagnostics_channel";
import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import net from "node:net";
import { test } from "node:test";

import OpenAI from "openai";
import { Gate } from "tidegate";
import {
  Agent,
  Agent as Default,
  EnvHttpProxyAgent,
  getGlobalDispatcher,
  interceptors,
  MockAgent,
  Pool,
  ProxyAgent,
  setGlobalDispatcher,
} from "undici";

import { CHAT, inFlight, MESSAGES, ONCE } from "./support/provider-payloads.mjs";
import { json, upstream } from "./support/upstream.mjs";

const original = getGlobalDispatcher();

/** Sets the global dispatcher of undici until the end of the test `t`. */
function set(t, dispatcher) {
  setGlobalDispatcher(dispatcher);
  t.after(async () => {
    setGlobalDispatcher(original);
    await dispatcher.close();
  });
}

/**
 * Returns an object whose `requests` counts the requests that undici (Node's own and the npm
 * package) makes until the end of the test `t`.
 */
function counted(t) {
  const count = { requests: 0 };
  const onCreate = () => count.requests++;
  diagnostics.subscribe("undici:request:create", onCreate);
  t.after(() => diagnostics.unsubscribe("undici:request:create", onCreate));
  return count;
}

/**
 * Starts a proxy that connects each CONNECT tunnel to the server `up`, whatever destination is
 * requested. Its `tunnels` lists the requested destinations.
 */
async function proxy(t, up) {
  const server = http.createServer();
  server.tunnels = [];
  server.on("connect", (request, socket) => {
    server.tunnels.push(request.url);
    const upstream = net.connect(up.server.address().port, "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      socket.pipe(upstream).pipe(socket);
    });
    for (const end of [socket, upstream]) end.on("error", () => {});
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  server.url = `http://127.0.0.1:${server.address().port}`;
  return server;
}

test("the default dispatcher makes no exchanges", async (t) => {
  const up = await upstream(t, json({ ok: true }));
  const count = counted(t);
  const gate = new Gate(ONCE);
  assert.deepEqual(await (await gate.fetch(up.url)).json(), { ok: true });
  set(t, new Agent());
  assert.deepEqual(await (await gate.fetch(up.url)).json(), { ok: true });
  assert.deepEqual([count.requests, up.exchanges.length], [0, 2]);
});

test("a global proxy dispatcher is used", async (t) => {
  const up = await upstream(t, json(CHAT));
  const server = await proxy(t, up);
  const gate = new Gate(ONCE);
  const sdk = gate.wrap(new OpenAI({ apiKey: "k", baseURL: "http://llm.internal/v1" }));
  for (const dispatcher of [
    new ProxyAgent({ uri: server.url, proxyTunnel: true }),
    new EnvHttpProxyAgent({ httpProxy: server.url, proxyTunnel: true }),
  ]) {
    set(t, dispatcher);
    assert.equal((await gate.fetch("http://llm.internal/v1/models")).status, 200);
    assert.equal((await sdk.chat.completions.create({ model: "m", messages: MESSAGES })).id, CHAT.id);
  }
  assert.deepEqual(new Set(server.tunnels), new Set(["llm.internal:80"]));
  assert.equal(up.exchanges.length, 4);
});

test("a global mock can be set and removed at run time", async (t) => {
  const up = await upstream(t, json({ from: "the server" }));
  const gate = new Gate(ONCE);
  const from = async () => (await (await gate.fetch(`${up.url}/x`)).json()).from;
  assert.equal(await from(), "the server");
  const mock = new MockAgent();
  mock.disableNetConnect();
  set(t, mock);
  mock.get(up.url).intercept({ path: "/x" }).reply(200, { from: "the mock" });
  assert.equal(await from(), "the mock");
  await assert.rejects(from(), TypeError);
  setGlobalDispatcher(original);
  assert.equal(await from(), "the server");
  assert.equal(up.exchanges.length, 2);
});

test("a global agent with custom TLS settings is used", async (t) => {
  const psk = Buffer.alloc(32, 7);
  const ciphers = "PSK-AES256-GCM-SHA384";
  const maxVersion = "TLSv1.2";
  const serving = { ciphers, maxVersion, pskCallback: (_, identity) => (identity === "tidegate" ? psk : null) };
  const server = https.createServer(serving, (_, response) => response.end("secret"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const gate = new Gate(ONCE);
  const url = `https://127.0.0.1:${server.address().port}`;
  await assert.rejects(gate.fetch(url), TypeError);
  const checkServerIdentity = () => undefined;
  const pskCallback = () => ({ psk, identity: "tidegate" });
  set(t, new Agent({ connect: { ciphers, maxVersion, pskCallback, checkServerIdentity } }));
  assert.equal(await (await gate.fetch(url)).text(), "secret");
});

// undici 7 (Node 24) keeps the dispatcher of a Request in a private field.
const unreadable = Number.parseInt(process.versions.undici, 10) >= 7;

test("the dispatcher of a Request makes its exchange", { skip: unreadable }, async (t) => {
  const up = await upstream(t, json({ from: "the server" }));
  const count = counted(t);
  const gate = new Gate(ONCE);
  const from = async (...request) => (await (await gate.fetch(...request)).json()).from;
  const mock = new MockAgent();
  mock.disableNetConnect();
  const agent = new Agent();
  t.after(() => Promise.all([mock.close(), agent.close()]));
  mock.get(up.url).intercept({ path: "/x" }).reply(200, { from: "the mock" });
  assert.equal(await from(new Request(`${up.url}/x`, { dispatcher: mock })), "the mock");
  await assert.rejects(from(new Request(`${up.url}/x`, { dispatcher: mock })), TypeError);
  assert.equal(up.exchanges.length, 0);
  count.requests = 0;
  const request = new Request(`${up.url}/x`, { method: "POST", body: "hi", dispatcher: agent });
  assert.equal(await from(request), "the server");
  assert.deepEqual([count.requests, up.exchanges[0].body.toString()], [1, "hi"]);
  // The option of a call has precedence, as in the platform's fetch.
  assert.equal(await from(new Request(`${up.url}/x`, { dispatcher: mock }), { dispatcher: agent }), "the server");
  assert.equal(await from(new Request(`${up.url}/x`)), "the server");
  assert.deepEqual([count.requests, up.exchanges.length], [2, 3]);
});

test("a custom fetch gets the dispatcher of a Request", { skip: unreadable }, async (t) => {
  const agent = new Agent();
  t.after(() => agent.close());
  const seen = [];
  const fetch = async (_, init) => {
    seen.push(init.dispatcher === agent);
    return Response.json({});
  };
  await new Gate({ fetch, ...ONCE }).fetch(new Request("http://llm.internal/", { dispatcher: agent }));
  assert.deepEqual(seen, [true]);
});

test("the next call uses a dispatch method that is replaced in place", async (t) => {
  const up = await upstream(t, json({ ok: true }));
  const count = counted(t);
  const agent = new Agent();
  set(t, agent);
  const gate = new Gate(ONCE);
  const requests = async () => {
    count.requests = 0;
    assert.equal((await gate.fetch(up.url)).status, 200);
    return count.requests;
  };
  assert.equal(await requests(), 0);
  const { dispatch } = agent;
  let dispatched = 0;
  agent.dispatch = (...request) => {
    dispatched++;
    return dispatch.apply(agent, request);
  };
  assert.deepEqual([await requests(), dispatched], [1, 1]);
  delete agent.dispatch;
  assert.deepEqual([await requests(), dispatched], [0, 1]);
});

for (const [name, made] of Object.entries({
  "an agent with a factory": () => new Agent({ factory: (origin, options) => new Pool(origin, options) }),
  "an agent with an interceptor": () => new Agent().compose(interceptors.retry({ maxRetries: 0 })),
  "a subclass of the same name": () => new (class Agent extends Default {})(),
  "an object that dispatches": () => ({
    dispatch: (...request) => original.dispatch(...request),
    close: async () => {},
  }),
})) {
  test(name, async (t) => {
    const up = await upstream(t, json({ ok: true }));
    const count = counted(t);
    set(t, made());
    assert.equal((await new Gate(ONCE).fetch(up.url)).status, 200);
    assert.ok(count.requests >= 1);
  });
}

test("calls by a global dispatcher are queued, retried and counted", async (t) => {
  let busy = true;
  const up = await upstream(t, (exchange) => {
    const status = busy ? 503 : 200;
    busy = false;
    json(CHAT, status)(exchange);
  });
  set(t, new Agent({ connections: 8 }));
  const retry = { attempts: 2, base: "1ms", max: "1ms" };
  const gate = new Gate({ targets: { llm: { url: up.url, cap: 1, retry } } });
  const chat = { method: "POST", body: JSON.stringify({ model: "m", messages: MESSAGES }) };
  const calls = [1, 2, 3].map(() => gate.fetch(`${up.url}/v1/chat/completions`, chat));
  const answers = await Promise.all(calls.map(async (call) => (await (await call).json()).id));
  assert.deepEqual(answers, [CHAT.id, CHAT.id, CHAT.id]);
  assert.equal(up.exchanges.length, 4);
  assert.equal(inFlight(gate), 0);
});

test("native transport and a custom fetch ignore the global dispatcher", async (t) => {
  const up = await upstream(t, json(CHAT));
  const count = counted(t);
  set(t, new Agent({ connections: 1 }));
  const client = new OpenAI({ apiKey: "k", baseURL: `${up.url}/v1` });
  const sdk = new Gate(ONCE).wrap(client, { transport: "native" });
  assert.equal((await sdk.chat.completions.create({ model: "m", messages: MESSAGES })).id, CHAT.id);
  const own = new Gate({ fetch: async () => Response.json({ from: "own" }), ...ONCE });
  assert.deepEqual(await (await own.fetch(up.url)).json(), { from: "own" });
  assert.deepEqual([count.requests, up.exchanges.length], [0, 1]);
});
