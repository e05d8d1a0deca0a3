/**
 * Reads the arguments of `fetch` by the rules of the standard.
 *
 * The common arguments of SDKs (a URL, plain options, a text body) are read directly. All other
 * arguments are read with the platform's own `Request`.
 *
 * @module
 */
import { toPlatformSignal, unwatch, watch } from "../abort-signal.js";
import { dispatcherOf } from "./dispatcher.js";
import type { FetchInit, FetchInput } from "./platform-types.js";
import { bodyLength, copyForm, type GivenBody, type Payload, readBody } from "./request-body.js";

/** One request in the form in which it is sent. */
export interface FetchRequest {
  /** URL of the request, which may have a fragment. */
  url: URL;
  /** HTTP method; standard methods are in upper case. */
  method: string;
  /** Headers of the caller. If the caller set no content type, includes that of the body. */
  headers: Headers;
  /** Request body; undefined if the request has none. */
  payload: Payload;
  /** Signal that aborts the call. Undefined without one. */
  signal: AbortSignal | undefined;
  /** The caller's `redirect` option. Default: `follow`. */
  redirect: "follow" | "error" | "manual";
  /** The caller's `cache` option, which determines request headers. Default: `default`. */
  cache: Request["cache"];
  /** The caller's `mode` option, which is sent as `sec-fetch-mode`. Default: `cors`. */
  mode: Request["mode"];
  /**
   * A copy of the options that the caller passed to `fetch`; undefined if it passed none. A custom
   * fetch gets those options for which this interface has no field.
   */
  init: FetchInit | undefined;
}

/** The names of the options that the platform's fetch reads. */
const OPTIONS = [
  "body",
  "cache",
  "credentials",
  "dispatcher",
  "duplex",
  "headers",
  "integrity",
  "keepalive",
  "method",
  "mode",
  "priority",
  "redirect",
  "referrer",
  "referrerPolicy",
  "signal",
  "window",
];
const KNOWN = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);
const REDIRECTS = new Set(["follow", "error", "manual"]);

/**
 * Returns `true` if the call has the option `integrity`, which only the platform's fetch implements.
 */
export function hasIntegrity({ init }: FetchRequest): boolean {
  return init?.integrity !== undefined && init.integrity !== "";
}

/** Returns `true` for URLs that only the platform's fetch supports, such as `data:` and `blob:`. */
export function isNotHttp(url: URL): boolean {
  return url.protocol !== "http:" && url.protocol !== "https:";
}

/**
 * Returns the URL of the first argument of `fetch`, or undefined if it is relative or malformed.
 */
export function urlOf(input: FetchInput): URL | undefined {
  // A URL object is copied, because its owner may change it while the call waits. Other objects are
  // read as text, as the platform's fetch does.
  const text = input instanceof URL ? input.href : typeof input === "string" ? input : (input?.url ?? String(input));
  try {
    return new URL(text);
  } catch {
    return undefined;
  }
}

/**
 * Reads the arguments of `fetch`.
 *
 * @param url - The URL of `input`.
 * @returns The request itself for the common arguments of SDKs: a URL, plain options, and a text
 * body or none (`readSimple` states the exact rule). Otherwise a promise of the request.
 * @throws The `TypeError`s of the fetch standard: as rejections if the result is a promise.
 */
export function readRequest(
  input: FetchInput,
  init: FetchInit | undefined,
  url: URL,
): FetchRequest | Promise<FetchRequest> {
  const options = init == null ? undefined : copyOptions(init);
  return readSimple(input, options, url) ?? readWithPlatform(input, options, url, init instanceof Request);
}

/**
 * Returns a copy of the options of `fetch`. A change of the caller's object or form while the call
 * waits does not change the copy.
 *
 * The options of the platform's fetch are read by name, because a `Request` inherits them. The
 * options that only a custom fetch knows must be properties of the object itself.
 */
function copyOptions(init: FetchInit): FetchInit {
  const options: Record<string, unknown> = { ...init };
  for (const name of OPTIONS) {
    const value = (init as Record<string, unknown>)[name];
    if (value !== undefined) options[name] = name === "body" ? copyForm(value) : value;
  }
  return options;
}

