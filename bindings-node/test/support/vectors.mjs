// The test vectors that all languages share: `tests/vectors/*.json`.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { upstream } from "./upstream.mjs";

const folder = new URL("../../../tests/vectors/", import.meta.url);

/** Returns the names of all files with test vectors, without the extension. */
export const files = () =>
  readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .map((name) => name.slice(0, -5));

/** Returns the cases in the file with this name. */
export function casesOf(name) {
  const { cases } = JSON.parse(readFileSync(new URL(`${name}.json`, folder), "utf8"));
  assert.ok(cases.length > 0);
  return cases;
}

/**
 * Declares a test that calls `run(case, upstream)` for each case of the file `name`, as a subtest.
 * If a file has several tests, `how` is added to their names.
 */
export function every(name, run, how) {
  test(`vectors: ${name}${how === undefined ? "" : `, ${how}`}`, async (t) => {
    const up = await upstream(t);
    const cases = casesOf(name);
    let ran = 0;
    for (const one of cases) {
      await t.test(one.name, async () => {
        ran++;
        await run(one, up);
      });
    }
    assert.equal(ran, cases.length);
  });
}

/**
 * Returns the body of a case as bytes. `value` is a text, a value that is converted to JSON, or
 * undefined for an empty body.
 */
export const bodyOf = (value) =>
  Buffer.from(value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value));

/**
 * Returns the snapshot of the only target of the gate. Fails if the gate has no target or several.
 */
export function onlyTarget(gate) {
  const targets = Object.values(gate.snapshot().targets);
  assert.equal(targets.length, 1);
  return targets[0];
}

/**
 * Returns a handler that answers with this status, only these headers, and a body in these chunks.
 */
export function pieces(chunks, headers = {}, status = 200) {
  return ({ response }) => {
    response.sendDate = false;
    response.writeHead(status, headers);
    for (const chunk of chunks) if (chunk.length > 0) response.write(chunk);
    response.end();
  };
}

/**
 * Returns ways to split the body into chunks: into two parts at about `maxChunks` places and, if
 * the body is short, into single bytes.
 */
export function splits(data, maxChunks) {
  const ways = [];
  const step = Math.max(1, Math.floor(data.length / maxChunks));
  for (let cut = 0; cut <= data.length; cut += step) ways.push([data.subarray(0, cut), data.subarray(cut)]);
  if (data.length <= 2 * maxChunks) ways.push(Array.from(data, (byte) => Buffer.of(byte)));
  return ways;
}

/** Reads the body of a response. Returns its bytes, and whether it ended properly (`whole`). */
export async function read(stream) {
  const chunks = [];
  try {
    const response = await stream;
    for await (const chunk of response.body ?? []) chunks.push(chunk);
  } catch (error) {
    const text = `${error.message} ${error.cause?.message}`;
    if (!/terminated|fetch failed|Connection error/.test(text)) throw error;
    return { data: Buffer.concat(chunks), whole: false };
  }
  return { data: Buffer.concat(chunks), whole: true };
}
