/**
 * Reads the body of a request: into memory, so that the gate can read the model and retry the call,
 * or as a stream.
 *
 * @module
 */
import { ReadableStream } from "node:stream/web";

/**
 * A request body: a text or bytes in memory, a stream that can be sent only once, or undefined if
 * there is no body.
 */
export type Payload = string | Uint8Array | ReadableStream<Uint8Array> | undefined;

/** The `body` option as the caller passed it to `fetch`. */
export type GivenBody = unknown;

/**
 * Maximum size in bytes of a body that is read into memory. Larger bodies are streamed, and cannot
 * be sent again.
 */
const MAX_BUFFERED_BODY = 32 * 1024 * 1024;

/**
 * Returns the body of a request. The body is read into memory if it is at most 32 MiB long, or if
 * it is the JSON body of a `Request`. Otherwise the result is a stream. Undefined if there is no
 * body.
 *
 * @param request - The request.
 * @param given - The `body` of the caller's options; undefined if there are no such options, or if
 * the body is that of a `Request`.
 */
export async function readBody(request: Request, given: GivenBody): Promise<Payload> {
  const stream = request.body as ReadableStream<Uint8Array> | null;
  if (stream === null) return undefined;
  const size = sizeOf(given);
  const small = size === undefined ? given === undefined && isJson(request.headers) : size <= MAX_BUFFERED_BODY;
  if (!small) return stream;
  return typeof given === "string" ? given : new Uint8Array(await request.arrayBuffer());
}

/** Returns a copy of a form or of search parameters, and any other body itself. */
export function copyForm(given: GivenBody): GivenBody {
  if (given instanceof URLSearchParams) return new URLSearchParams(given);
  if (!(given instanceof FormData)) return given;
  const form = new FormData();
  for (const [name, value] of given) {
    if (typeof value === "string") form.append(name, value);
    else form.append(name, value, value.name);
  }
  return form;
}

/** Cancels a streamed body that nobody has begun to read. */
export function cancelUnread(payload: Payload, reason?: unknown): void {
  if (payload instanceof ReadableStream && !payload.locked) payload.cancel(reason).catch(() => {});
}

/**
 * Returns the approximate size of a body in bytes, or undefined if the size is known only after
 * reading.
 */
function sizeOf(given: GivenBody): number | undefined {
  if (typeof given === "string") return given.length;
  if (given instanceof ArrayBuffer || ArrayBuffer.isView(given)) return given.byteLength;
  if (given instanceof Blob) return given.size;
  if (given instanceof FormData || given instanceof URLSearchParams) {
    let size = 0;
    for (const [name, value] of given) {
      size += name.length + (typeof value === "string" ? value.length : value.size);
    }
    return size;
  }
  // Any other value that is not a stream is sent as text.
  const streams = given === undefined || given instanceof ReadableStream || Symbol.asyncIterator in Object(given);
  return streams ? undefined : 0;
}

/**
 * Returns the exact length in bytes of a body that is streamed because of its size, or undefined if
 * it is known only after reading.
 *
 * The length is sent as `content-length`, because servers need not accept a chunked body.
 */
export async function bodyLength(given: GivenBody): Promise<number | undefined> {
  if (typeof given === "string") return Buffer.byteLength(given);
  if (!(given instanceof FormData)) return given instanceof URLSearchParams ? undefined : sizeOf(given);
  // A form with empty files has the length of everything except the files.
  const around = new FormData();
  let files = 0;
  for (const [name, value] of given) {
    if (typeof value === "string") {
      around.append(name, value);
    } else {
      around.append(name, new Blob([], { type: value.type }), value.name);
      files += value.size;
    }
  }
  return files + (await new Response(around).arrayBuffer()).byteLength;
}

/**
 * Returns `true` if the headers of a `Request` declare a JSON body. Such a body is read into
 * memory, because it names the model.
 */
function isJson(headers: Headers): boolean {
  return headers.get("content-type")?.includes("json") === true;
}
