/**
 * `gate.fetch`: the standard's fetch, with the gate's exchange in the place of the network's.
 *
 * @module
 */

import { either } from "../abort-signal.js";
import { ending } from "../context.js";
import type { NativeGate } from "../native.js";
import { hasCustomGlobalDispatcher } from "./dispatcher.js";
import { asked, isForeign, urlOf } from "./request.js";
import { byOwn, direct } from "./send.js";
import type { Fetch, FetchInit, FetchInput } from "./types.js";

/** How a fetch's calls go. */
export interface Way {
  /** The SDK above was told not to retry. */
  wrapped: boolean;
  /**
   * What makes the exchanges: the native transport, or a fetch of the caller's own. With `auto` the
   * native one, or the platform's fetch if the call or the process has an undici dispatcher.
   */
  by: Fetch | "native" | "auto";
}

/** The platform's, as it was when we were loaded: one that differs from it is somebody's own. */
const stock = globalThis.fetch;

let asking = false;

/**
 * The platform's fetch as it is now, a mock's included. Where somebody has made ours the global one it is the one from before: ours
 * would ask itself for ever.
 */
export const platform: Fetch = (input, init) => {
  if (asking) return stock(input, init);
  asking = true;
  try {
    return globalThis.fetch(input, init);
  } finally {
    asking = false;
  }
};

/** What each fetch of ours has below it: to be found again where a client is wrapped twice. */
const below = new WeakMap<Fetch, Way["by"]>();

/** No gate at all: the caller's own fetch, or the platform's. */
export function fetchAside(own: Fetch | undefined): Fetch {
  const fetch: Fetch = (input, init) => (own ?? platform)(input, init);
  below.set(fetch, own ?? "auto");
  return fetch;
}

/** A fetch through this gate. */
export function fetchThrough(gate: NativeGate, { wrapped, by }: Way): Fetch {
  const fetch = async (input: FetchInput, init?: FetchInit): Promise<Response> => {
    const url = urlOf(input);
    const own = typeof by === "function" ? by : undefined;
    // A relative URL, or no URL: the platform says what is wrong with it.
    if (url === undefined || isForeign(url)) return (own ?? platform)(input, init);
    const read = asked(input, init, url);
    const request = read instanceof Promise ? await read : read;
    request.signal = either(request.signal, ending());
    if (request.signal?.aborted === true) throw request.signal.reason;
    if (own !== undefined) return byOwn(gate, request, wrapped, own);
    // The dispatcher is for the platform's fetch, even if another fetch is the global one by now.
    if (by === "auto" && (request.init?.dispatcher !== undefined || hasCustomGlobalDispatcher())) {
      return byOwn(gate, request, wrapped, stock);
    }
    return direct(gate, request, wrapped);
  };
  below.set(fetch as Fetch, by);
  return fetch as Fetch;
}

/** Whose exchanges a client's are, by the fetch that it has. */
export function ownerOf(fetch: Fetch): Fetch | "auto" {
  const by = below.get(fetch) ?? fetch;
  return typeof by === "function" && by !== stock ? by : "auto";
}
