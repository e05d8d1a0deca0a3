// What is published: one module state, however it is loaded; typings that say what is there.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import * as imported from "tidegate";

const root = fileURLToPath(new URL("..", import.meta.url));
const required = createRequire(import.meta.url)("tidegate");

test("import and require give the same things", () => {
  assert.deepEqual({ ...imported }, { ...required });
});

test("a consumer's program is typed, as ESM and as CommonJS", () => {
  const text = `
import { type CallRecord, Gate, type Snapshot, TidegateError, type ToolSlot } from "tidegate";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
const gate = new Gate({ targets: { openai: { cap: 64, ttft: 2, retry: { attempts: 3 } } }, tools: { db: 8 }, mode: "enforce" });
const client: OpenAI = gate.wrap(new OpenAI({ fetch: gate.fetch }));
const claude: Anthropic = gate.wrap(new Anthropic({ fetch: gate.fetch }));
const own = new Gate({ fetch: (input, init) => fetch(input, init), tools: { db: { cap: 8, wait: "2s" } } });
const plain: typeof fetch = gate.fetch;
export async function run(): Promise<number> {
  await using slot: ToolSlot = await gate.acquireTool("db");
  slot.run(() => 1);
  const snapshot: Snapshot = gate.snapshot();
  const calls: CallRecord[] = gate.calls();
  const value: number = await gate.tool("db", async () => calls.length);
  const same: string = gate.run({ tenant: "a", lane: "batch", deadline: 30 }, () => "x");
  // @ts-expect-error no such lane
  gate.run({ lane: "fast" }, () => {});
  // @ts-expect-error no such key
  new Gate({ target: {} });
  try { await plain("https://x", { method: "POST" }); } catch (error) {
    if (error instanceof TidegateError) return error.retryAfter ?? value;
  }
  return snapshot.targets.openai?.in_flight ?? same.length;
}
export { claude, client, own };
`;
  const project = mkdtempSync(join(root, "node_modules", ".typed-"));
  for (const extension of ["mts", "cts"]) {
    // A CommonJS program imports openai's types by its own condition; the point here is ours.
    writeFileSync(join(project, `program.${extension}`), text);
  }
  const options = {
    module: "node16",
    strict: true,
    noEmit: true,
    target: "ES2022",
    lib: ["ES2023", "ESNext.Disposable"],
  };
  const config = { compilerOptions: { ...options, skipLibCheck: false, types: ["node"] }, include: ["*"] };
  writeFileSync(join(project, "tsconfig.json"), JSON.stringify(config));
  mkdirSync(join(project, "node_modules"));
  execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", project], { stdio: "pipe" });
});

const { platform, arch, report } = process;
const libc = report.getReport().header.glibcVersionRuntime === undefined ? "musl" : "gnu";
const name =
  platform === "linux" ? `linux-${arch}-${libc}` : platform === "win32" ? `win32-${arch}-msvc` : `${platform}-${arch}`;

/** The package as it is published: without what `make` built here. */
function installed() {
  const modules = join(mkdtempSync(join(tmpdir(), "tidegate-")), "node_modules");
  for (const part of ["dist", "esm", "package.json"]) {
    cpSync(join(root, part), join(modules, "tidegate", part), { recursive: true });
  }
  return modules;
}

const load = (modules) =>
  execFileSync(
    process.execPath,
    ["--input-type=module", "-e", 'import { Gate } from "tidegate"; console.log(new Gate().mode)'],
    {
      cwd: modules,
      encoding: "utf8",
      stdio: "pipe",
    },
  );

test("the native half is found in the package of its platform", () => {
  const modules = installed();
  const half = join(modules, "@tidegate", `node-${name}`);
  cpSync(join(root, "tidegate.node"), join(half, `tidegate.${name}.node`));
  writeFileSync(
    join(half, "package.json"),
    JSON.stringify({ name: `@tidegate/node-${name}`, main: `tidegate.${name}.node` }),
  );
  assert.equal(load(modules), "enforce\n");
});

test("without a native half, the error names the platform", () => {
  assert.throws(() => load(installed()), {
    message: new RegExp(`no native half for ${name}: @tidegate/node-${name} is not installed`),
  });
});
