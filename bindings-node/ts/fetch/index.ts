/**
 * `gate.fetch`: the standard fetch, with exchanges through the gate.
 *
 * @module
 */

import { anySignal } from "../abort-signal.js";
import { currentSignal } from "../context.js";
import type { NativeGate } from "../native.js";
import { hasCustomGlobalDispatcher } from "./dispatcher.js";
import { isNotHttp, readRequest, urlOf } from "./request.js";
import { sendByCustomFetch, sendNatively } from "./send.js";
import type { Fetch, FetchInit, FetchInput } from "./types.js";

/** How a fetch makes its exchanges. */
export interface FetchSettings {
  /** Whether the fetch belongs to an SDK whose retries are disabled. */
  wrapped: boolean;
  /**
   * What makes the exchanges: the native transport, or a fetch. `auto`: the native transport, or
   * the platform's fetch if the call or the process has an undici dispatcher.
   */
  transport: Fetch | "native" | "auto";
}

/** The platform's fetch when this module was loaded. A different global fetch is a custom one. */
const platformFetch = globalThis.fetch;

let insidePlatformFetch = false;

/**
 * Calls the current global fetch, which may be a mock.
 *
 * If a gate's fetch was made the global one, the original one is called, to avoid an endless
 * recursion.
 */
const currentPlatformFetch: Fetch = (input, init) => {
  if (insidePlatformFetch) return platformFetch(input, init);
  insidePlatformFetch = true;
  try {
    return globalThis.fetch(input, init);
  } finally {
    insidePlatformFetch = false;
  }
};

/** The transport of each fetch of a gate, so that a client can be wrapped twice. */
const transports = new WeakMap<Fetch, FetchSettings["transport"]>();

/** Returns a fetch that bypasses the gate: the custom fetch, or the platform's. */
export function fetchWithoutGate(own: Fetch | undefined): Fetch {
  const fetch: Fetch = (input, init) => (own ?? currentPlatformFetch)(input, init);
  transports.set(fetch, own ?? "auto");
  return fetch;
}

/** Returns a fetch that sends through the gate. */
export function fetchThroughGate(gate: NativeGate, { wrapped, transport }: FetchSettings): Fetch {
  const fetch = async (input: FetchInput, init?: FetchInit): Promise<Response> => {
    const url = urlOf(input);
    const own = typeof transport === "function" ? transport : undefined;
    // The platform reports what is wrong with a relative or malformed URL.
    if (url === undefined || isNotHttp(url)) return (own ?? currentPlatformFetch)(input, init);
    const read = readRequest(input, init, url);
    const request = read instanceof Promise ? await read : read;
    request.signal = anySignal(request.signal, currentSignal());
    if (request.signal?.aborted === true) throw request.signal.reason;
    if (own !== undefined) return sendByCustomFetch(gate, request, wrapped, own);
    // The dispatcher belongs to the platform's fetch, even if the global fetch was replaced since.
    if (transport === "auto" && (request.init?.dispatcher !== undefined || hasCustomGlobalDispatcher())) {
      return sendByCustomFetch(gate, request, wrapped, platformFetch);
    }
    return sendNatively(gate, request, wrapped);
  };
  transports.set(fetch as Fetch, transport);
  return fetch as Fetch;
}

/** Returns the custom fetch that makes a client's exchanges, or `auto`. */
export function customFetchOf(fetch: Fetch): Fetch | "auto" {
  const transport = transports.get(fetch) ?? fetch;
  return typeof transport === "function" && transport !== platformFetch ? transport : "auto";
}
