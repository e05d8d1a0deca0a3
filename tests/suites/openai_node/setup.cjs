// Before anything of the suite: the global fetch goes through a gate. What to do is in TIDEGATE_SUITE_RUN; each process adds
// a line to the file named by TIDEGATE_SUITE_COUNT: how many requests went through.
const { appendFileSync } = require('node:fs');
const { isMainThread } = require('node:worker_threads');
const { Gate } = require(process.env.TIDEGATE_SUITE_PACKAGE);

const RUNS = {
  observe: { mode: 'observe' },
  enforce: { mode: 'enforce' },
  // The platform's own fetch stays, below the gate.
  'keep-observe': { mode: 'observe', fetch: globalThis.fetch },
  'keep-enforce': { mode: 'enforce', fetch: globalThis.fetch },
};

const gate = new Gate(RUNS[process.env.TIDEGATE_SUITE_RUN]);
const count = process.env.TIDEGATE_SUITE_COUNT;
let requests = 0;

globalThis.fetch = function fetch(...request) {
  requests += 1;
  return gate.fetch(...request);
};

process.on('exit', () => {
  if (isMainThread && requests > 0) appendFileSync(count, `${requests}\n`);
});
