/**
 * Copies of SDK clients whose requests go through a gate.
 *
 * @module
 */
import type { SdkRetries } from "./fetch/exchange.js";
import type { Fetch } from "./fetch/platform-types.js";

/** The default of `maxRetries` in the SDKs of OpenAI and Anthropic. */
const DEFAULT_MAX_RETRIES = 2;
/** The retries that stand for an infinite number. The retry budget and the deadline end the call. */
const MOST_RETRIES = 1_000_000;

interface Sdk {
  withOptions(options: SdkOptions): Sdk;
  /** The options of the constructor. The SDK calls a function `apiKey` before each request. */
  _options?: { apiKey?: unknown };
  fetch: unknown;
  maxRetries?: number;
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
  const copy = sdk.withOptions({ ...azure, ...options });
  const apiKey = sdk._options?.apiKey;
  // `withOptions` of openai 5.19 to 6.28 replaces a function by the last key that it returned. The
  // function is not passed as an option, because BedrockOpenAI rejects it.
  if (typeof apiKey === "function" && copy._options !== undefined) copy._options.apiKey = apiKey;
  return copy as Client & Sdk;
}

/** Returns the retries that the user has set at an SDK client. The SDKs' default counts as not set. */
export function retriesOf(client: object): SdkRetries {
  const { maxRetries = DEFAULT_MAX_RETRIES } = asSdkClient(client);
  return { maxAttempts: maxRetries === DEFAULT_MAX_RETRIES ? undefined : Math.min(maxRetries, MOST_RETRIES) + 1 };
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
