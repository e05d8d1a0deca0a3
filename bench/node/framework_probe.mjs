// Runs the Node packages against a scripted upstream, and prints a line of JSON for each, as
// `bench/python/framework_probe.py` describes. The scenario of several event loops is missing, because Node has one.
//
//     node --expose-gc framework_probe.mjs URL
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

import { PACKAGES } from "./framework_clients.mjs";
import { LARGE_PACKAGES } from "./large_framework_clients.mjs";

const { Gate } = createRequire(new URL("../../bindings-node/package.json", import.meta.url))("tidegate");

/** Scenarios of one call that is not aborted. Each value is the path at the scripted upstream. */
const ASK = { "429 once": "once/429", "429 always": "fail/429", "500 always": "fail/500" };
const READ = { "truncated stream": "cut/stream" };
const CANCEL = { "cancelled before headers": "stall/head", "cancelled mid-stream": "stall/stream" };
/**
 * The timeout of one call, in milliseconds.
 *
 * LangChain's own six retries, each of four gate attempts, may take two minutes.
 */
const LONGEST = 300_000;
/** Milliseconds to wait until everything that the upstream has sent has certainly arrived. */
const SETTLED = 300;
/** Maximum milliseconds until the upstream must have seen that a cancelled call was closed. */
const PATIENCE = 2000;
const POLL = 50;

const [url] = process.argv.slice(2);
/** The platform's fetch, kept because packages under test may replace it. */
const { fetch } = globalThis;

/** Returns the requests whose path starts with `prefix`, as the upstream recorded them. */
async function seen(prefix) {
  const { requests } = await (await fetch(`${url}/seen`)).json();
  return requests.filter(({ path }) => path.startsWith(prefix));
}

/**
 * Polls the condition `holds` until it is true, for at most `limit` milliseconds.
 *
 * Resolves to `true` if the condition became true, otherwise to `false`.
 */
async function until(holds, limit) {
  const deadline = performance.now() + limit;
  while (!(await holds())) {
    if (performance.now() >= deadline) return false;
    await sleep(POLL);
  }
  return true;
}

/** Returns the name of an error, or of its class if the name is only `Error`. */
const nameOf = (error) => (error.name === "Error" ? error.constructor.name : error.name);

const ask = (held) =>
  held.ask(AbortSignal.timeout(LONGEST)).then(
    () => "answered",
    (error) => nameOf(error),
  );

const read = (held) =>
  drain(held.stream(AbortSignal.timeout(LONGEST))).then(
    () => "quietly",
    (error) => nameOf(error),
  );

async function drain(stream, text) {
  for await (const _ of stream) text?.();
}

/**
 * Starts a call or a stream and aborts it. Resolves to how it ended: `cancelled`, `quietly`
 * (without an error) or an error name.
 *
 * If `where` is `head`, a call is aborted when the upstream has received it. If `where` is
 * `stream`, a stream is aborted when its first part has also arrived. `arrived` resolves to whether
 * the upstream has received the request.
 */
async function cancel(held, where, arrived) {
  const abort = new AbortController();
  let heard;
  const text = new Promise((resolve) => {
    heard = resolve;
  });
  const call = where === "head" ? held.ask(abort.signal) : drain(held.stream(abort.signal), heard);
  const over = call.then(
    () => "quietly",
    (error) => (abort.signal.aborted ? "cancelled" : nameOf(error)),
  );
  if (where === "stream") await Promise.race([text, over]);
  await until(arrived, LONGEST);
  // Some packages emit events of their own before the model's first event.
  await sleep(SETTLED);
  abort.abort();
  return over;
}

/**
 * Runs all scenarios of one package concurrently, each with its own path and key.
 *
 * Resolves to the results by scenario. `who` is a unique part of the paths. Without `gate`, the
 * stock package is measured.
 */
async function measure({ make }, who, gate) {
  const cell = async (path, play) => {
    const requests = () => seen(`/${path}/${who}/`);
    const held = make(`${url}/${path}/${who}`, `${who}-${path}`, gate);
    const ended = await play(held, path.split("/")[1], async () => (await requests()).length > 0);
    if (play !== cancel) return { attempts: (await requests()).length, ended };
    const over = () => until(async () => (await requests()).every(({ closed_at }) => closed_at), PATIENCE);
    let closed = (await over()) ? "at once" : undefined;
    if (closed === undefined) {
      globalThis.gc();
      closed = (await over()) ? "when collected" : "never";
    }
    return { attempts: (await requests()).length, ended, closed };
  };
  const all = [
    [ask, ASK],
    [read, READ],
    [cancel, CANCEL],
  ];
  const plays = all.flatMap(([play, paths]) =>
    Object.entries(paths).map(async ([scenario, path]) => [scenario, await cell(path, play)]),
  );
  return Object.fromEntries(await Promise.all(plays));
}

const rows = [...PACKAGES, ...LARGE_PACKAGES].map(async (held, index) => {
  const gate = new Gate();
  const [stock, ours] = await Promise.all([measure(held, `${index}-stock`), measure(held, `${index}-ours`, gate)]);
  const inFlight = Object.values(gate.snapshot().targets).reduce((sum, { in_flight }) => sum + in_flight, 0);
  const line = { package: `Node: ${held.title}`, loops: held.loops ?? false, stock, ours, in_flight: inFlight };
  console.error(JSON.stringify(line));
  return line;
});
for (const row of await Promise.all(rows)) console.log(JSON.stringify(row));
