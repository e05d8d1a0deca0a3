/**
 * A request's body: in memory, where the gate can read its model and send it again, or streamed.
 *
 * @module
 */
import { ReadableStream } from "node:stream/web";

/** In memory; or streamed up as it is produced, once. */
export type Payload = string | Uint8Array | ReadableStream<Uint8Array> | undefined;

/** What the caller gave as a body. */
export type GivenBody = unknown;

/** Bytes. A body in memory can be sent again; a larger one is not worth the memory. */
const MAX_BUFFERED_BODY = 32 * 1024 * 1024;

/** The body of a request whose `init.body` was `given` (undefined: none was, and the request may have one of its own). */
export async function readBody(request: Request, given: GivenBody): Promise<Payload> {
  const stream = request.body as ReadableStream<Uint8Array> | null;
  if (stream === null) return undefined;
  const size = sizeOf(given);
  const small = size === undefined ? given === undefined && isJson(request.headers) : size <= MAX_BUFFERED_BODY;
  return small ? new Uint8Array(await request.arrayBuffer()) : stream;
}

/** The bytes it will be, about; undefined where only reading tells. */
function sizeOf(given: GivenBody): number | undefined {
  if (typeof given === "string") return given.length;
  if (given instanceof ArrayBuffer || ArrayBuffer.isView(given)) return given.byteLength;
  if (given instanceof Blob) return given.size;
  if (given instanceof URLSearchParams) return given.size;
  if (given instanceof FormData) {
    let size = 0;
    for (const [name, value] of given) {
      size += name.length + (typeof value === "string" ? value.length : value.size);
    }
    return size;
  }
  // What is no stream is text.
  const streams = given === undefined || given instanceof ReadableStream || Symbol.asyncIterator in Object(given);
  return streams ? undefined : 0;
}

/** Exactly the bytes of a body that is streamed for its size alone: a server need not take chunks. Undefined where only reading tells. */
export async function bodyLength(given: GivenBody): Promise<number | undefined> {
  if (typeof given === "string") return Buffer.byteLength(given);
  if (!(given instanceof FormData)) return given instanceof URLSearchParams ? undefined : sizeOf(given);
  // Everything but the files is as long around empty ones, and so is the boundary.
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

/** A `Request` does not say whether its body is in memory; what is JSON has been, and holds the model. */
function isJson(headers: Headers): boolean {
  return headers.get("content-type")?.includes("json") === true;
}
