// Puts gates above fetches. TIDEGATE_SUITE_RUN selects the gates. When the process ends, it adds a line to the file
// TIDEGATE_SUITE_COUNT: the number of requests through the gates.
const { appendFileSync } = require('node:fs');
const { isMainThread } = require('node:worker_threads');

const [, keep, mode] = /^(keep-)?(.*)$/.exec(process.env.TIDEGATE_SUITE_RUN);
const gated = new WeakMap();
let requests = 0;

process.on('exit', () => {
  if (isMainThread && requests > 0) appendFileSync(process.env.TIDEGATE_SUITE_COUNT, `${requests}\n`);
});

/**
 * Returns a fetch through a gate of its own. In the runs `keep-*`, `own` makes the exchanges below the gate. Returns `own` itself
 * if it is the fetch of a gate.
 */
exports.gateFetch = function gateFetch(own) {
  // Loaded here, because the package takes the global fetch and `Response` of this moment for those of the platform.
  const { Gate } = require(process.env.TIDEGATE_SUITE_PACKAGE);
  if (!gated.has(own)) {
    const gate = new Gate(keep ? { mode, fetch: own } : { mode });
    // With the name and the length of `gate.fetch`, because a suite compares them.
    function fetch(input, ...options) {
      requests += 1;
      return gate.fetch(input, ...options);
    }
    gated.set(own, fetch);
    gated.set(fetch, fetch);
  }
  return gated.get(own);
};
