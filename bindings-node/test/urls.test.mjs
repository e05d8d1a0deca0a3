// Tests that the server gets the URL that the platform's fetch sends.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Gate } from "tidegate";

import { json } from "./support/upstream.mjs";
import { every } from "./support/vectors.mjs";

for (const [name, options] of Object.entries({ native: {}, "a fetch of one's own": { fetch: globalThis.fetch } })) {
  every(
    "urls",
    async ({ url, target }, up) => {
      up.handler = json({});
      const targets = { v1: { url: `${up.url}/v1` }, admin: { url: `${up.url}/admin` }, root: { url: up.url } };
      const gate = new Gate({ defaults: { metrics: "off" }, targets, ...options });
      const from = up.exchanges.length;
      for (const send of [globalThis.fetch, gate.fetch]) {
        await (await send(up.url + url, { method: "POST", body: "{}" })).text();
      }
      const [stock, ours] = up.exchanges.slice(from).map(({ path }) => path);
      // Before version 24, Node's fetch leaves out the question mark of an empty query.
      const expected = url.endsWith("?") && name === "native" ? new URL(up.url + url).href.slice(up.url.length) : stock;
      assert.equal(ours, expected);
      assert.equal(gate.calls().at(-1).target, gate.targetFor(up.url + url));
      // The platform resolves backslashes, which changes the path.
      if (!url.includes("\\")) assert.equal(gate.calls().at(-1).target, target);
    },
    name,
  );
}

test("targetFor resolves a URL as fetch does", () => {
  const gate = new Gate({ targets: { v1: { url: "http://llm/v1" }, admin: { url: "http://llm/admin" } } });
  for (const path of ["/v1/%2e%2e/admin", "/v1/../admin", "/v1\\..\\admin"]) {
    assert.equal(gate.targetFor(`http://llm${path}`), "admin");
  }
});
