// Before a suite of undici is loaded: its fetch goes through a gate. The checkout's undici takes the place of the one in Node, so
// that the gate makes and reads the objects that the tests compare.
const path = require('node:path');
const { gateFetch } = require('./gate_fetch.cjs');

const undici = require(path.resolve('index.js'));
for (const name of ['fetch', 'FormData', 'Headers', 'Request', 'Response']) globalThis[name] = undici[name];
undici.fetch = gateFetch(undici.fetch);

// The tests set an agent for certificates, with which the gate would leave the exchanges to undici. No test has such a server.
const { MockAgent, setGlobalDispatcher } = undici;
if (!process.env.TIDEGATE_SUITE_RUN.startsWith('keep-')) {
  undici.setGlobalDispatcher = (dispatcher) => {
    if (dispatcher instanceof MockAgent) setGlobalDispatcher(dispatcher);
  };
}
