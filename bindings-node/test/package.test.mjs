// Tests of the published package: one module state for import and require, and correct types.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import * as imported from "tidegate";
import * as testing from "tidegate/testing";

const root = fileURLToPath(new URL("..", import.meta.url));
const required = createRequire(import.meta.url)("tidegate");

test("import and require return the same objects", () => {
  assert.deepEqual({ ...imported }, { ...required });
  assert.deepEqual({ ...testing }, { ...createRequire(import.meta.url)("tidegate/testing") });
});

/**
 * A gate configuration that sets every key, as JSON. One test uses it as a literal in a TypeScript
 * program, another one opens a gate with it.
 */
const FULL = `{
  "mode": "observe",
  "defaults": {
    "cap": 8, "queue": 9, "wait": "1m", "on_full": "wait", "deadline": "5m", "first_token": 20, "idle": "30s", "stall": "none", "ttft": 2,
    "tpot": "50ms", "limit": {
      "start": 2, "min": 1, "awaiting": "none", "decrease": 0.9,
      "detector": { "quantile": 0.95, "window": "1m", "tick": 2, "band": 0.1, "hold": 4 }
    },
    "aging": 10, "retry": { "attempts": 3, "base": "100ms", "max": 8, "ratio": 0.2, "reserve": 10 },
    "tenants": { "a": { "weight": 2, "cap": 3, "queue": 4, "floor": 0.25, "tpm": "90k", "shed": false } },
    "default_tenant": { "weight": 1, "cap": 2, "queue": 3, "tpm": 50000, "shed": true }, "backlog": 500,
    "lanes": {
      "interactive": { "floor": 0.5 }, "standard": { "queue": "none" },
      "batch": { "floor": 0.1, "queue": 100, "wait": "2m", "ttft": "none" }
    },
    "cost": "kv", "short_bias": "100ms", "reclaim": true, "predict": "objective", "max_prompt": "128k", "kv_tokens": 400000, "kv_headroom": 0.2, "metrics": "off",
    "tokenizer": "vllm", "ask_usage": true, "fallback": "mine", "budget": "none",
    "rpm": 500, "rpd": 10000, "tpm": "2M", "tpd": "1.5M", "itpm": 450000, "otpm": false, "burst": "2s", "counting": "sum", "headers": "lower"
  },
  "targets": {
    "openai": 64, "shared": { "url": "http://localhost:8001", "budget": "account" },
    "mine": { "url": ["http://localhost:8000/v1"], "models": "small*", "model": "small-1", "key_env": "MINE_KEY",
      "forward_headers": ["x-team"], "cap": 2, "pool": ["http://localhost:8002"] }
  },
  "tenants": { "b": { "weight": 3 } },
  "budgets": { "account": { "rpm": 500, "tpm": "2M" } },
  "tools": {
    "db": { "cap": 8, "rps": 2.5, "limit": "fixed" },
    "search": {
      "cap": 2, "queue": 3, "wait": "2s", "on_full": "wait", "rps": "none", "rpm": 90, "latency": "200ms", "limit": { "decrease": { "step": 4 } }
    }
  },
  "share": {
    "store": "rediss://user@127.0.0.1:1", "name": "web", "strict": true, "password_env": "PATH", "cluster": false, "sentinel": "mymaster"
  },
  "transport": {
    "connect": "3s", "proxy_from_env": false, "pool_idle": 8, "pool_idle_timeout": "1m", "http2_streams": 50, "http2_prior_knowledge": false
  }
}`;

