// Experiment `node-abort`: the time from an abort until the upstream sees the connection closed.
//
// Calls are aborted before the head; mid-stream without a pending read; mid-stream with a pending
// read; and by one signal that twenty calls share. Calls with a signal that is already aborted must
// not arrive at the upstream. Tidegate is compared with the platform's fetch (undici), and with a
// fetch that rejects without cancelling the request (`Promise.race`). The upstream is a process of
// its own. Prints one JSON object as its last line.
import { bar, Gate, note, report, scripted, sleep } from "./experiment_support.mjs";

const CALLS = 200;
const TOGETHER = 20;
/**
 * Milliseconds to wait after sending a request until it has certainly reached the upstream, which
 * does not answer it.
 */
const UNDER_WAY = 100;
const STAGES = ["head", "stream", "pull", "shared"];
const BODY = JSON.stringify({ model: "small", messages: [{ role: "user", content: "hello" }], stream: true });
const now = () => Number(process.hrtime.bigint()) / 1e6;

/**
 * Starts a call with the id `id`, and resolves when it has reached `stage`.
 *
 * The caller then aborts the call with `signal`. `ended` in the result is a promise that rejects
 * when the client reports the abort.
 */
async function staged(fetch, url, id, stage, signal) {
  const path = stage === "head" ? "head" : "stream";
  const init = { method: "POST", body: BODY, headers: { "content-type": "application/json", "x-id": id }, signal };
  const response = fetch(`${url}/stall/${path}/v1/chat/completions`, init);
  if (stage === "head") {
    response.catch(() => {});
    await sleep(UNDER_WAY);
    return { ended: response };
  }
  const reader = (await response).body.getReader();
  await reader.read();
  const ended = stage === "stream" ? reader.closed : reader.read();
  ended.catch(() => {});
  return { ended, reader };
}

/**
 * Aborts `CALLS` calls in the given stage.
 *
 * Returns the quantiles of the milliseconds between each abort and the close of the connection at
 * the upstream, and the number of calls whose close the upstream did not see.
 */
async function measure(fetch, url, who, stage) {
  const aborted = new Map();
  for (let first = 0; first < CALLS; first += TOGETHER) {
    const ids = Array.from({ length: TOGETHER }, (_, nth) => `${who}-${stage}-${first + nth}`);
    const shared = new AbortController();
    const controls = ids.map(() => (stage === "shared" ? shared : new AbortController()));
    const calls = await Promise.all(ids.map((id, nth) => staged(fetch, url, id, stage, controls[nth].signal)));
    for (const [nth, id] of ids.entries()) {
      aborted.set(id, now());
      controls[nth].abort();
    }
    await Promise.allSettled(calls.map(({ ended }) => Promise.race([ended, sleep(1000)])));
  }
  await sleep(1000);
  const seen = await statistics(url);
  const took = [...aborted].flatMap(([id, at]) => (seen[id]?.closed ? [seen[id].closed - at] : []));
  took.sort((a, b) => a - b);
  // Null if too few closes were seen.
  const at = (share) =>
    took.length > CALLS / 2 ? Math.round(took[Math.floor(share * took.length)] * 100) / 100 : null;
  return { "p50 ms": at(0.5), "p99 ms": at(0.99), "never seen": CALLS - took.length };
}

/**
 * Makes `CALLS` calls with a signal that is already aborted.
 *
 * Returns the number of calls that arrived at the upstream, and the number whose promise rejected
 * with the reason of the signal.
 */
async function already(fetch, url, who) {
  const calls = Array.from({ length: CALLS }, (_, nth) =>
    staged(fetch, url, `${who}-already-${nth}`, "pull", AbortSignal.abort()),
  );
  const settled = await Promise.allSettled(calls);
  const kept = settled.filter(({ status, reason }) => status === "rejected" && reason?.name === "AbortError").length;
  await sleep(200);
  const arrived = Object.keys(await statistics(url)).filter((id) => id.startsWith(`${who}-already-`)).length;
  return { "arrived upstream": arrived, "rejected with the signal's reason": kept };
}

const statistics = async (url) => (await fetch(`${url}/seen`)).json();

/** A `fetch` whose promise rejects when `signal` is aborted, although the request continues. */
function detached(input, { signal, ...init }) {
  const aborted = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  return Promise.race([fetch(input, init), aborted]);
}

await scripted(async (url) => {
  // An adaptive limit would begin below the calls of a batch, and the others would never arrive.
  const gate = new Gate({ defaults: { cap: CALLS } });
  const variants = { tidegate: gate.fetch, undici: fetch, "a fetch that detaches": detached };
  const results = {};
  for (const [who, variant] of Object.entries(variants)) {
    results[who] = {};
    // Three stages suffice for "off". The fourth would only warn of twenty listeners on one signal.
    for (const stage of variant === detached ? STAGES.slice(0, 3) : STAGES) {
      results[who][stage] = await measure(variant, url, who, stage);
      note(`${who}, ${stage}: ${JSON.stringify(results[who][stage])}`);
    }
    if (variant !== detached) results[who].already = await already(variant, url, who);
  }
  const { tidegate: ours, ...peers } = results;
  const targets = Object.values(gate.snapshot().targets);
  ours["in flight afterwards"] = targets.reduce((sum, target) => sum + target.in_flight, 0);
  const bars = STAGES.flatMap((stage) => [
    bar(`p99 ms until the upstream sees it, ${stage}`, ours[stage]["p99 ms"] ?? Infinity, "<=", 50),
    bar(`never seen, ${stage}`, ours[stage]["never seen"], "<=", 0),
  ]);
  bars.push(bar("already aborted: arrived upstream", ours.already["arrived upstream"], "<=", 0));
  bars.push(bar("in flight afterwards", ours["in flight afterwards"], "<=", 0));
  report("node-abort", ours, peers, bars);
});
