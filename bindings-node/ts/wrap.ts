/**
 * Copies of SDK clients whose requests go through a gate.
 *
 * @module
 */
import type { Fetch } from "./fetch/platform-types.js";

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

/**
 * Returns the fetch that an SDK client uses.
 *
 * @throws `TypeError` if the object is not a supported client.
 */
export function fetchOf(client: object): Fetch {
  return asSdkClient(client).fetch as Fetch;
}

/**
 * Returns a copy of an SDK client, made by the SDK's own `withOptions` with these options.
 *
 * @throws `TypeError` if the object is not a supported client.
 */
export function copyClient<Client extends object>(client: Client, options: SdkOptions): Client {
  const sdk = asSdkClient(client);
  // `withOptions` of Azure's client does not copy these settings.
  const azure = sdk.apiVersion === undefined ? {} : { apiVersion: sdk.apiVersion, deployment: sdk.deploymentName };
  return sdk.withOptions({ ...azure, ...options }) as Client & Sdk;
}

function asSdkClient(client: object): Sdk {
  const sdk = client as Partial<Sdk>;
  if (typeof sdk?.withOptions !== "function" || typeof sdk.fetch !== "function") {
    const name = client?.constructor?.name ?? String(client);
    throw new TypeError(
      `cannot wrap ${name}: gate.wrap supports the clients of openai and @anthropic-ai/sdk. To any other library that accepts a fetch, pass gate.fetch`,
    );
  }
  return sdk as Sdk;
}
