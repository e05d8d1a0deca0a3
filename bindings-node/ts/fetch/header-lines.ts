/**
 * Converts headers to and from the form of the native module: one string with two lines for each
 * header, `name\nvalue\n`. In a response, the reason phrase is a line before them.
 *
 * @module
 */
import { invalidRequest } from "../errors.js";
import type { FetchRequest } from "./request.js";

/** Returns the headers as one string of lines `name\nvalue\n`. */
export function toLines(headers: Headers): string {
  let flat = "";
  for (const [name, value] of headers) flat += `${name}\n${value}\n`;
  return flat;
}

/** Request headers that only the connection may set, not the caller. */
const CONNECTION_HEADERS = ["expect", "keep-alive", "transfer-encoding", "upgrade"];

/**
 * Checks that the caller sets no header that only the connection may set.
 *
 * @throws `TypeError` if there is one, as the platform's fetch does.
 */
export function checkNoConnectionHeaders(headers: Headers): void {
  for (const name of CONNECTION_HEADERS) {
    if (headers.has(name)) throw invalidRequest(`the header ${name} cannot be set; remove it`);
  }
}

/** Headers of the caller that are not sent as they are. */
const REPLACED_HEADERS = new Set(["content-length", "host", "sec-fetch-mode"]);

/** Headers of conditional requests, which only the server itself may answer. */
const CONDITIONS = ["if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since"];

/**
 * Returns the request headers as lines `name\nvalue\n`, including the default headers of the
 * platform's fetch.
 *
 * The headers `host`, `content-length` and `sec-fetch-mode` of the caller are left out.
 *
 * @param request - The request. Its URL, `cache` and `mode` determine default headers.
 * @param length - Value of `content-length`, or undefined if the native transport sets it.
 */
export function requestLines({ url, headers, cache, mode }: FetchRequest, length: string | undefined): string {
  let flat = "";
  for (const [name, value] of headers) {
    if (!REPLACED_HEADERS.has(name)) flat += `${name}\n${value}\n`;
  }
  if (length !== undefined) flat += `content-length\n${length}\n`;
  if (!headers.has("accept")) flat += "accept\n*/*\n";
  if (!headers.has("accept-language")) flat += "accept-language\n*\n";
  flat += `sec-fetch-mode\n${mode}\n`;
  if (!headers.has("user-agent")) flat += "user-agent\nnode\n";
  const isConditional = CONDITIONS.some((name) => headers.has(name));
  const uncached = cache === "no-store" || cache === "reload" || (cache === "default" && isConditional);
  if (uncached && !headers.has("pragma")) flat += "pragma\nno-cache\n";
  if (!headers.has("cache-control")) {
    if (uncached) flat += "cache-control\nno-cache\n";
    else if (cache === "no-cache") flat += "cache-control\nmax-age=0\n";
  }
  if (!headers.has("accept-encoding")) {
    const all = url.protocol === "https:" ? "br, gzip, deflate" : "gzip, deflate";
    // A range of an encoded body cannot be decoded.
    flat += `accept-encoding\n${headers.has("range") ? "identity" : all}\n`;
  }
  return flat;
}

/**
 * Parses the headers of a response from one string: a line with the reason phrase, then lines
 * `name\nvalue\n`.
 */
export function parseHeaders(flat: string): Headers {
  const headers = new Headers();
  const lines = flat.split("\n");
  for (let at = 1; at + 1 < lines.length; at += 2) headers.append(lines[at] as string, lines[at + 1] as string);
  return headers;
}

/** Returns the reason phrase, which is the first line of a response's headers. May be "". */
export function reasonPhrase(flat: string): string {
  return flat.slice(0, flat.indexOf("\n"));
}

/**
 * Returns the value of one header without parsing the others, or undefined if the header is
 * missing. Several values are joined by ", ".
 *
 * @param flat - A reason phrase, then the headers, as lines.
 * @param name - The name in lower case.
 */
export function findHeader(flat: string, name: string): string | undefined {
  const mark = `\n${name}\n`;
  let found: string | undefined;
  // Names and values alternate, so the search steps over the values.
  for (let at = flat.indexOf("\n"), value = 0; at >= 0; at = flat.indexOf("\n", value)) {
    value = flat.indexOf("\n", at + 1) + 1;
    if (value === 0) break;
    if (!flat.startsWith(mark, at)) continue;
    const text = flat.slice(value, flat.indexOf("\n", value));
    found = found === undefined ? text : `${found}, ${text}`;
  }
  return found;
}
