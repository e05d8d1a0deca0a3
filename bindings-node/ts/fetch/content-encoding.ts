/**
 * Decodes content encodings with `node:zlib`, one chunk at a time.
 *
 * @module
 */

import type { Transform } from "node:stream";
import * as zlib from "node:zlib";
import { invalidRequest } from "../errors.js";

import { findHeader } from "./header-lines.js";
import type { ChunkSource } from "./response-body.js";

/**
 * Maximum number of content encodings of one response, as in the platform's fetch. It protects
 * against decompression attacks.
 */
const MAX_ENCODINGS = 5;

/**
 * Returns the body, decoded as its `content-encoding` header says. Returns `body` itself if it is
 * empty, or if the header is missing or contains an unknown encoding.
 *
 * @param body - The body as it was received.
 * @param headers - The response headers as one string. See `header-lines.ts`.
 * @throws `TypeError` if there are more than five encodings.
 */
export function decodeBody(
  body: string | Uint8Array | ChunkSource,
  headers: string,
): string | Uint8Array | ChunkSource {
  const encoding = findHeader(headers, "content-encoding");
  if (encoding === undefined || body === "") return body;
  const codings = encoding
    .toLowerCase()
    .split(",")
    .map((coding) => coding.trim());
  if (codings.length > MAX_ENCODINGS)
    throw invalidRequest(`the response has more than ${MAX_ENCODINGS} content-encodings`);
  const decoders: (() => Transform)[] = [];
  for (const coding of codings.reverse()) {
    const decoder = DECODERS[coding];
    if (decoder === undefined) return body;
    decoders.push(decoder);
  }
  let chunks: ChunkSource = typeof body === "string" || body instanceof Uint8Array ? new SingleChunk(body) : body;
  for (const decoder of decoders) chunks = new DecodedChunks(chunks, decoder);
  return chunks;
}

const GZIP = { flush: zlib.constants.Z_SYNC_FLUSH, finishFlush: zlib.constants.Z_SYNC_FLUSH };
const BROTLI = { flush: zlib.constants.BROTLI_OPERATION_FLUSH, finishFlush: zlib.constants.BROTLI_OPERATION_FLUSH };

type Zstd = { createZstdDecompress?: () => Transform };

const DECODERS: Record<string, (() => Transform) | undefined> = {
  // The key comes from the server, so the object has no prototype.
  __proto__: null as never,
  gzip: () => zlib.createGunzip(GZIP),
  "x-gzip": () => zlib.createGunzip(GZIP),
  deflate: () => zlib.createInflate(GZIP),
  br: () => zlib.createBrotliDecompress(BROTLI),
  // Node before 22.15 does not have zstd.
  zstd: (zlib as Zstd).createZstdDecompress,
};

/** A source with one chunk: a body that has arrived completely. */
class SingleChunk implements ChunkSource {
  #body: Uint8Array | null;
  onAbort: ((reason: unknown) => void) | undefined;

  constructor(body: string | Uint8Array) {
    this.#body = typeof body === "string" ? Buffer.from(body) : body;
  }

  next(): Uint8Array | null {
    const body = this.#body;
    this.#body = null;
    return body;
  }

  close(): void {
    this.#body = null;
  }
}

/**
 * A source of the decoded chunks of a body. Encoded chunks are read only when a decoded chunk is
 * requested.
 */
class DecodedChunks implements ChunkSource {
  readonly #from: ChunkSource;
  readonly #make: () => Transform;
  #decoder: Transform | undefined;
  #failed: { error: unknown } | undefined;
  #inputTaken = true;
  #ended = false;
  #wake: (() => void) | undefined;

  constructor(from: ChunkSource, make: () => Transform) {
    this.#from = from;
    this.#make = make;
  }

  get onAbort(): ((reason: unknown) => void) | undefined {
    return this.#from.onAbort;
  }

  set onAbort(callback: ((reason: unknown) => void) | undefined) {
    this.#from.onAbort = callback;
  }

  async next(): Promise<Uint8Array | null> {
    for (;;) {
      if (this.#failed !== undefined) throw this.#failed.error;
      const out: Buffer | null = this.#decoder?.read() ?? null;
      // A copy, because zlib returns parts of one buffer and a byte stream detaches its chunks.
      if (out !== null && out.length > 0) return new Uint8Array(out);
      if (this.#ended) return null;
      if (this.#inputTaken) await this.#feed();
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }

  close(): void {
    this.#decoder?.destroy();
    this.#from.close();
  }

  async #feed(): Promise<void> {
    const chunk = await this.#read();
    this.#decoder ??= this.#start(chunk);
    const decoder = this.#decoder;
    if (chunk === null) {
      this.#inputTaken = false;
      decoder.end();
      return;
    }
    this.#inputTaken = false;
    decoder.write(chunk, () => {
      this.#inputTaken = true;
      this.#notify();
    });
  }

  /**
   * Returns the next encoded chunk. Returns null if there is none left, or if the decoder has
   * already found the end of the encoded data.
   */
  async #read(): Promise<Uint8Array | null> {
    try {
      return await this.#from.next();
    } catch (error) {
      if (this.#ended) return null;
      throw error;
    }
  }

  #start(first: Uint8Array | null): Transform {
    // Some servers send deflate without zlib's wrapper.
    const raw = this.#make === DECODERS.deflate && first !== null && ((first[0] ?? 0) & 0x0f) !== 0x08;
    const decoder = raw ? zlib.createInflateRaw(GZIP) : this.#make();
    decoder.on("readable", () => this.#notify());
    decoder.on("end", () => {
      this.#ended = true;
      // Data after the end of the encoding is ignored.
      this.#from.close();
      this.#notify();
    });
    decoder.on("error", (cause: Error) => {
      this.#failed = { error: new TypeError("terminated", { cause }) };
      this.#from.close();
      this.#notify();
    });
    return decoder;
  }

  #notify(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}
