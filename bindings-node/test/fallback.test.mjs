// Tests which parts of a request another server gets if the request falls back to it.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Gate } from "tidegate";

import { CHAT } from "./support/provider-payloads.mjs";
import { json, upstream } from "./support/upstream.mjs";
import { casesOf } from "./support/vectors.mjs";

process.env.TIDEGATE_TEST_SPARE_KEY = "sk-spare";
const own = { key_env: "TIDEGATE_TEST_SPARE_KEY" };

const secret = (name) => `secret-of-${name.toLowerCase()}`;
const plainValue = (name) => `value-of-${name}`;
const names = (rows) => rows.map(({ name }) => name);

/**
 * Sends a request to the target `first`, whose only slot is in use, with all headers and query keys
 * that the test case `one` lists. Returns the request that the fallback target `spare` receives.
 *
 * `target` contains additional settings of `spare`. If `sameServer` is true, both targets are on
 * one server.
 */
async function requestToFallback(t, one, target, sameServer = false) {
  const first = await upstream(t, json(CHAT));
  const spare = sameServer ? first : await upstream(t, json(CHAT));
  const gate = new Gate({
    targets: {
      first: { url: `${first.url}/v1`, cap: 1, on_full: "refuse", fallback: "spare", metrics: "off" },
      spare: { url: `${spare.url}/other/v1`, model: "small", metrics: "off", ...target },
    },
  });
  const pairs = (kept, rows) => [
    ...kept.map((name) => [name, plainValue(name)]),
    ...rows.map(({ name }) => [name, secret(name)]),
  ];
  const url = `${first.url}/v1/chat/completions?${new URLSearchParams(pairs(one.kept_query, one.query))}`;
  const init = {
    method: "POST",
    headers: pairs(one.kept_headers, one.headers),
    body: JSON.stringify({ model: "large" }),
  };
  const response = await gate.slot("first", () => gate.fetch(url, init));
  assert.deepEqual([response.status, response.headers.get("x-tidegate-fallback")], [200, "spare"]);
  await response.json();
  return spare.exchanges[0];
}

const queryOf = ({ path }) => new Set(new URLSearchParams(path.split("?")[1]).keys());
const seen = ({ path, headers }) => path + JSON.stringify(headers);

for (const one of casesOf("fallback")) {
  test(`vectors: credentials do not reach another server: ${one.name}`, async (t) => {
    assert.ok(one.headers.length >= 60 && one.query.length >= 20);
    for (const target of [{}, own]) {
      const arrived = await requestToFallback(t, one, target);
      const leaked = names([...one.headers, ...one.query]).filter((name) => seen(arrived).includes(secret(name)));
      assert.deepEqual(leaked, []);
      assert.doesNotMatch(seen(arrived), /secret/);
      for (const name of one.kept_headers) assert.equal(arrived.headers[name], plainValue(name));
      assert.deepEqual(queryOf(arrived), new Set(one.kept_query));
    }
  });

  test(`vectors: forwarded headers reach another server: ${one.name}`, async (t) => {
    const forward_headers = names(one.headers);
    const arrived = await requestToFallback(t, one, { forward_headers });
    for (const name of forward_headers) assert.equal(arrived.headers[name], secret(name));
    assert.deepEqual(queryOf(arrived), new Set(one.kept_query));
    const { headers } = await requestToFallback(t, one, { ...own, forward_headers });
    assert.equal(headers.authorization, "Bearer sk-spare", "the target's own key");
    assert.equal(headers["x-litellm-api-key"], secret("x-litellm-api-key"));
  });

  test(`vectors: a fallback on the same server gets the unchanged request: ${one.name}`, async (t) => {
    const arrived = await requestToFallback(t, one, {}, true);
    for (const name of names(one.headers)) assert.equal(arrived.headers[name], secret(name));
    for (const name of names(one.query)) assert.ok(queryOf(arrived).has(name), name);
  });
}
