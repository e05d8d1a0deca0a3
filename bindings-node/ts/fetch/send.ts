/**
 * One call, sent: by the native transport or by the caller's own fetch, and made a response.
 *
 * @module
 */
import type { NativeGate } from "../native.js";
import { decoded } from "./content-encoding.js";
import { Host, restored } from "./custom-fetch.js";
import { exchange, type Head } from "./exchange.js";
import { checkConnection, flatten, lines } from "./headers.js";
import { isRedirect, redirected } from "./redirect.js";
import type { Asked } from "./request.js";
import { answer, type Parts } from "./response.js";
import { Source } from "./response-body.js";
import type { Fetch } from "./types.js";
import { upload } from "./upload.js";

/** Statuses without a body. */
const NULL_BODY = new Set([101, 103, 204, 205, 304]);
/** As the standard has it. */
const MOST_REDIRECTS = 20;

/** By the native transport. It follows no redirects, and decodes no bodies. */
export async function direct(gate: NativeGate, asked: Asked, wrapped: boolean): Promise<Response> {
  let request = asked;
  let crossed = false;
  for (let hops = 0; ; hops++) {
    const head = await once(gate, request, wrapped);
    try {
      const next = isRedirect(head.status) ? redirected(request, head) : undefined;
      if (next === undefined) return answer({ ...parts(head, request), redirected: hops > 0, crossed });
      if (hops === MOST_REDIRECTS) throw new TypeError("fetch failed: redirected too often");
      crossed ||= next.url.origin !== request.url.origin;
      request = next;
    } catch (error) {
      close(head);
      throw error;
    }
    close(head);
  }
}

function once(gate: NativeGate, request: Asked, wrapped: boolean): Promise<Head> {
  const { url, method, headers, payload, signal } = request;
  checkConnection(headers);
  const sent = {
    method,
    url: hrefOf(url),
    headers: flatten(headers, url.protocol === "https:", lengthOf(request)),
    signal,
    wrapped,
    host: undefined,
  };
  if (payload === undefined || typeof payload === "string" || payload instanceof Uint8Array) {
    return exchange(gate, { ...sent, body: payload, upload: undefined });
  }
  return upload(payload, (upload) => exchange(gate, { ...sent, body: undefined, upload }), signal);
}

/** By a fetch of the caller's own, which does what fetches do. */
export async function byOwn(gate: NativeGate, asked: Asked, wrapped: boolean, own: Fetch): Promise<Response> {
  const { url, method, headers, payload, signal } = asked;
  const host = new Host(own, asked);
  const head = await exchange(gate, {
    method,
    url: hrefOf(url),
    headers: lines(headers),
    body: typeof payload === "string" || payload instanceof Uint8Array ? payload : undefined,
    upload: undefined,
    signal,
    wrapped,
    host,
  });
  const ours = { ...parts(head, asked), redirected: false, crossed: false };
  const response = head.own;
  // Else it is the gate's own answer.
  if (response === undefined) return answer(ours);
  return answer({
    ...ours,
    headers: restored(head.headers, response),
    url: response.url === "" ? ours.url : response.url,
    redirected: response.redirected,
    crossed: response.type === "cors",
  });
}

/** A body that nobody will read. */
function close({ body }: Head): void {
  if (body instanceof Source) body.close();
}

/** A URL as it is sent. */
function hrefOf(url: URL): string {
  const { href } = url;
  const end = href.indexOf("#");
  return end < 0 ? href : href.slice(0, end);
}

function parts(head: Head, { url, method, signal }: Asked): Omit<Parts, "redirected" | "crossed"> {
  const { status, headers } = head;
  const href = hrefOf(url);
  if (method === "HEAD" || NULL_BODY.has(status)) {
    close(head);
    return { status, headers, body: null, url: href, signal };
  }
  // Every other response has a body, if an empty one.
  return { status, headers, body: decoded(head.body ?? "", headers), url: href, signal };
}

/** Of these, stock fetch says that they have no content, rather than say nothing. */
const WITH_CONTENT = new Set(["POST", "PUT", "PATCH"]);

/**
 * What `content-length` is to say, where the transport does not find out. As with stock fetch, no body is sent that is not as long as the
 * caller says: a server would wait for the rest, or take it for the next request.
 */
function lengthOf({ method, headers, payload }: Asked): string | undefined {
  const said = headers.get("content-length");
  if (payload instanceof ReadableStream) {
    if (said !== null && !/^\d+$/.test(said)) throw new TypeError("fetch failed: invalid content-length header");
    return said ?? undefined;
  }
  if (payload !== undefined && said !== null && Number(said) !== Buffer.byteLength(payload)) {
    throw new TypeError("fetch failed: the body is not as long as content-length says");
  }
  return WITH_CONTENT.has(method) && (payload === undefined || payload.length === 0) ? "0" : undefined;
}
