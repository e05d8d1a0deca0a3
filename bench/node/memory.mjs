// Experiment `node-memory`: the resident memory of an open event stream, with 1,000 and 5,000 streams, beside undici.
//
// Each figure has a fresh process. The process opens a few streams and closes them, collects garbage, and reads its
// resident size. Then it opens all streams, each with a reader that has the first chunk and waits for the next,
// collects garbage, and reads its size again. This process and the upstream need one file descriptor per stream.
// Prints one JSON object as its last line.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

import { Gate, note, report, scripted, sleep } from "./experiment_support.mjs";

const [WARM_UP, AT_ONCE, SETTLE] = [16, 64, 1000];
const STREAMS = [1000, 5000];
const BODY = JSON.stringify({ model: "small", messages: [{ role: "user", content: "hello" }], stream: true });
const HEADERS = { "content-type": "application/json" };

const FETCHES = {
  tidegate: () => new Gate({ defaults: { cap: Math.max(...STREAMS) + WARM_UP } }).fetch,
  undici: () => fetch,
};

/**
 * Opens `streams` event streams, and reads the first chunk of each.
 *
 * Resolves to one object for each stream: its `reader`, and the pending read of the `next` chunk.
 */
async function opened(fetch, url, streams) {
  const held = [];
  let left = streams;
  const work = async () => {
    while (left-- > 0) {
      const init = { method: "POST", body: BODY, headers: HEADERS };
      const reader = (await fetch(`${url}/stall/stream/v1/chat/completions`, init)).body.getReader();
      await reader.read();
      held.push({ reader, next: reader.read() });
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, streams) }, work));
  return held;
}

async function resident() {
  await sleep(SETTLE);
  globalThis.gc();
  await sleep(SETTLE);
  return process.memoryUsage().rss / 1024;
}

/**
 * Opens `streams` event streams with the `fetch` of `who`, prints the growth of the process's
 * resident memory in KiB (in total), and exits.
 */
async function hold(who, url, streams) {
  const fetch = FETCHES[who]();
  for (const { reader } of await opened(fetch, url, WARM_UP)) await reader.cancel();
  const before = await resident();
  const held = await opened(fetch, url, streams);
  console.log((await resident()) - before);
  process.exit(held.length === streams ? 0 : 1);
}

const [who, url, streams] = process.argv.slice(2);
if (who !== undefined) {
  await hold(who, url, Number(streams));
} else {
  const results = {};
  for (const name of Object.keys(FETCHES)) {
    results[name] = {};
    for (const count of STREAMS) {
      await scripted(async (base) => {
        const command = ["--expose-gc", fileURLToPath(import.meta.url), name, base, String(count)];
        const total = Number(execFileSync(process.execPath, command, { encoding: "utf8" }));
        results[name][`${count} streams, KiB each`] = Math.round((total / count) * 10) / 10;
      });
      note(`${name}: ${JSON.stringify(results[name])}`);
    }
  }
  const { tidegate: ours, ...peers } = results;
  report("node-memory", ours, peers, []);
}
