// Tests of what the gates log.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
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
