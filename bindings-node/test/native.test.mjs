// Tests that the TypeScript types of the native module equal its exports.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";

const addon = createRequire(import.meta.url)("../tidegate.node");
const source = readFileSync(new URL("../ts/native.ts", import.meta.url), "utf8");

/**
 * Returns the sorted names of the members that `ts/native.ts` declares for the interface `name`.
 * Only lines that are indented by exactly two spaces count as members.
 */
function declared(name) {
  const body = source.match(new RegExp(`export interface ${name} \\{\\n(.*?)\\n\\}`, "s"))?.[1];
  assert.ok(body, `ts/native.ts declares ${name}`);
  return [...body.matchAll(/^ {2}(?:readonly )?(\w+)\??[(:]/gm)].map(([, member]) => member).sort();
}

// Classes that only the native module creates have declared members, but no constructor.
const made = Object.keys(addon).filter((name) => source.includes(`interface Native${name} `));

test("the types declare exactly the exports of the native module", () => {
  assert.deepEqual(Object.keys(addon).sort(), [...new Set([...declared("Native"), ...made])].sort());
});

for (const name of made) {
  test(`the types declare exactly the members of ${name}`, () => {
    const members = Object.getOwnPropertyNames(addon[name].prototype).filter((member) => member !== "constructor");
    assert.deepEqual(members.sort(), declared(`Native${name}`));
  });
}

// Properties of every function.
const COMMON = new Set(["arguments", "caller", "length", "name", "prototype"]);

test("the types declare exactly the static functions of each class", () => {
  const [native] = source.match(/export interface Native \{.*?\n\}/s);
  const functions = made.flatMap((name) => Object.getOwnPropertyNames(addon[name]));
  const ours = functions.filter((name) => !COMMON.has(name));
  const names = [...native.matchAll(/(?:^ {4}|\{ )(\w+)\(/gm)].map(([, name]) => name);
  assert.deepEqual(ours.sort(), names.sort());
});
