// Experiment `node`: the cost of the package, beside what it replaces.
//
// Each figure is a median over interleaved rounds against one upstream in a process of its own. CPU is that of
// this process, including its threads. "In memory" is a fetch that answers without a network, which shows the cost
// of the SDK's own objects. Prints progress to stderr and, as its last line, one JSON object. Exits with 0 if it
// could measure.
//
//     node --expose-gc bench_node.mjs [--rounds 5] [--calls 8000] [--quick]
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { COMPLETION, EVENT, LAST } from "./answers.mjs";

const require = createRequire(new URL("../../bindings-node/package.json", import.meta.url));
const { Gate } = require("tidegate");
const OpenAI = require("openai");

const MESSAGES = [{ role: "user", content: "x".repeat(220) }];
const BODY = JSON.stringify({ model: "small", messages: MESSAGES });
const STREAM_BODY = JSON.stringify({ model: "small", messages: MESSAGES, stream: true });
const HEADERS = { "content-type": "application/json" };
const [STREAMS, EVENTS, GAP_MS] = [200, 50, 20];

const note = (text) => console.error(text);

/**
 * Makes `calls` calls with the function `call`, at most `inFlight` at a time.
 *
 * Returns calls per second (`rate`) and CPU microseconds per call (`cost`).
 */
async function flood(calls, inFlight, call) {
  globalThis.gc();
  let left = calls;
  const work = async () => {
    while (left-- > 0) await call();
  };
  const [used, began] = [process.cpuUsage(), performance.now()];
  await Promise.all(Array.from({ length: inFlight }, work));
  const seconds = (performance.now() - began) / 1e3;
  const { user, system } = process.cpuUsage(used);
  return { rate: calls / seconds, cost: (user + system) / calls };
}

/**
 * Opens `STREAMS` streams with the function `open`, and reads them concurrently.
 *
 * Returns CPU microseconds per chunk (`cost`), and the median (`p50`) and 99th percentile (`p99`)
 * of the milliseconds until the first chunk of a stream.
 */
async function streams(open) {
  globalThis.gc();
  const firsts = [];
  let chunks = 0;
  const read = async () => {
    const began = performance.now();
    let first = true;
    for await (const _ of (await open()).body) {
      if (first) firsts.push(performance.now() - began);
      first = false;
      chunks++;
    }
  };
  const used = process.cpuUsage();
  await Promise.all(Array.from({ length: STREAMS }, read));
  const { user, system } = process.cpuUsage(used);
  firsts.sort((a, b) => a - b);
  const centile = (p) => firsts[Math.min(firsts.length - 1, Math.floor(firsts.length * p))];
  return { cost: (user + system) / chunks, p50: centile(0.5), p99: centile(0.99) };
}

