// Before a test file is loaded: what the clients of an SDK were given as `fetch` stays below a gate. TIDEGATE_SUITE_CLIENT is the
// path of the module of the client class.
exports.gateClients = function gateClients({ BaseAnthropic, OpenAI }) {
  const { prototype } = BaseAnthropic ?? OpenAI;
  const { fetchWithTimeout } = prototype;
  prototype.fetchWithTimeout = function (...request) {
    this.fetch = globalThis.tidegateGateFetch(this.fetch);
    return fetchWithTimeout.apply(this, request);
  };
};
if (typeof jest !== 'undefined') exports.gateClients(require(process.env.TIDEGATE_SUITE_CLIENT));
