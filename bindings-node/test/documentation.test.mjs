// Tests that the examples in the documentation comments run, and that declared types have the names of the core.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import OpenAI from "openai";
import * as tidegate from "tidegate";
import * as testing from "tidegate/testing";

const SOURCES = fileURLToPath(new URL("../ts", import.meta.url));
const AsyncFunction = (async () => {}).constructor;

/**
 * Returns the code and the line number of each example in the documentation comments of a file in
 * `ts/`.
 */
function examplesOf(file) {
  const text = readFileSync(join(SOURCES, file), "utf8");
  return [...text.matchAll(/^ *\* ```ts\n(.*?)\n *\* ```$/gms)].map(({ 1: code, index }) => ({
    code: code.replace(/^ *\* ?/gm, ""),
    line: text.slice(0, index).split("\n").length,
  }));
}

test("the type of a rule lists the rules of the core", () => {
  const core = readFileSync(new URL("../../core/policy/src/schedule/rule.rs", import.meta.url), "utf8");
  const [, declared] = readFileSync(join(SOURCES, "explain.ts"), "utf8").match(/^export type Rule =\n(.*?);$/ms);
  const inCore = [...core.matchAll(/^ +(?:Rule::\w+ => )?\(\s*"(\w+)",/gm)].map(([, name]) => name);
  const inType = [...declared.matchAll(/"(\w+)"/g)].map(([, name]) => name);
  assert.deepEqual(inType, inCore);
});

test("the type of a cause lists the causes of the core", () => {
  const core = readFileSync(new URL("../../core/policy/src/adaptive/view.rs", import.meta.url), "utf8");
  const [, declared] = readFileSync(join(SOURCES, "snapshot.ts"), "utf8").match(/^export type Cause =(.*?);$/ms);
  const inCore = [...core.matchAll(/^ +\w+ = "(\w+)",/gm)].map(([, name]) => name);
  const inType = [...declared.matchAll(/"(\w+)"/g)].map(([, name]) => name);
  assert.deepEqual(inType, inCore);
});

process.env.OPENAI_API_KEY = "sk-none";

for (const file of readdirSync(SOURCES, { recursive: true }).filter((name) => name.endsWith(".ts"))) {
  for (const { code, line } of examplesOf(file)) {
    test(`the example at ${file}:${line} runs`, async () => {
      const targets = { openai: { url: "https://api.openai.com" }, bedrock: { url: "none" }, llama: { pool: {} } };
      const gate = new tidegate.Gate({ targets, tools: { db: 8 } });
      const client = gate.wrap(new OpenAI());
      const names = {
        ...tidegate,
        ...testing,
        assert,
        OpenAI,
        gate,
        client,
        agent: async () => (await client.responses.create({ model: "gpt-4o", input: "Say hello." })).output_text,
        converse: async () => "hello",
        query: async () => [1, 2],
        rows: [{ text: "hello" }],
        save: async () => {},
        console: { log() {}, error() {} },
      };
      // The examples declare some of the names themselves.
      const declared = new Set([...code.matchAll(/\bconst (\w+)/g)].map(([, name]) => name));
      const given = Object.keys(names).filter((name) => name !== "default" && !declared.has(name));
      const run = new AsyncFunction(...given, code);
      const call = () => run(...given.map((name) => names[name]));
      await (code.includes(".during(") ? call() : new testing.FakeTarget().during(call));
    });
  }
}
