// Tests of the official client against a provider with budgets.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import OpenAI from "openai";
import { Gate } from "tidegate";

import { MESSAGES, until } from "./support/provider-payloads.mjs";
import { LENGTH, simulated, TIDEGATE } from "./support/simulator.mjs";

// Tokens per minute: ten thousand per second, so that waits are short.
const TOKENS = 600_000;
// Tokens that the provider reserves for a call, whatever its usage.
const RESERVED = 1_000;
const RATE = { tokens_per_minute: TOKENS, requests_per_minute: 60_000 };

const sdk = ({ url }) =>
  new OpenAI({ baseURL: url, apiKey: "k", maxRetries: 0, defaultHeaders: { [LENGTH]: "4" }, timeout: 60_000 });
const ask = (client, max_tokens = RESERVED, options = {}) =>
  client.chat.completions.create({ model: "sim", messages: MESSAGES, max_tokens }, options);
const target = (gate) => gate.snapshot().targets.provider;
const nobodyIsLeft = (gate) => until(() => gate.snapshot().active === 0);

/**
 * Makes one call that uses up all but about 10,000 tokens of the provider's budget per minute. Then
 * sends 40 calls at the same time, which need four times these remaining tokens. Returns the
 * results of the 40 calls.
 */
async function burst(client) {
  await ask(client, TOKENS - 10 * RESERVED);
  return Promise.allSettled(Array.from({ length: 40 }, () => ask(client)));
}

