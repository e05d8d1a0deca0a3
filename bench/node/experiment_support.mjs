// Shared parts of the experiments: an upstream, bars, and the result line.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const require = createRequire(new URL("../../bindings-node/package.json", import.meta.url));
export const { Gate } = require("tidegate");

export const note = (text) => console.error(text);
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Starts a scripted upstream in its own process, and calls `use` with its base URL.
 *
 * Resolves to the result of `use`. The upstream is stopped when `use` has settled.
 */
export async function scripted(use) {
  const script = fileURLToPath(new URL("scripted_upstream.mjs", import.meta.url));
  const server = spawn(process.execPath, [script], { stdio: ["pipe", "pipe", "inherit"] });
  try {
    const [port] = await once(createInterface(server.stdout), "line");
    return await use(`http://127.0.0.1:${port}`);
  } finally {
    server.stdin.end();
  }
}

export const bar = (what, value, op, limit) => ({
  what,
  value: Math.round(value * 1e3) / 1e3,
  op,
  bar: limit,
  ok: op === "<=" ? value <= limit : value >= limit,
});

export const report = (name, figures, peers, bars) =>
  console.log(JSON.stringify({ name, seeds: [], figures, peers, bars }));
