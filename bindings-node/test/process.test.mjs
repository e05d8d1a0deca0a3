// Tests that the process and each of its threads can end at any time.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

import { stallAfter, upstream } from "./support/upstream.mjs";

const program = fileURLToPath(new URL("./support/calls-in-every-state.mjs", import.meta.url));

/**
 * Runs `support/program.mjs` in a new process, with the URL of the server `up`, the argument `how`
 * and these flags of Node. Returns the exit status, the signal and the output.
 */
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

test("a call keeps the process alive until it ends", async (t) => {
  const up = await upstream(t, ({ response }) => response.end("done"));
  assert.deepEqual(await run(up, "await"), { code: 0, signal: null, stdout: "running\ndone\n", stderr: "" });
});

test("collected bodies do not block other calls", { timeout: 120_000 }, async (t) => {
  const ways = ["lost", "lost beside tools", "lost by a custom fetch", "lost before a slot", "lost after virtual time"];
  const lose = async (how) => {
    const up = await upstream(t, stallAfter("{}"));
    // Waiting creates no garbage. Without this flag, V8 may collect garbage by itself.
    const { code, stderr } = await run(up, how, "--no-memory-reducer");
    assert.deepEqual([how, code, up.exchanges.length], [how, 0, 6], stderr);
  };
  await Promise.all(ways.map(lose));
});

test("terminating a worker thread ends its calls", async (t) => {
  const up = await upstream(t, stallAfter("{}"));
  for (let round = 0; round < 8; round++) {
    const worker = new Worker(program, { argv: [up.url, "forever"], stdout: true });
    const before = up.exchanges.length;
    await up.exchange(before + 9);
    assert.equal(await worker.terminate(), 1);
    for (const exchange of up.exchanges.slice(before)) await exchange.closed;
  }
});

test("worker threads have separate gates", async (t) => {
  const up = await upstream(t, ({ response }) => response.end("done"));
  const ends = Array.from({ length: 4 }, async () => {
    const worker = new Worker(program, { argv: [up.url, "await"], stdout: true });
    return (await once(worker, "exit"))[0];
  });
  assert.deepEqual(await Promise.all(ends), [0, 0, 0, 0]);
  assert.equal(up.exchanges.length, 4);
});
