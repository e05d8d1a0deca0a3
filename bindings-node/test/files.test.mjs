// Tests that configuration files, and files that they name, must be regular files of limited size.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { appendFile, mkdtemp, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { ConfigError, Gate } from "tidegate";

const LIMIT = 16 * 2 ** 20;
const folder = () => mkdtemp(join(tmpdir(), "tidegate-"));

/**
 * Creates a FIFO, and a process that waits to write to it, because opening a FIFO without a writer
 * blocks. Returns the path of the FIFO.
 */
async function fifo(t) {
  const path = join(await folder(), "fifo");
  assert.equal(spawnSync("mkfifo", [path]).status, 0);
  const writer = spawn("sh", ["-c", `echo http://127.0.0.1:9 > '${path}'`], { stdio: "ignore" });
  t.after(() => writer.kill("SIGKILL"));
  return path;
}

test("a configuration must be a regular file", async (t) => {
  const path = await fifo(t);
  assert.throws(() => Gate.fromFile(path), {
    name: "ConfigError",
    message: `${path}: cannot be read: it is a FIFO or pipe; name a regular file`,
  });
  assert.throws(() => Gate.fromFile(tmpdir()), { name: "ConfigError", message: /it is a directory; name a regular/ });
  assert.throws(() => Gate.fromFile("/dev/zero"), { name: "ConfigError", message: /it is a device; name a regular/ });
});

test("replicas are not read from a FIFO", async (t) => {
  const gate = new Gate({ targets: { llama: { pool: { file: await fifo(t) } } } });
  await assert.rejects(
    gate.run({ deadline: 0.05 }, () => gate.slot("llama", () => {})),
    { name: "Refused", message: /it is a FIFO or pipe; name a regular file/ },
  );
});

test("a configuration above the size limit is rejected", async () => {
  const path = join(await folder(), "tidegate.toml");
  await writeFile(path, "[tools]\ndb = 8\n");
  assert.equal(Gate.fromFile(path).snapshot().tools.db.limit, 8);
  await truncate(path, LIMIT);
  await appendFile(path, "x");
  assert.throws(() => Gate.fromFile(path), { name: "ConfigError", message: `${path}: is larger than 16 MiB` });
});

test("twenty thousand targets are checked quickly", () => {
  const url = "https://models.example/v1";
  const target = (_, n) => [`t${n}`, { url, models: [`m${n}`, `m${n}-*`] }];
  const targets = Object.fromEntries(Array.from({ length: 20_000 }, target));
  const last = { url: `${url}/sub`, models: "m7-x" };
  assert.throws(
    () => new Gate({ targets: { ...targets, last } }),
    (error) =>
      error instanceof ConfigError &&
      /targets\.last: no request reaches it, because targets\.t7 above it takes them all/.test(error),
  );
});
