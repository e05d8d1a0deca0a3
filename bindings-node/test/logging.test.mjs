// Tests of what the gates log.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Gate } from "tidegate";

test("a store that is not reached is a warning of the process", async () => {
  const warned = once(process, "warning");
  const gate = new Gate({ tools: { db: 2 }, share: "redis://127.0.0.1:1" });
  const tool = gate.tool("db", async () => (await warned)[0]);
  // The warning comes from another thread, for which Node does not wait.
  const alive = setInterval(() => {}, 1000);
  const warning = await tool;
  clearInterval(alive);
  assert.equal(warning.name, "TidegateWarning");
  assert.match(warning.message, /the store of shared limits is lost.*redis:\/\/127\.0\.0\.1:1/);
});

test("a thread gets the warnings if no thread before it is left", () => {
  const worker = `
    const { Gate } = require("tidegate");
    process.on("warning", ({ name }) => { console.log(name); process.exit(); });
    new Gate({ tools: { db: 2 }, share: "redis://127.0.0.1:1" }).acquireTool("db").catch(() => {});
    setInterval(() => {}, 1000);
  `;
  const script = `
    const { once } = require("node:events");
    const { Worker } = require("node:worker_threads");
    const run = () => once(new Worker(${JSON.stringify(worker)}, { eval: true }), "exit");
    run().then(run);
  `;
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const { stdout } = spawnSync(process.execPath, ["-e", script], { cwd, timeout: 60_000 });
  assert.equal(String(stdout), "TidegateWarning\nTidegateWarning\n");
});
