// Tests that calls use the proxy that undici's EnvHttpProxyAgent would use, observed on sockets.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ConfigError, Gate } from "tidegate";
import { EnvHttpProxyAgent, fetch as undiciFetch } from "undici";

import { network, within } from "./support/proxies.mjs";
import { casesOf } from "./support/vectors.mjs";

// Failed connections are not retried.
const ONCE = { defaults: { retry: { attempts: 1 } } };
const ERROR = "error";

/**
 * Returns an object with a server for each URL of a test case: the proxy to which a fetch connects
 * (`a` or `b`, with the credentials that the proxy receives), or `direct`. Opens the fetch with
 * `open`, in the environment of the test case. Returns `ERROR` if `open` throws.
 */
async function decisions(net, { env, urls = { "http://127.0.0.1:{port}/": "" } }, open) {
  const variables = Object.fromEntries(Object.entries(env).map(([name, value]) => [name, net.fill(value)]));
  return within(variables, async () => {
    let made;
    try {
      made = open();
    } catch {
      return ERROR;
    }
    const ways = {};
    for (const url of Object.keys(urls)) ways[url] = await net.way(made.get, url);
    await made.close();
    return ways;
  });
}

function undici() {
  const dispatcher = new EnvHttpProxyAgent();
  return { get: (url) => undiciFetch(url, { dispatcher }), close: () => dispatcher.destroy() };
}

function gate() {
  const { fetch } = new Gate(ONCE);
  return { get: fetch, close: async () => {} };
}

test("the gate connects to the same address as undici's EnvHttpProxyAgent", async (t) => {
  const net = await network(t);
  const differences = [];
  const cases = casesOf("proxies");
  for (const one of cases) {
    const own = await decisions(net, one, undici);
    const ours = await decisions(net, one, gate);
    const onPurpose = one.differs?.node;
    if (onPurpose !== undefined) {
      assert.ok(onPurpose.reason);
      assert.notDeepEqual(own, ours, one.name);
      assert.deepEqual(ours, onPurpose.decision, one.name);
    } else if (JSON.stringify(own) !== JSON.stringify(ours)) {
      differences.push({ name: one.name, own, ours });
    }
  }
  assert.ok(cases.length >= 60);
  assert.deepEqual(differences, [], `${differences.length} of ${cases.length} environments differ`);
});

test("an unusable proxy is an error that names only the variable", async (t) => {
  const net = await network(t);
  await within({ HTTPS_PROXY: "gopher://user:sesame@127.0.0.1" }, async () => {
    assert.throws(
      () => new Gate(),
      (error) => {
        assert.ok(error instanceof ConfigError);
        assert.match(error.message, /HTTPS_PROXY .*proxy_from_env = false/);
        assert.doesNotMatch(error.message, /user|sesame|gopher/);
        return true;
      },
    );
    const direct = new Gate({ ...ONCE, transport: { proxy_from_env: false } });
    assert.equal(await net.way(direct.fetch, "http://127.0.0.1:{port}/"), "direct");
  });
});

test("the environment is read when the gate opens", async (t) => {
  const net = await network(t);
  const gate = await within({ HTTP_PROXY: net.fill("http://{a}") }, () => new Gate(ONCE));
  await within({ HTTP_PROXY: net.fill("http://{b}"), NO_PROXY: "127.0.0.1" }, async () => {
    assert.equal(await net.way(gate.fetch, "http://127.0.0.1:{port}/"), "a");
  });
  // The absolute form, as proxies need it.
  assert.match(net.a.heads.at(-1), new RegExp(`^GET http://127.0.0.1:${net.origin.port}/ HTTP/1.1\r\n`));
});
