/**
 * `gate.fetch`: the standard fetch, with exchanges through the gate.
 *
 * @module
 */

import { anySignal } from "../abort-signal.js";
import { currentSignal } from "../context.js";
import { FETCH_FAILED } from "../errors.js";
import { type NativeGate, native } from "../native.js";
import { hasCustomGlobalDispatcher } from "./dispatcher.js";
import type { SdkRetries } from "./exchange.js";
import { exchangeBy, isInExchange, isRunning } from "./exchange-context.js";
import type { Fetch, FetchInit, FetchInput } from "./platform-types.js";
import { type FetchRequest, hasIntegrity, isNotHttp, readRequest, urlOf } from "./request.js";
import { cancelUnread } from "./request-body.js";
import { sendByCustomFetch, sendNatively } from "./send.js";

/** The settings of a fetch that a gate creates. */
export interface FetchSettings {
  /** The retries of the SDK that the fetch belongs to; undefined if it belongs to no wrapped SDK. */
  sdk: SdkRetries | undefined;
  /**
   * What makes the exchanges: `native` (the gate's own transport), a custom fetch, or `auto` (the
   * gate's transport, unless the call or the process has a custom undici dispatcher).
   */
  transport: Fetch | "native" | "auto";
}

/**
 * The platform's fetch: the global fetch at the time when this module was loaded, which is assumed
 * not to have been replaced before. Any other fetch that no gate has created counts as custom.
 */
const platformFetch = globalThis.fetch;

/**
 * The settings of each fetch that a gate has created. If a wrapped client is wrapped again, its
 * original custom fetch and its retries are read from this map.
 */
const settingsOf = new WeakMap<Fetch, FetchSettings>();

/**
 * Returns the retries with which a client was wrapped before, or undefined if its fetch is not that
 * of a wrapped client.
 */
export function sdkRetriesOf(fetch: Fetch): SdkRetries | undefined {
  return settingsOf.get(fetch)?.sdk;
}

/**
 * Returns a fetch that bypasses the gate. In the code that `own` calls, it is the platform's.
 *
 * @param own - The fetch to call, or undefined for the current global fetch, which may be a mock.
 */
export function fetchWithoutGate(gate: NativeGate, own: Fetch | undefined): Fetch {
  const fetch: Fetch = (input, init) =>
    isInExchange(gate)
      ? fetchInExchange(gate, own, input, init)
      : exchangeBy(gate, own ?? globalThis.fetch, input, init);
  settingsOf.set(fetch, { sdk: undefined, transport: own ?? "auto" });
  return fetch;
}

/**
 * Returns a fetch that sends HTTP requests through the gate. Requests to other URLs, such as
 * `data:`, bypass the gate, and so do requests of the code that makes an exchange for this gate.
 */
export function fetchThroughGate(gate: NativeGate, settings: FetchSettings): Fetch {
  const { sdk, transport } = settings;
  const own = typeof transport === "function" ? transport : undefined;
  // The default value makes `fetch.length` 1, as that of the platform's fetch.
  const fetch = async (input: FetchInput, init: FetchInit | undefined = undefined): Promise<Response> => {
    let request: FetchRequest | undefined;
    try {
      if (isInExchange(gate)) return await fetchInExchange(gate, own, input, init);
      const url = urlOf(input);
      // The platform reports what is wrong with a relative or malformed URL.
      if (url === undefined || isNotHttp(url)) {
        return await exchangeBy(gate, own ?? globalThis.fetch, input, init);
      }
      const read = readRequest(input, init, url);
      request = read instanceof Promise ? await read : read;
      request.signal = anySignal(request.signal, currentSignal());
      if (request.signal?.aborted === true) throw request.signal.reason;
      const dispatched =
        transport === "auto" && (request.init?.dispatcher !== undefined || hasCustomGlobalDispatcher());
      // Dispatchers belong to the platform's fetch, even if the global fetch was replaced since.
      const custom = own ?? (dispatched || hasIntegrity(request) ? platformFetch : undefined);
      if (custom !== undefined && !native.isNetworkFaked()) return await sendByCustomFetch(gate, request, sdk, custom);
      return await sendNatively(gate, request, sdk);
    } catch (error) {
      cancelUnread(request?.payload, error);
      // The error was created in a callback, so its stack does not contain the caller.
      if (error instanceof TypeError && error.message === FETCH_FAILED) Error.captureStackTrace(error, fetch);
      throw error;
    }
  };
  settingsOf.set(fetch as Fetch, settings);
  return fetch as Fetch;
}

/**
 * Sends a request of code that is part of an exchange for the gate: by the custom fetch of its
 * client, or by the platform's fetch if there is none or if that fetch makes the exchange.
 */
async function fetchInExchange(
  gate: NativeGate,
  own: Fetch | undefined,
  input: FetchInput,
  init: FetchInit | undefined,
): Promise<Response> {
  if (own === undefined || isRunning(own)) return await platformFetch(input, init);
  return await exchangeBy(gate, own, input, init);
}

/**
 * Returns the custom fetch that a client's fetch uses to make its exchanges, or `auto` if it uses
 * none.
 */
export function customFetchOf(fetch: Fetch): Fetch | "auto" {
  const transport = settingsOf.get(fetch)?.transport ?? fetch;
  return typeof transport === "function" && transport !== platformFetch ? transport : "auto";
}
