// A program for tests of how a process ends: `calls-in-every-state.mjs URL HOW`.
import { Gate } from "tidegate";

const [url, how] = process.argv.slice(2);
const gate = new Gate({ tools: { db: 1 }, defaults: { stall: "none", ...(how === "lost" && { cap: 2 }) } });
const init = { method: "POST", body: JSON.stringify({ model: "m", stream: true }) };

/**
 * Acquires the tool and starts calls, so that there is one of each: a held tool, a wait for the
 * tool, a stream with a pending read, streams that nobody reads, and calls that have not been sent.
 */
async function busy() {
  await gate.acquireTool("db");
  const wanted = gate.acquireTool("db").catch(() => {});
  const streams = await Promise.all(Array.from({ length: 8 }, () => gate.fetch(url, init)));
  const reader = streams[0].body.getReader();
  await reader.read();
  const pull = reader.read().catch(() => {});
  const calls = Array.from({ length: 8 }, () => gate.fetch(url, init).catch(() => {}));
  return [wanted, pull, streams, calls];
}

switch (how) {
  case "exit":
    await busy();
    console.log("running");
    process.exit(7);
    break;
  case "throw":
    await busy();
    console.log("running");
    setImmediate(() => {
      throw new Error("uncaught");
    });
    break;
  case "reject":
    await busy();
    console.log("running");
    Promise.reject(new Error("unhandled"));
    break;
  case "idle": {
    // Held slots and unread bodies do not keep the process alive.
    const slot = await gate.acquireTool("db");
    const response = await gate.fetch(url, init);
    globalThis.kept = [slot, response];
    console.log("running");
    break;
  }
  case "await":
    console.log("running");
    console.log(await (await gate.fetch(url, init)).text());
    break;
  case "lost":
    for (let lost = 0; lost < 6; lost++) await gate.fetch(url, init);
    break;
  case "forever":
    await busy();
    await new Promise(() => {});
}