/**
 * Reads the arguments of `fetch` without the platform's `Request`. Returns undefined unless all of
 * these hold: `input` is a URL without credentials; the method is GET, HEAD, POST, PUT, PATCH,
 * DELETE or OPTIONS in upper case; `redirect` is valid; `cache` and `mode` are missing; the signal
 * is an `AbortSignal` or missing; and there is no body, or a text that is not sent with GET or
 * HEAD.
 */
function readSimple(input: FetchInput, init: FetchInit | undefined, url: URL): FetchRequest | undefined {
  if (typeof input !== "string" && !(input instanceof URL)) return undefined;
  if (url.username !== "" || url.password !== "") return undefined;
  // The typings lack `cache`.
  const options: FetchInit & { cache?: unknown } = init ?? {};
  const { method = "GET", headers, body, signal, redirect = "follow" } = options;
  const verb = KNOWN.has(method) ? method : undefined;
  if (verb === undefined || !REDIRECTS.has(redirect) || (signal != null && !(signal instanceof AbortSignal))) {
    return undefined;
  }
  if (options.cache !== undefined || options.mode !== undefined) return undefined;
  const sent = new Headers(headers);
  if (body != null) {
    if (typeof body !== "string" || verb === "GET" || verb === "HEAD") return undefined;
    if (!sent.has("content-type")) sent.set("content-type", "text/plain;charset=UTF-8");
  }
  return {
    url,
    method: verb,
    headers: sent,
    payload: body ?? undefined,
    signal: signal ?? undefined,
    redirect,
    cache: "default",
    mode: "cors",
    init,
  };
}

/**
 * Reads any arguments of `fetch` with the platform's `Request`. `fromRequest` is `true` if the
 * options are those of a `Request`.
 */
async function readWithPlatform(
  input: FetchInput,
  init: FetchInit | undefined,
  url: URL,
  fromRequest: boolean,
): Promise<FetchRequest> {
  // The signal is watched directly, because a `Request` adds a signal and a listener of its own.
  const { signal, ...rest } = init ?? {};
  const given: GivenBody = fromRequest ? undefined : (rest.body ?? undefined);
  const request = new Request(input, rest);
  // Throws the platform's own error.
  if (signal != null && !(signal instanceof AbortSignal)) new Request(url, { signal });
  const own = input instanceof Request ? input.signal : undefined;
  const result: FetchRequest = {
    url: reuseUrl(request.url, url),
    method: request.method,
    headers: new Headers(request.headers),
    payload: undefined,
    signal: signal === undefined ? own : signal === null ? undefined : toPlatformSignal(signal),
    redirect: request.redirect,
    cache: request.cache,
    mode: request.mode,
    init: { ...init, ...platformOptions(request) },
  };
  if (result.signal?.aborted === true) {
    request.body?.cancel(result.signal.reason).catch(() => {});
    return result;
  }
  result.payload = await orAborted(readBody(request, given), result.signal);
  if (result.payload instanceof ReadableStream && !result.headers.has("content-length")) {
    const length = await bodyLength(given);
    if (length !== undefined) result.headers.set("content-length", String(length));
  }
  return result;
}

/** Returns the options of a `Request` that only the platform's fetch implements. */
function platformOptions(request: Request): FetchInit {
  const dispatcher = dispatcherOf(request);
  const { integrity } = request;
  return { ...(dispatcher !== undefined && { dispatcher }), ...(integrity !== "" && { integrity }) };
}

/**
 * Returns a promise of the result of `work`. It rejects with the signal's reason as soon as the
 * signal is aborted.
 */
function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    const call = { abort: reject };
    watch(signal, call);
    work.then(resolve, reject).finally(() => unwatch(signal, call));
  });
}

/**
 * Returns `url` itself if it has the text `text`, which avoids parsing the text again. Otherwise
 * returns the URL of the text.
 */
function reuseUrl(text: string, url: URL): URL {
  return text === url.href ? url : new URL(text);
}
