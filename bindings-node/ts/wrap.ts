/**
 * `gate.wrap(client)`: the client a user has, with its HTTP going through the gate.
 *
 * @module
 */
import type { Fetch } from "./fetch/index.js";

interface Sdk {
  withOptions(options: { fetch?: Fetch; maxRetries?: number }): Sdk;
}

/** A copy of the SDK's client that uses this fetch. `withOptions` is the SDKs' own way to copy a client. */
export function wrapped<Client extends object>(
  client: Client,
  options: { fetch?: Fetch; maxRetries?: number },
): Client {
  const sdk = client as Client & Sdk;
  if (typeof sdk.withOptions !== "function" || typeof (sdk as { fetch?: unknown }).fetch !== "function") {
    const name = (client as object | null | undefined)?.constructor?.name ?? String(client);
    throw new TypeError(
      `cannot wrap ${name}: gate.wrap takes the clients of openai and @anthropic-ai/sdk; whatever else takes a fetch, takes gate.fetch`,
    );
  }
  return sdk.withOptions(options) as Client & Sdk;
}
