// The process, and each of its threads, can end at any moment.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

import { stallAfter, upstream } from "./support/upstream.mjs";

const program = fileURLToPath(new URL("./support/program.mjs", import.meta.url));

/** Runs the program in a process of its own; what it wrote, and how it ended. */
async function run(up, how, ...flags) {
  const child = spawn(process.execPath, [...flags, program, up.url, how], { stdio: ["ignore", "pipe", "pipe"] });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (data) => {
    stdout += data;
  });
  child.stderr.on("data", (data) => {
    stderr += data;
  });
  const [code, signal] = await once(child, "close");
  return { code, signal, stdout, stderr };
}

for (const [how, code] of Object.entries({ exit: 7, throw: 1, reject: 1, idle: 0 })) {
  test(`a process ends with calls in flight: ${how}`, async (t) => {
    const up = await upstream(t, stallAfter("{}"));
    const runs = await Promise.all(Array.from({ length: 8 }, () => run(up, how)));
    for (const { code: ended, signal, stdout, stderr } of runs) {
      assert.deepEqual([ended, signal, stdout], [code, null, "running\n"], stderr);
    }
    for (const exchange of up.exchanges) await exchange.closed;
  });
}

test("a call keeps the process alive until it is over, and no longer", async (t) => {
  const up = await upstream(t, ({ response }) => response.end("done"));
  assert.deepEqual(await run(up, "await"), { code: 0, signal: null, stdout: "running\ndone\n", stderr: "" });
});

test("bodies that everybody lost do not keep others waiting", { timeout: 120_000 }, async (t) => {
  const up = await upstream(t, stallAfter("{}"));
  // Waiting makes no garbage, and without this flag V8 may tidy up by itself.
  const { code, stderr } = await run(up, "lost", "--no-memory-reducer");
  assert.equal(code, 0, stderr);
  assert.equal(up.exchanges.length, 6);
});

test("a worker thread that is terminated with calls in flight gives them up", async (t) => {
  const up = await upstream(t, stallAfter("{}"));
  for (let round = 0; round < 8; round++) {
    const worker = new Worker(program, { argv: [up.url, "forever"], stdout: true });
    const before = up.exchanges.length;
    await up.exchange(before + 9);
    assert.equal(await worker.terminate(), 1);
    for (const exchange of up.exchanges.slice(before)) await exchange.closed;
  }
});

test("worker threads side by side, each with a gate of its own", async (t) => {
  const up = await upstream(t, ({ response }) => response.end("done"));
  const ends = Array.from({ length: 4 }, async () => {
    const worker = new Worker(program, { argv: [up.url, "await"], stdout: true });
    return (await once(worker, "exit"))[0];
  });
  assert.deepEqual(await Promise.all(ends), [0, 0, 0, 0]);
  assert.equal(up.exchanges.length, 4);
});
