// Tests of limits that several processes share.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Gate } from "tidegate";
import { FakeTarget, ok, VirtualClock } from "tidegate/testing";

const skip = process.platform === "win32" && "no Unix domain sockets";

/** A program that makes calls with ten callers at a time, and prints the cap that it shares. */
const PROGRAM = `
import { Gate } from "tidegate";
const [url, share] = process.argv.slice(1);
const gate = new Gate({ targets: { llm: { url, cap: 3 } }, share: JSON.parse(share) });
const body = JSON.stringify({ model: "m", messages: [] });
const call = async () => {
  const init = { method: "POST", headers: { "content-type": "application/json" }, body };
  const response = await gate.fetch(url + "/chat/completions", init);
  if (response.status !== 200) throw new Error(String(response.status));
  await response.text();
};
await Promise.all(Array.from({ length: 10 }, async () => {
  for (let i = 0; i < 20; i++) await call();
}));
console.log(gate.snapshot().targets.llm.share.cap);
`;

/** Runs two programs that share a cap, and checks the calls at their upstream. */
async function checkTwoPrograms(share) {
  let [inFlight, peak, calls] = [0, 0, 0];
  const server = createServer((request, response) => {
    // The gate asks whether this is vLLM.
    if (request.method !== "POST") return void response.writeHead(404).end();
    peak = Math.max(peak, ++inFlight);
    calls++;
    request.resume().on("end", () =>
      setTimeout(() => {
        // Before the answer, after which the next call may come.
        inFlight--;
        response.writeHead(200, { "content-type": "application/json" }).end("{}");
      }, 2),
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${server.address().port}/v1`;
  const cwd = fileURLToPath(new URL(".", import.meta.url));
  const run = async () => {
    const arguments_ = ["--input-type=module", "-e", PROGRAM, url, JSON.stringify(share)];
    const child = spawn(process.execPath, arguments_, { cwd, stdio: ["ignore", "pipe", "inherit"] });
    let output = "";
    child.stdout.on("data", (text) => (output += text));
    const [code] = await once(child, "close");
    assert.equal(code, 0);
    return output;
  };
  assert.deepEqual(await Promise.all([run(), run()]), ["3\n", "3\n"]);
  server.close();
  server.closeAllConnections();
  assert.equal(calls, 2 * 10 * 20);
  assert.equal(peak, 3);
}

test("processes share a cap", { skip }, async () => {
  await checkTwoPrograms({ store: "local", name: `test-${randomUUID().slice(0, 20)}` });
});

test("a gate in a test shares nothing", { skip }, async () => {
  const directory = mkdtempSync(join(tmpdir(), "tidegate-share-"));
  const before = process.env.XDG_RUNTIME_DIR;
  process.env.XDG_RUNTIME_DIR = directory;
  const clock = new VirtualClock().start();
  try {
    const gate = new Gate({ targets: { llm: 4 }, share: "local" });
    await new FakeTarget({ answers: [ok("hi")] }).during(async () => {
      const init = { method: "POST", body: JSON.stringify({ model: "m", messages: [] }) };
      const response = await clock.until(gate.fetch("https://models.example.com/v1/chat/completions", init));
      assert.equal(response.status, 200);
      assert.equal(gate.snapshot().targets.llm.share, null);
    });
    assert.deepEqual(readdirSync(directory), []);
  } finally {
    clock.stop();
    if (before === undefined) delete process.env.XDG_RUNTIME_DIR;
    else process.env.XDG_RUNTIME_DIR = before;
    rmSync(directory, { recursive: true });
  }
});

const withoutRedis = spawnSync("redis-server", ["--version"]).error && "redis-server is not installed";

test("processes share a cap over Redis, and return their slots at exit", { skip: withoutRedis }, async () => {
  const free = createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const port = String(free.address().port);
  free.close();
  await once(free, "close");
  const options = ["--port", port, "--bind", "127.0.0.1", "--save", ""];
  const redis = spawn("redis-server", options, { stdio: "ignore" });
  const command = (...words) => spawnSync("redis-cli", ["-p", port, ...words], { encoding: "utf8" }).stdout;
  try {
    while (!command("ping").includes("PONG")) assert.equal(redis.exitCode, null);
    await checkTwoPrograms(`redis://127.0.0.1:${port}`);
    assert.equal(command("keys", "*").trim(), "");
  } finally {
    redis.kill("SIGKILL");
  }
});
