// A program for tests of how a process ends: `calls-in-every-state.mjs URL HOW`.
import { Gate } from "tidegate";
import { VirtualClock } from "tidegate/testing";

const [url, how] = process.argv.slice(2);
const gate = new Gate({
  tools: { db: 1 },
  targets: { llm: { url, metrics: "off", ...(how.startsWith("lost") && { cap: 2 }) } },
  defaults: { stall: "none" },
  ...(how === "lost by a custom fetch" && { fetch: longAnswer }),
});
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

async function lose(calls) {
  for (let lost = 0; lost < calls; lost++) await gate.fetch(url, init);
}

/** A custom fetch whose response has more chunks than the gate reads ahead. */
async function longAnswer(...request) {
  const response = await fetch(...request);
  const body = new ReadableStream({
    start(controller) {
      for (let chunk = 0; chunk < 20; chunk++) controller.enqueue(Buffer.alloc(70_000));
    },
  });
  return new Response(body, { headers: response.headers });
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
    await lose(6);
    break;
  case "lost beside tools":
    await gate.acquireTool("db");
    for (let wait = 0; wait < 2; wait++) void gate.acquireTool("db");
    await lose(6);
    process.exit();
    break;
  case "lost by a custom fetch":
    await lose(6);
    process.exit();
    break;
  case "lost before a slot":
    await lose(2);
    await gate.slot("llm", () => {});
    await lose(4);
    break;
  case "lost after virtual time": {
    const clock = new VirtualClock().start();
    await clock.until(new Gate().drain(0));
    clock.stop();
    await lose(6);
    break;
  }
  case "forever":
    await busy();
    await new Promise(() => {});
}