test("programs that use the package type-check as ESM and CommonJS", () => {
  const text = `
import { type CallRecord, type Config, Gate, type Snapshot, type TargetSettings, TidegateError, type ToolSlot } from "tidegate";
import { type Attempt, FakeTarget, ok, rateLimited, VirtualClock } from "tidegate/testing";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
const gate = new Gate({ targets: { openai: { cap: 64, ttft: 2, retry: { attempts: 3 } } }, tools: { db: 8 }, mode: "enforce" });
const client: OpenAI = gate.wrap(new OpenAI({ fetch: gate.fetch }));
const claude: Anthropic = gate.wrap(new Anthropic({ fetch: gate.fetch }));
// The configuration must have every key of the types.
const full = ${FULL} satisfies { [Key in keyof Required<Config>]: unknown } & Config;
const defaults: { [Key in keyof Required<TargetSettings>]: unknown } = full.defaults;
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
const target = new FakeTarget({ answers: [rateLimited(3).times(2)], otherwise: ok("hi", { after: 1 }), capacity: 8 });
export const attempts: Promise<Attempt[]> = target.during(async () => {
  const clock = new VirtualClock({ seed: 1 }).start();
  const text: string = await clock.until(Promise.resolve("x"));
  clock.stop();
  return text === "" ? [] : target.attempts;
});
// @ts-expect-error no such key
new FakeTarget({ answer: [] });
export { claude, client, defaults, own };
`;
  const project = mkdtempSync(join(root, "node_modules", ".typed-"));
  for (const extension of ["mts", "cts"]) {
    // openai's types differ in CommonJS programs and are not checked here.
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

// The core's tests compare `ts/config.ts` with the declarations of the keys.
test("the full configuration has every key of the types, and is accepted", () => {
  const config = JSON.parse(FULL);
  assert.equal(new imported.Gate(config).mode, "observe");
  const source = readFileSync(join(root, "ts/config.ts"), "utf8");
  const keys = (name) => {
    const body = source.match(new RegExp(`export interface ${name}(?: extends \\w+)? \\{\\n(.*?)\\n\\}`, "s"))[1];
    return [...body.matchAll(/^ {2}(\w+)\??:/gm)].map(([, key]) => key);
  };
  const { defaults, share, transport, tools, targets } = config;
  const shown = {
    Config: config,
    RetryConfig: defaults.retry,
    LimitConfig: defaults.limit,
    PercentileConfig: defaults.limit.detector,
    StepConfig: tools.search.limit.decrease,
    TenantConfig: defaults.tenants.a,
    LaneConfig: defaults.lanes.batch,
    ToolConfig: tools.search,
    ShareConfig: share,
    TransportConfig: transport,
  };
  for (const [name, part] of Object.entries(shown)) assert.deepEqual(Object.keys(part).sort(), keys(name).sort(), name);
  assert.deepEqual(Object.keys(defaults).sort(), [...keys("TargetSettings"), ...keys("RateConfig")].sort());
  const own = Object.keys(targets.mine).filter((key) => key !== "cap");
  assert.deepEqual(own.sort(), keys("TargetConfig").sort());
});

const { platform, arch, report } = process;
const libc = report.getReport().header.glibcVersionRuntime === undefined ? "musl" : "gnu";
const name =
  platform === "linux" ? `linux-${arch}-${libc}` : platform === "win32" ? `win32-${arch}-msvc` : `${platform}-${arch}`;

/**
 * Copies the package as it is published, without the native module that `make` builds, into a
 * temporary `node_modules`. Returns the path of that directory.
 */
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

test("the native module is found in the package of its platform", () => {
  const modules = installed();
  const half = join(modules, "@tidegate", `node-${name}`);
  cpSync(join(root, "tidegate.node"), join(half, `tidegate.${name}.node`));
  writeFileSync(
    join(half, "package.json"),
    JSON.stringify({ name: `@tidegate/node-${name}`, main: `tidegate.${name}.node` }),
  );
  assert.equal(load(modules), "enforce\n");
});

test("a missing native module is an error that names the platform and bundlers", () => {
  const message = `native module of tidegate for ${name} is not installed .@tidegate/node-${name}.*external.*bundled`;
  assert.throws(() => load(installed()), { message: new RegExp(message) });
});
