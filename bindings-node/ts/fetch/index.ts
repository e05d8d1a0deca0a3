/**
 * `gate.fetch`: the standard's fetch, with the gate's exchange in the place of the network's.
 *
 * @module
 */
import type { NativeGate } from "../native.js";
import { answer, type Parts } from "./answer.js";
import type { Payload } from "./body.js";
import { decoded } from "./decode.js";
import { exchange, type Head } from "./exchange.js";
import { flatten } from "./headers.js";
import { type Asked, asked, type FetchInit, type FetchInput, isForeign, urlOf } from "./input.js";
import { isRedirect, redirected } from "./redirect.js";
import { Source } from "./stream.js";
import { upload } from "./upload.js";

export type Fetch = typeof globalThis.fetch;

/** Statuses without a body. */
const NULL_BODY = new Set([101, 103, 204, 205, 304]);
/** As the standard has it. */
const MOST_REDIRECTS = 20;

/** A fetch through this gate. `wrapped`: the SDK above was told not to retry. */
export function fetchThrough(gate: NativeGate, wrapped: boolean): Fetch {
  return async function fetch(input: FetchInput, init?: FetchInit): Promise<Response> {
    const url = urlOf(input);
    // A relative URL, or no URL: the platform says what is wrong with it.
    if (url === undefined || isForeign(url)) return globalThis.fetch(input, init);
    const read = asked(input, init, url);
    const request = read instanceof Promise ? await read : read;
    if (request.signal?.aborted === true) throw request.signal.reason;
    return send(gate, request, wrapped);
  } as Fetch;
}

async function send(gate: NativeGate, asked: Asked, wrapped: boolean): Promise<Response> {
  let request = asked;
  let crossed = false;
  for (let hops = 0; ; hops++) {
    const head = await once(gate, request, wrapped);
    const next = isRedirect(head.status) ? redirected(request, head) : undefined;
    if (next === undefined) return answer({ ...parts(head, request), redirected: hops > 0, crossed });
    if (head.body instanceof Source) head.body.close();
    if (hops === MOST_REDIRECTS) throw new TypeError("fetch failed: redirected too often");
    crossed ||= next.url.origin !== request.url.origin;
    request = next;
  }
}

function once(gate: NativeGate, request: Asked, wrapped: boolean): Promise<Head> {
  const { url, method, headers, payload, signal } = request;
  const sent = {
    method,
    url: url.hash === "" ? url.href : url.href.slice(0, -url.hash.length),
    headers: flatten(headers, url.protocol === "https:", saysEmpty(method, payload)),
    signal,
    wrapped,
  };
  if (payload === undefined || typeof payload === "string" || payload instanceof Uint8Array) {
    return exchange(gate, { ...sent, body: payload, upload: undefined });
  }
  return upload(payload, (upload) => exchange(gate, { ...sent, body: undefined, upload }), signal);
}

function parts(head: Head, { url, method }: Asked): Omit<Parts, "redirected" | "crossed"> {
  const { status, headers } = head;
  const href = url.hash === "" ? url.href : url.href.slice(0, -url.hash.length);
  if (method === "HEAD" || NULL_BODY.has(status)) {
    if (head.body instanceof Source) head.body.close();
    return { status, headers, body: null, url: href };
  }
  // Every other response has a body, if an empty one.
  return { status, headers, body: decoded(head.body ?? "", headers), url: href };
}

/** Whether it says that it has no content, rather than say nothing. */
function saysEmpty(method: string, payload: Payload): boolean {
  return payload === undefined
    ? method === "POST" || method === "PUT"
    : typeof payload !== "object"
      ? payload === ""
      : false;
}