describe("a provider with budgets", { skip: !TIDEGATE && "TIDEGATE_CLI does not name the command `tidegate`" }, () => {
  test("a burst without a gate is rate limited", async (t) => {
    const answers = await burst(sdk(await simulated(t, RATE)));
    assert.ok(answers.filter(({ reason }) => reason?.status === 429).length >= 10);
  });

  test("budgets are learned from headers without a 429", async (t) => {
    const provider = await simulated(t, RATE);
    const gate = new Gate({ targets: { provider: 64 } });
    assert.deepEqual(target(gate).budgets, {});
    const answers = await burst(gate.wrap(sdk(provider)));
    assert.ok(answers.every(({ status }) => status === "fulfilled"));
    assert.deepEqual(await provider.statuses(), { 200: 41 });
    const { tokens, requests } = target(gate).budgets;
    assert.deepEqual([tokens.limit, tokens.window, tokens.source, tokens.counting], [TOKENS, 60, "headers", "sum"]);
    assert.ok(tokens.level < 10 * RESERVED);
    assert.deepEqual([requests.limit, requests.window, requests.source], [60_000, 60, "headers"]);
    await nobodyIsLeft(gate);
    for (const call of gate.calls().slice(1)) {
      assert.deepEqual([call.output_tokens, call.max_output_tokens], [4, RESERVED]);
      assert.ok(call.estimated_output_tokens > 0 && call.estimated_output_tokens <= RESERVED);
    }
  });

  for (const configured of [2 * TOKENS, TOKENS / 2]) {
    test(`a wrong configured rate is corrected within three responses: ${configured}`, async (t) => {
      const gate = new Gate({ targets: { provider: { tpm: configured } } });
      const client = gate.wrap(sdk(await simulated(t, RATE)));
      const reportedLimits = () => [target(gate).budgets.tokens.limit, target(gate).budgets.tokens.source];
      assert.deepEqual(reportedLimits(), [configured, "configured"]);
      for (let n = 0; n < 3; n++) await ask(client);
      assert.deepEqual(reportedLimits(), [TOKENS, "headers"]);
    });
  }

  test("a call that can never fit is rejected at once with advice", async (t) => {
    const provider = await simulated(t, RATE);
    const gate = new Gate({ targets: { provider: { max_prompt: 100, tpm: TOKENS, counting: "sum" } } });
    const client = gate.wrap(sdk(provider));
    const long = [{ role: "user", content: "tide ".repeat(1000) }];
    const refused = { status: 413, code: "too_large" };
    await assert.rejects(client.chat.completions.create({ model: "sim", messages: long }), {
      ...refused,
      message: /`max_prompt` of 100: shorten the prompt/,
    });
    await assert.rejects(ask(client, TOKENS + 1), { ...refused, message: /lower `max_tokens`/ });
    assert.deepEqual(await provider.statuses(), {});
    assert.deepEqual(target(gate).tenants.default.refused, { too_large: 2 });
  });

  test("a tenant above its token rate delays only itself", async (t) => {
    const provider = await simulated(t, RATE);
    // 100 tokens per second, with a burst of 600.
    const gate = new Gate({ targets: { provider: 8 }, tenants: { acme: { tpm: 6_000 } } });
    const client = gate.wrap(sdk(provider));
    await gate.run({ tenant: "acme" }, () => ask(client, 5_000, { headers: { [LENGTH]: "3000" } }));
    await nobodyIsLeft(gate);
    const { debt } = target(gate).tenants.acme;
    assert.ok(debt > 1_000 && debt < 3_100, `${debt}`);
    const control = new AbortController();
    const { signal } = control;
    const later = gate.run({ tenant: "acme", call: "later" }, () => ask(client, RESERVED, { signal }));
    const rejected = assert.rejects(later);
    // A call that is about to be queued waits without a rule.
    await until(() => gate.explain("later")?.rule);
    assert.equal(gate.explain("later").rule, "tenant_tokens");
    await gate.run({ tenant: "initech" }, () => ask(client));
    assert.equal(gate.explain("later").state, "waiting");
    control.abort();
    await rejected;
    await nobodyIsLeft(gate);
    assert.deepEqual(await provider.statuses(), { 200: 2 });
  });

  test("a wait for a tool's rate holds no slot", async (t) => {
    const provider = await simulated(t, RATE);
    const gate = new Gate({ targets: { provider: 1 }, tools: { search: { cap: 4, rpm: 1 } } });
    const client = gate.wrap(sdk(provider));
    const control = new AbortController();
    const { signal } = control;
    const agent = (call) =>
      gate.run({ call }, async () => {
        await ask(client);
        await gate.tool("search", () => "tides", { signal });
        await ask(client);
      });
    await agent("first");
    const rejected = assert.rejects(agent("second"));
    await until(() => gate.explain("second")?.tool === "search" && gate.explain("second").rule);
    assert.equal(gate.explain("second").rule, "requests");
    await ask(client); // the only slot is free meanwhile
    control.abort();
    await rejected;
    assert.deepEqual(await provider.statuses(), { 200: 4 });
  });

  test("the types declare exactly the keys of snapshots and calls", async (t) => {
    const provider = await simulated(t, RATE);
    const provided = { cap: 8, limit: { start: 1 }, kv_tokens: 1_500_000 };
    const gate = new Gate({ targets: { provider: provided }, tools: { search: { cap: 1, latency: 1 } } });
    await ask(gate.wrap(sdk(provider)));
    await nobodyIsLeft(gate);
    const snapshot = gate.snapshot();
    const { adaptive, budgets, kv, lanes, tenants, tpot } = snapshot.targets.provider;
    const [call] = gate.calls();
    const seen = {
      Snapshot: snapshot,
      TargetSnapshot: snapshot.targets.provider,
      LimitSnapshot: adaptive,
      BudgetSnapshot: budgets.tokens,
      KvSnapshot: kv,
      LaneSnapshot: lanes.standard,
      TenantSnapshot: tenants.default,
      ToolSnapshot: snapshot.tools.search,
      Quantiles: tpot,
      CallRecord: call,
      AttemptRecord: call.attempts[0],
    };
    for (const [name, object] of Object.entries(seen)) {
      assert.deepEqual(Object.keys(object).sort(), declared(name), name);
    }
    assert.deepEqual(Object.keys(snapshot.tools.search.adaptive).sort(), declared("LimitSnapshot"));
    // The only slot was in use, so the limit rises.
    assert.deepEqual(Object.keys(adaptive.decisions[0]).sort(), declared("DecisionSnapshot"));
  });
});

/**
 * Returns the sorted names of the members that `ts/snapshot.ts` declares for the interface `name`.
 */
function declared(name) {
  const source = readFileSync(new URL("../ts/snapshot.ts", import.meta.url), "utf8");
  const body = source.match(new RegExp(`export interface ${name} \\{\\n(.*?)\\n\\}`, "s"))?.[1];
  assert.ok(body, `ts/snapshot.ts declares ${name}`);
  return [...body.matchAll(/^ {2}(\w+):/gm)].map(([, member]) => member).sort();
}
