// What TypeScript believes of the native half is what the native half has.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";

const addon = createRequire(import.meta.url)("../tidegate.node");
const source = readFileSync(new URL("../ts/native.ts", import.meta.url), "utf8");

/** The names of an interface's members: each begins a line, two blanks in. */
function declared(name) {
  const body = source.match(new RegExp(`export interface ${name} \\{\\n(.*?)\\n\\}`, "s"))?.[1];
  assert.ok(body, `ts/native.ts declares ${name}`);
  return [...body.matchAll(/^ {2}(?:readonly )?(\w+)\??[(:]/gm)].map(([, member]) => member).sort();
}

// Some classes only the native half makes: their members are declared, but not how to make one.
const made = Object.keys(addon).filter((name) => source.includes(`interface Native${name} `));

test("everything that the native half exports is declared, and nothing else is", () => {
  assert.deepEqual(Object.keys(addon).sort(), [...new Set([...declared("Native"), ...made])].sort());
});

for (const name of made) {
  test(`the members of ${name} are those declared`, () => {
    const members = Object.getOwnPropertyNames(addon[name].prototype).filter((member) => member !== "constructor");
    assert.deepEqual(members.sort(), declared(`Native${name}`));
  });
}

// What every function has.
const COMMON = new Set(["arguments", "caller", "length", "name", "prototype"]);

test("so are the functions of each class", () => {
  const [native] = source.match(/export interface Native \{.*?\n\}/s);
  const functions = made.flatMap((name) => Object.getOwnPropertyNames(addon[name]));
  const ours = functions.filter((name) => !COMMON.has(name));
  const names = [...native.matchAll(/(?:^ {4}|\{ )(\w+)\(/gm)].map(([, name]) => name);
  assert.deepEqual(ours.sort(), names.sort());
});
