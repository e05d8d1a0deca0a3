/**
 * `gate.fetch`: the standard's fetch, with the gate's exchange in the place of the network's.
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

/** How a fetch's calls go. */
export interface FetchSettings {
  /** The SDK above was told not to retry. */
  wrapped: boolean;
  /**
   * What makes the exchanges: the native transport, or a fetch of the caller's own. With `auto` the
   * native one, or the platform's fetch if the call or the process has an undici dispatcher.
   */
  transport: Fetch | "native" | "auto";
}

/** The platform's, as it was when we were loaded: one that differs from it is somebody's own. */
const platformFetch = globalThis.fetch;

let insidePlatformFetch = false;

/**
 * The platform's fetch as it is now, a mock's included. Where somebody has made ours the global one it is the one from before: ours
 * would ask itself for ever.
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

/** What each fetch of ours has below it: to be found again where a client is wrapped twice. */
const transports = new WeakMap<Fetch, FetchSettings["transport"]>();

/** No gate at all: the caller's own fetch, or the platform's. */
export function fetchWithoutGate(own: Fetch | undefined): Fetch {
  const fetch: Fetch = (input, init) => (own ?? currentPlatformFetch)(input, init);
  transports.set(fetch, own ?? "auto");
  return fetch;
}

/** A fetch through this gate. */
export function fetchThroughGate(gate: NativeGate, { wrapped, transport }: FetchSettings): Fetch {
  const fetch = async (input: FetchInput, init?: FetchInit): Promise<Response> => {
    const url = urlOf(input);
    const own = typeof transport === "function" ? transport : undefined;
    // A relative URL, or no URL: the platform says what is wrong with it.
    if (url === undefined || isNotHttp(url)) return (own ?? currentPlatformFetch)(input, init);
    const read = readRequest(input, init, url);
    const request = read instanceof Promise ? await read : read;
    request.signal = anySignal(request.signal, currentSignal());
    if (request.signal?.aborted === true) throw request.signal.reason;
    if (own !== undefined) return sendByCustomFetch(gate, request, wrapped, own);
    // The dispatcher is for the platform's fetch, even if another fetch is the global one by now.
    if (transport === "auto" && (request.init?.dispatcher !== undefined || hasCustomGlobalDispatcher())) {
      return sendByCustomFetch(gate, request, wrapped, platformFetch);
    }
    return sendNatively(gate, request, wrapped);
  };
  transports.set(fetch as Fetch, transport);
  return fetch as Fetch;
}

/** Whose exchanges a client's are, by the fetch that it has. */
export function customFetchOf(fetch: Fetch): Fetch | "auto" {
  const transport = transports.get(fetch) ?? fetch;
  return typeof transport === "function" && transport !== platformFetch ? transport : "auto";
}
