// Before a suite is loaded: the global fetch goes through a gate.
const { gateFetch } = require('./gate_fetch.cjs');

globalThis.fetch = gateFetch(globalThis.fetch);
// For `setup_client.mjs`. Test environments copy the properties of the global object.
globalThis.tidegateGateFetch = gateFetch;
