/**
 * One call, sent: by the native transport or by the caller's own fetch, and made a response.
 *
 * @module
 */
import type { NativeGate } from "../native.js";
import { decodeBody } from "./content-encoding.js";
import { CustomFetchCall, originalHeaders } from "./custom-fetch.js";
import { type ResponseHead, sendExchange } from "./exchange.js";
import { checkNoConnectionHeaders, requestLines, toLines } from "./headers.js";
import { followRedirect, isRedirect } from "./redirect.js";
import type { FetchRequest } from "./request.js";
import { createResponse, type ResponseParts } from "./response.js";
import { ReplyBody } from "./response-body.js";
import type { Fetch } from "./types.js";
import { sendWithUpload } from "./upload.js";

/** Statuses without a body. */
const NULL_BODY = new Set([101, 103, 204, 205, 304]);
/** The limit of the fetch standard. */
const MAX_REDIRECTS = 20;

/** By the native transport. It follows no redirects, and decodes no bodies. */
export async function sendNatively(gate: NativeGate, request: FetchRequest, wrapped: boolean): Promise<Response> {
  let current = request;
  let crossOrigin = false;
  for (let hops = 0; ; hops++) {
    const head = await sendOnce(gate, current, wrapped);
    try {
      const next = isRedirect(head.status) ? followRedirect(current, head) : undefined;
      if (next === undefined)
        return createResponse({ ...responseParts(head, current), redirected: hops > 0, crossOrigin });
      if (hops === MAX_REDIRECTS) throw new TypeError("fetch failed: redirected too often");
      crossOrigin ||= next.url.origin !== current.url.origin;
      current = next;
    } catch (error) {
      closeBody(head);
      throw error;
    }
    closeBody(head);
  }
}

function sendOnce(gate: NativeGate, request: FetchRequest, wrapped: boolean): Promise<ResponseHead> {
  const { url, method, headers, payload, signal } = request;
  checkNoConnectionHeaders(headers);
  const sent = {
    method,
    url: hrefOf(url),
    headers: requestLines(headers, url.protocol === "https:", contentLength(request)),
    signal,
    wrapped,
    customFetch: undefined,
  };
  if (payload === undefined || typeof payload === "string" || payload instanceof Uint8Array) {
    return sendExchange(gate, { ...sent, body: payload, upload: undefined });
  }
  return sendWithUpload(payload, (upload) => sendExchange(gate, { ...sent, body: undefined, upload }), signal);
}

/** By a fetch of the caller's own, which does what fetches do. */
export async function sendByCustomFetch(
  gate: NativeGate,
  request: FetchRequest,
  wrapped: boolean,
  own: Fetch,
): Promise<Response> {
  const { url, method, headers, payload, signal } = request;
  const customFetch = new CustomFetchCall(own, request);
  const head = await sendExchange(gate, {
    method,
    url: hrefOf(url),
    headers: toLines(headers),
    body: typeof payload === "string" || payload instanceof Uint8Array ? payload : undefined,
    upload: undefined,
    signal,
    wrapped,
    customFetch,
  });
  const ours = { ...responseParts(head, request), redirected: false, crossOrigin: false };
  const response = head.customResponse;
  // Else it is the gate's own answer.
  if (response === undefined) return createResponse(ours);
  return createResponse({
    ...ours,
    headers: originalHeaders(head.headers, response),
    url: response.url === "" ? ours.url : response.url,
    redirected: response.redirected,
    crossOrigin: response.type === "cors",
  });
}

/** A body that nobody will read. */
function closeBody({ body }: ResponseHead): void {
  if (body instanceof ReplyBody) body.close();
}

/** A URL as it is sent. */
function hrefOf(url: URL): string {
  const { href } = url;
  const end = href.indexOf("#");
  return end < 0 ? href : href.slice(0, end);
}

function responseParts(
  head: ResponseHead,
  { url, method, signal }: FetchRequest,
): Omit<ResponseParts, "redirected" | "crossOrigin"> {
  const { status, headers } = head;
  const href = hrefOf(url);
  if (method === "HEAD" || NULL_BODY.has(status)) {
    closeBody(head);
    return { status, headers, body: null, url: href, signal };
  }
  // Every other response has a body, if an empty one.
  return { status, headers, body: decodeBody(head.body ?? "", headers), url: href, signal };
}

/** Of these, stock fetch says that they have no content, rather than say nothing. */
const WITH_CONTENT = new Set(["POST", "PUT", "PATCH"]);

/**
 * What `content-length` is to say, where the transport does not find out. As with stock fetch, no body is sent that is not as long as the
 * caller says: a server would wait for the rest, or take it for the next request.
 */
function contentLength({ method, headers, payload }: FetchRequest): string | undefined {
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
