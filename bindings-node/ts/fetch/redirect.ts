/**
 * Follows redirects as the fetch standard requires. A redirect can change the method. Headers that
 * another origin must not receive are removed.
 *
 * @module
 */
import { invalidRequest } from "../errors.js";
import type { ResponseHead } from "./exchange.js";
import { findHeader } from "./header-lines.js";
import type { FetchRequest } from "./request.js";

const BODY_HEADERS = ["content-encoding", "content-language", "content-location", "content-type", "content-length"];
const CREDENTIALS = ["authorization", "proxy-authorization", "cookie", "host"];

/** Returns `true` for the statuses that redirect a fetch: 301, 302, 303, 307 and 308. */
export function isRedirect(status: number): boolean {
  return status === 301 || status === 302 || status === 303 || status === 307 || status === 308;
}

/**
 * Returns the request that follows a redirect, with the method and headers that the standard
 * requires.
 *
 * Returns undefined if the caller gets the redirect response itself: with `redirect: "manual"`, or
 * without a `location` header.
 *
 * @throws `TypeError` if the option `redirect` is `error`, if the new URL is malformed or not HTTP,
 * if it has credentials and another origin, or if a streamed body would have to be sent again.
 */
export function followRedirect(request: FetchRequest, head: ResponseHead): FetchRequest | undefined {
  if (request.redirect === "manual") return undefined;
  if (request.redirect === "error") throw invalidRequest("unexpected redirect");
  const location = findHeader(head.headers, "location");
  if (location === undefined) return undefined;
  const url = resolveLocation(location, request.url);
  const { status } = head;
  let { method, payload } = request;
  const headers = new Headers(request.headers);
  if (status !== 303 && payload !== undefined && typeof payload !== "string" && !(payload instanceof Uint8Array)) {
    throw invalidRequest("the redirect needs the body again, but it was streamed");
  }
  if (
    ((status === 301 || status === 302) && method === "POST") ||
    (status === 303 && method !== "GET" && method !== "HEAD")
  ) {
    method = "GET";
    payload = undefined;
    for (const name of BODY_HEADERS) headers.delete(name);
  }
  if (url.origin !== request.url.origin) {
    if (url.username !== "" || url.password !== "") {
      throw invalidRequest("redirected to another origin with credentials in the URL");
    }
    for (const name of CREDENTIALS) headers.delete(name);
  }
  return { ...request, url, method, headers, payload };
}

/**
 * Returns the absolute URL of a `location` header.
 *
 * @throws `TypeError` if the URL is malformed or not HTTP.
 */
function resolveLocation(location: string, base: URL): URL {
  // Headers are decoded as latin1, but a location may be UTF-8.
  const text = Buffer.from(location, "latin1").toString("utf8");
  let url: URL;
  try {
    url = new URL(text, base);
  } catch {
    throw invalidRequest("redirected to a malformed URL");
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw invalidRequest("redirected to a URL that is not HTTP");
  }
  if (url.hash === "") url.hash = base.hash;
  return url;
}
