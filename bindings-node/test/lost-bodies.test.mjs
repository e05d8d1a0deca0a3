// Tests when the garbage collector is run to find lost response bodies. Time is simulated.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

// The port stores the timer function when it is loaded.
const { setTimeout } = globalThis;
let timer;
globalThis.setTimeout = (callback, milliseconds) => {
  timer = { callback, milliseconds };
  return { unref() {} };
};
const internal = createRequire(import.meta.url);
const { port } = internal("../dist/completions.js");
globalThis.setTimeout = setTimeout;

// The numbers of `CompletionKind` in `ts/completions.ts`.
const [ANSWER, CHUNK, END, READY] = [0, 2, 3, 4];
const WAITING = 1;
const OTHER = 2;
const gate = { queued: () => 1 };
port.addGate(gate);

/**
 * Lets one call wait while another body is open, and completions of these kinds arrive before each
 * of three checks. Returns the number of collections, and the time until the last check in
 * milliseconds.
 */
function collections(...kinds) {
  let [collected, elapsed] = [0, 0];
  port.native.openBodies = () => 1;
  port.native.collectGarbage = () => {
    collected++;
  };
  port.native.take = () => kinds.flatMap((kind) => [OTHER, kind, null, null, null, null]);
  port.wait(WAITING, { settle() {} });
  for (let check = 0; check < 3; check++) {
    if (kinds.length > 0) port.drain();
    elapsed += timer.milliseconds;
    timer.callback();
  }
  port.forget(WAITING);
  // Ends the watch, because nothing waits.
  timer.callback();
  return { collected, elapsed };
}

test("the collector runs while a call waits and nothing completes, at growing intervals", () => {
  assert.deepEqual(collections(), { collected: 3, elapsed: 7000 });
});

test("chunks of other streams do not postpone a collection", () => {
  for (const kind of [CHUNK, END, READY]) assert.deepEqual(collections(kind), { collected: 3, elapsed: 7000 });
});

test("answers of other calls postpone a collection", () => {
  assert.deepEqual(collections(ANSWER), { collected: 0, elapsed: 3000 });
  assert.deepEqual(collections(CHUNK, ANSWER), { collected: 0, elapsed: 3000 });
});

test("checks that find no waiting call do not delay the next ones", () => {
  gate.queued = () => 0;
  assert.deepEqual(collections(CHUNK), { collected: 0, elapsed: 3000 });
  gate.queued = () => 1;
});
