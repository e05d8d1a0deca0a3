/**
 * `gate.wrap(client)`: the client a user has, with its HTTP going through the gate.
 *
 * @module
 */
import type { Fetch } from "./fetch/types.js";

interface Sdk {
  withOptions(options: SdkOptions): Sdk;
  fetch: unknown;
  apiVersion?: string;
  deploymentName?: string;
}

interface SdkOptions {
  fetch?: Fetch;
  maxRetries?: number;
  apiVersion?: string;
  deployment?: string | undefined;
}

/** The fetch that the client has. */
export function fetchOf(client: object): Fetch {
  return asSdkClient(client).fetch as Fetch;
}

/** A copy of the SDK's client with these options. `withOptions` is the SDKs' own way to copy one. */
export function copyClient<Client extends object>(client: Client, options: SdkOptions): Client {
  const sdk = asSdkClient(client);
  // What Azure's client needs to be made again, and does not hand on by itself.
  const azure = sdk.apiVersion === undefined ? {} : { apiVersion: sdk.apiVersion, deployment: sdk.deploymentName };
  return sdk.withOptions({ ...azure, ...options }) as Client & Sdk;
}

function asSdkClient(client: object): Sdk {
  const sdk = client as Partial<Sdk>;
  if (typeof sdk?.withOptions !== "function" || typeof sdk.fetch !== "function") {
    const name = client?.constructor?.name ?? String(client);
    throw new TypeError(
      `cannot wrap ${name}: gate.wrap takes the clients of openai and @anthropic-ai/sdk; whatever else takes a fetch, takes gate.fetch`,
    );
  }
  return sdk as Sdk;
}
