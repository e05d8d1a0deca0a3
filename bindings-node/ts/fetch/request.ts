/**
 * What `fetch` was asked: brought into one shape, by the standard's rules.
 *
 * What SDKs send (a URL, plain options, a string) is read directly; for anything else the platform's own `Request` reads it.
 *
 * @module
 */
import { unwatch, watch } from "../abort-signal.js";
import { dispatcherOf } from "./dispatcher.js";
import { bodyLength, type GivenBody, type Payload, readBody } from "./request-body.js";
import type { FetchInit, FetchInput } from "./types.js";

/** One request, ready to be sent. */
export interface FetchRequest {
  url: URL;
  method: string;
  headers: Headers;
  payload: Payload;
  signal: AbortSignal | undefined;
  redirect: "follow" | "error" | "manual";
  /** As it was given: a fetch of the caller's own may know more of it. */
  init: FetchInit | undefined;
}

const KNOWN = new Set(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]);
const REDIRECTS = new Set(["follow", "error", "manual"]);

/** Whether a URL is none of ours (`data:`, `blob:`). */
export function isNotHttp(url: URL): boolean {
  return url.protocol !== "http:" && url.protocol !== "https:";
}

/** The URL, where it can be read without a `Request`. */
export function urlOf(input: FetchInput): URL | undefined {
  // A copy of one that its owner may change while the call waits; and what is neither is read as text, as stock fetch does.
  const text = input instanceof URL ? input.href : typeof input === "string" ? input : (input.url ?? String(input));
  try {
    return new URL(text);
  } catch {
    return undefined;
  }
}

/** Reads the arguments. Throws (or rejects with) the standard's `TypeError`s. */
export function readRequest(
  input: FetchInput,
  init: FetchInit | undefined,
  url: URL,
): FetchRequest | Promise<FetchRequest> {
  return readSimple(input, init, url) ?? readWithPlatform(input, init, url);
}

/** The common case: a URL, and options that need no more than a look. */
function readSimple(input: FetchInput, init: FetchInit | undefined, url: URL): FetchRequest | undefined {
  if (typeof input !== "string" && !(input instanceof URL)) return undefined;
  if (url.username !== "" || url.password !== "") return undefined;
  const { method = "GET", headers, body, signal, redirect = "follow" } = init ?? {};
  const verb = KNOWN.has(method) ? method : undefined;
  if (verb === undefined || !REDIRECTS.has(redirect) || (signal != null && !(signal instanceof AbortSignal))) {
    return undefined;
  }
  const sent = new Headers(headers);
  if (body == null)
    return { url, method: verb, headers: sent, payload: undefined, signal: signal ?? undefined, redirect, init };
  if (typeof body !== "string" || verb === "GET" || verb === "HEAD") return undefined;
  if (!sent.has("content-type")) sent.set("content-type", "text/plain;charset=UTF-8");
  return { url, method: verb, headers: sent, payload: body, signal: signal ?? undefined, redirect, init };
}

async function readWithPlatform(input: FetchInput, init: FetchInit | undefined, url: URL): Promise<FetchRequest> {
  // Its signal is ours to watch; a `Request` would put one of its own in between, with a listener each.
  const { signal, ...rest } = init ?? {};
  const given: GivenBody = rest.body ?? undefined;
  const request = new Request(input, rest);
  if (signal != null && !(signal instanceof AbortSignal)) {
    throw new TypeError("fetch: init.signal is not an AbortSignal");
  }
  const own = input instanceof Request ? input.signal : undefined;
  const dispatcher = dispatcherOf(request);
  const result: FetchRequest = {
    url: withoutFragment(request.url, url),
    method: request.method,
    headers: new Headers(request.headers),
    payload: undefined,
    signal: signal === undefined ? own : (signal ?? undefined),
    redirect: request.redirect,
    init: dispatcher === undefined ? init : { ...init, dispatcher },
  };
  if (result.signal?.aborted === true) return result;
  result.payload = await orAborted(readBody(request, given), result.signal);
  if (result.payload instanceof ReadableStream && !result.headers.has("content-length")) {
    const length = await bodyLength(given);
    if (length !== undefined) result.headers.set("content-length", String(length));
  }
  return result;
}

/** What comes of it, unless the signal is faster. */
function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    const call = { abort: reject };
    watch(signal, call);
    work.then(resolve, reject).finally(() => unwatch(signal, call));
  });
}

/** A `Request` keeps the fragment in its URL. */
function withoutFragment(text: string, url: URL): URL {
  return text === url.href ? url : new URL(text);
}