/** A `fetch` that answers in memory as the upstream would, without a network. */
async function memory(url) {
  if (!String(url).includes("/sse/")) {
    return new Response(COMPLETION, { headers: { ...HEADERS, "x-request-id": "req_1" } });
  }
  const encoder = new TextEncoder();
  let left = EVENTS;
  const body = new ReadableStream({
    pull(controller) {
      controller.enqueue(encoder.encode(left-- > 1 ? EVENT : EVENT + LAST));
      if (left === 0) controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

class Bench {
  #samples = new Map();
  #gate = new Gate({ defaults: { cap: 1024 } });
  #url;
  #options;

  constructor(url, options) {
    this.#url = url;
    this.#options = options;
  }

  async run() {
    const { rounds, calls } = this.#options;
    const client = (fetch) =>
      new OpenAI({ baseURL: `${this.#url}/v1`, apiKey: "k", maxRetries: 0, ...(fetch && { fetch }) });
    const ask = (sdk) => () => sdk.chat.completions.create({ model: "small", messages: MESSAGES });
    const post = (fetch) => async () => {
      const url = `${this.#url}/v1/chat/completions`;
      return (await fetch(url, { method: "POST", body: BODY, headers: HEADERS })).json();
    };
    const open = (fetch) => () => {
      const url = `${this.#url}/sse/${EVENTS}/${GAP_MS}/v1/chat/completions`;
      return fetch(url, { method: "POST", body: STREAM_BODY, headers: HEADERS });
    };
    const fetches = { stock: globalThis.fetch, tidegate: this.#gate.fetch, memory };
    const variants = [
      ["openai stock", ask(client())],
      ["openai wrapped", ask(this.#gate.wrap(client()))],
      ["openai in memory", ask(client(memory))],
      ...Object.entries(fetches).map(([name, fetch]) => [`fetch ${name}`, post(fetch)]),
    ];
    for (let round = 0; round < rounds; round++) {
      // The order rotates, because a variant after a heavy one pays for what that one left behind.
      const turned = [...variants.slice(round % variants.length), ...variants.slice(0, round % variants.length)];
      for (const inFlight of [64, 512]) {
        for (const [name, call] of turned) {
          if (round === 0) await flood(Math.min(calls, 2000), inFlight, call);
          // Slow enough that a quarter of the calls suffices.
          const share = name.includes("stock") ? Math.max(calls / 4, Math.min(calls, 1000)) : calls;
          const { rate, cost } = await flood(share, inFlight, call);
          this.#sample(`${name} ${inFlight}: calls/s`, rate);
          this.#sample(`${name} ${inFlight}: us/call`, cost);
        }
      }
      for (const [name, fetch] of Object.entries(fetches)) {
        if (round === 0) await streams(open(fetch));
        const { cost, p50, p99 } = await streams(open(fetch));
        this.#sample(`sse ${name}: us/chunk`, cost);
        if (name === "memory") continue;
        this.#sample(`sse ${name}: first chunk p50 ms`, p50);
        this.#sample(`sse ${name}: first chunk p99 ms`, p99);
      }
      note(`round ${round + 1}/${rounds}`);
    }
  }

  #sample(name, value) {
    this.#samples.set(name, [...(this.#samples.get(name) ?? []), value]);
  }

  #median(name) {
    const sorted = this.#samples.get(name).toSorted((a, b) => a - b);
    const middle = sorted.length >> 1;
    return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }

  report() {
    const entries = [...this.#samples.keys()].sort().map((name) => [name, round(this.#median(name))]);
    const bars = [];
    const bar = (what, value, op, limit) =>
      bars.push({ what, value: round(value), op, bar: limit, ok: op === ">=" ? value >= limit : value <= limit });
    for (const inFlight of [64, 512]) {
      const [wrapped, stock] = ["wrapped", "stock"].map((name) => this.#median(`openai ${name} ${inFlight}: calls/s`));
      bar(`wrapped / stock openai, calls/s at ${inFlight}`, wrapped / stock, ">=", 1.3);
    }
    for (const centile of ["p50", "p99"]) {
      const [ours, stock] = ["tidegate", "stock"].map((name) => this.#median(`sse ${name}: first chunk ${centile} ms`));
      bar(`first SSE chunk ${centile} over ${STREAMS} streams, tidegate / stock`, ours / stock, "<=", 1);
    }
    return {
      name: "node",
      seeds: [],
      figures: Object.fromEntries(entries),
      peers: {},
      bars,
    };
  }
}

const round = (value) => Math.round(value * 1000) / 1000;

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "5" },
    calls: { type: "string", default: "8000" },
    quick: { type: "boolean", default: false },
  },
});
const options = values.quick
  ? { rounds: 1, calls: 1000 }
  : { rounds: Number(values.rounds), calls: Number(values.calls) };
const upstream = spawn(process.execPath, [fileURLToPath(new URL("fast_upstream.mjs", import.meta.url))], {
  stdio: ["pipe", "pipe", "inherit"],
});
const [port] = await once(createInterface(upstream.stdout), "line");
const bench = new Bench(`http://127.0.0.1:${port}`, options);
try {
  await bench.run();
  console.log(JSON.stringify(bench.report()));
} finally {
  upstream.stdin.end();
}
