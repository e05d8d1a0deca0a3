/**
 * Sends one call, through the native transport or a custom fetch, and returns its response.
 *
 * @module
 */
import { invalidRequest } from "../errors.js";
import type { NativeGate } from "../native.js";
import { decodeBody } from "./content-encoding.js";
import { CustomFetchCall, originalHeaders } from "./custom-fetch.js";
import { type ResponseHead, type SdkRetries, sendExchange } from "./exchange.js";
import { checkNoConnectionHeaders, requestLines, toLines } from "./header-lines.js";
import type { Fetch } from "./platform-types.js";
import { followRedirect, isRedirect } from "./redirect.js";
import type { FetchRequest } from "./request.js";
import { cancelUnread } from "./request-body.js";
import { createResponse, type ResponseParts } from "./response.js";
import { ReplyBody } from "./response-body.js";
import { sendWithUpload } from "./stream-upload.js";

/** Statuses of responses that have no body. */
const NULL_BODY = new Set([101, 103, 204, 205, 304]);
/** Maximum number of redirects that one call follows, as in the fetch standard. */
const MAX_REDIRECTS = 20;

/**
 * Sends a call through the native transport. Follows redirects and decodes the response body.
 *
 * @param sdk - The retries of the wrapped SDK that makes the call; undefined for other callers.
 */
export async function sendNatively(
  gate: NativeGate,
  request: FetchRequest,
  sdk: SdkRetries | undefined,
): Promise<Response> {
  let current = request;
  let crossOrigin = false;
  for (let hops = 0; ; hops++) {
    const head = await sendOnce(gate, current, sdk);
    try {
      const next = isRedirect(head.status) ? followRedirect(current, head) : undefined;
      if (next === undefined)
        return createResponse({ ...responseParts(head, current), redirected: hops > 0, crossOrigin });
      if (hops === MAX_REDIRECTS) throw invalidRequest(`more than ${MAX_REDIRECTS} redirects`);
      crossOrigin ||= next.url.origin !== current.url.origin;
      current = next;
    } catch (error) {
      closeBody(head);
      throw error;
    }
    closeBody(head);
  }
}

function sendOnce(gate: NativeGate, request: FetchRequest, sdk: SdkRetries | undefined): Promise<ResponseHead> {
  const { url, method, headers, payload, signal } = request;
  checkNoConnectionHeaders(headers);
  const sent = {
    method,
    url: hrefOf(url),
    headers: requestLines(request, contentLength(request)),
    signal,
    sdk,
    customFetch: undefined,
  };
  if (payload === undefined || typeof payload === "string" || payload instanceof Uint8Array) {
    return sendExchange(gate, { ...sent, body: payload, upload: undefined }).head;
  }
  return sendWithUpload(payload, (upload) => sendExchange(gate, { ...sent, body: undefined, upload }), signal);
}

/**
 * Sends a call through a custom fetch, which itself follows redirects and decodes bodies.
 *
 * @param sdk - The retries of the wrapped SDK that makes the call; undefined for other callers.
 * @param own - The custom fetch.
 */
export async function sendByCustomFetch(
  gate: NativeGate,
  request: FetchRequest,
  sdk: SdkRetries | undefined,
  own: Fetch,
): Promise<Response> {
  const { url, method, headers, payload, signal } = request;
  const customFetch = new CustomFetchCall(gate, own, request);
  const head = await sendExchange(gate, {
    method,
    url: hrefOf(url),
    headers: toLines(headers),
    body: typeof payload === "string" || payload instanceof Uint8Array ? payload : undefined,
    upload: undefined,
    signal,
    sdk,
    customFetch,
  }).head;
  const parts = { ...responseParts(head, request), redirected: false, crossOrigin: false };
  const response = head.customResponse;
  if (response === undefined) {
    // The gate itself answered, for example with a rejection.
    cancelUnread(payload);
    return createResponse(parts);
  }
  return createResponse({
    ...parts,
    headers: originalHeaders(head.headers, response),
    url: response.url === "" ? parts.url : response.url,
    redirected: response.redirected,
    crossOrigin: response.type === "cors",
  });
}

/** Ends the exchange of a response whose body nobody will read. */
function closeBody({ body }: ResponseHead): void {
  if (body instanceof ReplyBody) body.close();
}

/** Returns the text of a URL without its fragment. */
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
  // Every other response has a body, which may be empty.
  return { status, headers, body: decodeBody(head.body ?? "", headers), url: href, signal };
}

/** Methods for which the platform's fetch sends `content-length: 0` if there is no body. */
const WITH_CONTENT = new Set(["POST", "PUT", "PATCH"]);

/**
 * Returns the value of the `content-length` header to send, or undefined if the native transport
 * sets it.
 *
 * @throws `TypeError` if the caller's header is not the length of the body, as in the platform's
 * fetch. With a wrong length, the server would wait for the rest, or read the rest as the next
 * request. For a streamed body, only the format of the header is checked.
 */
function contentLength({ method, headers, payload }: FetchRequest): string | undefined {
  const declared = headers.get("content-length");
  if (payload instanceof ReadableStream) {
    if (declared !== null && !/^\d+$/.test(declared)) throw invalidRequest("invalid content-length header");
    return declared ?? undefined;
  }
  if (payload !== undefined && declared !== null && Number(declared) !== Buffer.byteLength(payload)) {
    throw invalidRequest("the length of the body differs from its content-length header");
  }
  return WITH_CONTENT.has(method) && (payload === undefined || payload.length === 0) ? "0" : undefined;
}
