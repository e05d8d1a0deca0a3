/**
 * Streams a request body: the next chunk is read when the native module has taken the previous one.
 *
 * @module
 */

import type { ReadableStream, ReadableStreamDefaultReader } from "node:stream/web";
import { port } from "../completions.js";
import { invalidRequest } from "../errors.js";
import { type NativeUpload, native } from "../native.js";
import type { ResponseHead, SentExchange } from "./exchange.js";

/**
 * Sends a request with a streamed body, and returns the response head.
 *
 * The server may answer before it has read the whole body.
 *
 * @param body - The body, which is cancelled if the call fails.
 * @param send - Sends a request with the given upload as its body. The request is cancelled if the
 * body fails before the response head has arrived.
 * @param signal - The caller's signal, or undefined if there is none. If it is aborted, the body is
 * cancelled with its reason.
 * @throws The error of the body or of the request, as a rejection.
 */
export async function sendWithUpload(
  body: ReadableStream<Uint8Array>,
  send: (upload: NativeUpload) => SentExchange,
  signal: AbortSignal | undefined,
): Promise<ResponseHead> {
  const upload = new native.Upload();
  const reader = body.getReader();
  const { head, cancel } = send(upload);
  const fed = feed(upload, reader);
  try {
    // A failure of the body rejects the call, or fails the response if that has begun.
    fed.catch(() => upload.abandon());
    return await Promise.race([head, fed.then(() => head)]);
  } catch (error) {
    upload.abandon();
    head.catch(() => {});
    // A queued call would otherwise be sent later, with a body that fails.
    cancel(error);
    // Not awaited, because the caller's stream may take long to cancel.
    reader.cancel(signal?.aborted === true ? signal.reason : error).catch(() => {});
    throw error;
  }
}

async function feed(upload: NativeUpload, reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  while (true) {
    const { done, value } = await reader.read();
    if (done) {
      upload.finish();
      return;
    }
    if (!(value instanceof Uint8Array)) throw invalidRequest("a body stream must yield Uint8Array chunks");
    let taken = upload.offer(value);
    while (taken === false) {
      await waitUntilReady(upload);
      taken = upload.offer(value);
    }
    if (taken === null) {
      await reader.cancel();
      return;
    }
  }
}

function waitUntilReady(upload: NativeUpload): Promise<void> {
  return new Promise((resolve) => {
    const number = port.allocateNumber();
    port.wait(number, { settle: () => resolve() });
    upload.ready(port.native, number);
    port.native.flush();
  });
}
