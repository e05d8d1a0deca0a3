/**
 * A `Response` that creates the platform's own objects only when they are needed.
 *
 * Most responses are small, arrive completely with their head, and are read once as JSON. The body
 * of such a response never becomes a stream.
 *
 * @module
 */
import { ReadableStream } from "node:stream/web";

import { parseHeaders, reasonPhrase } from "./header-lines.js";
import { type ChunkSource, toReadableStream } from "./response-body.js";

/** The parts from which a platform `Response` is created. */
export interface ResponseParts {
  /** HTTP status of the response. */
  status: number;
  /** The reason phrase and the headers as one string. See `header-lines.ts`. */
  headers: string;
  /** The whole body as text or bytes, a source of its chunks, or null if there is no body. */
  body: string | Uint8Array | ChunkSource | null;
  /** URL of the last request, without a fragment. */
  url: string;
  /** `true` if at least one redirect was followed. */
  redirected: boolean;
  /** The caller's signal; undefined if there is none. After its abort, reading the body rejects. */
  signal: AbortSignal | undefined;
  /** `true` if a redirect led to another origin. */
  crossOrigin: boolean;
}

type BodyGiven = ConstructorParameters<typeof Response>[0];

const OK = 200;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

// The typings have properties where the platform has accessors, and this class overrides accessors.
const Base = Response as unknown as new (body: null, init?: { status: number }) => object;

class GateResponse extends Base {
  readonly #parts: ResponseParts;
  #headers: Headers | undefined;
  #used = false;
  /**
   * The platform's own `Response` with the same parts. It is created when an operation, such as
   * `body` or `blob()`, needs more than the content of a body that has arrived completely.
   * Undefined until then.
   */
  #inner: Response | undefined;

  constructor(parts: ResponseParts, inner?: Response) {
    super(null, initOf(parts.status));
    this.#parts = parts;
    this.#inner = inner;
  }

  get headers(): Headers {
    this.#headers ??= parseHeaders(this.#parts.headers);
    return this.#headers;
  }

  get status(): number {
    return this.#parts.status;
  }

  get ok(): boolean {
    return this.status >= 200 && this.status <= 299;
  }

  get statusText(): string {
    return reasonPhrase(this.#parts.headers);
  }

  get url(): string {
    return this.#parts.url;
  }

  get redirected(): boolean {
    return this.#parts.redirected;
  }

  get type(): "basic" | "cors" {
    return this.#parts.crossOrigin ? "cors" : "basic";
  }

  get bodyUsed(): boolean {
    return this.#inner?.bodyUsed ?? this.#used;
  }

  get body(): ReadableStream<Uint8Array> | null {
    return this.#parts.body === null ? null : (this.#asPlatformResponse().body as ReadableStream<Uint8Array> | null);
  }

  async text(): Promise<string> {
    const whole = this.#takeWholeBody();
    if (whole === undefined) return this.#asPlatformResponse().text();
    return typeof whole === "string" ? withoutByteOrderMark(whole) : decoder.decode(whole);
  }

  async json(): Promise<unknown> {
    const whole = this.#takeWholeBody();
    if (whole === undefined) return this.#asPlatformResponse().json();
    return JSON.parse(typeof whole === "string" ? withoutByteOrderMark(whole) : decoder.decode(whole));
  }

  async arrayBuffer(): Promise<ArrayBuffer> {
    const whole = this.#takeWholeBody();
    if (whole === undefined) return this.#asPlatformResponse().arrayBuffer();
    const bytes = typeof whole === "string" ? encoder.encode(whole) : whole;
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
  }

  async blob(): Promise<Blob> {
    return this.#asPlatformResponse().blob();
  }

  async formData(): Promise<FormData> {
    return this.#asPlatformResponse().formData();
  }

  clone(): Response {
    if (this.bodyUsed || this.#inner?.body?.locked === true) {
      throw new TypeError("Response.clone: Body has already been consumed.");
    }
    const whole = this.#inner === undefined && !isChunks(this.#parts.body);
    const copy = new GateResponse(this.#parts, whole ? undefined : this.#asPlatformResponse().clone());
    copy.#headers = new Headers(this.headers);
    return copy as unknown as Response;
  }

  /**
   * Marks the body as used and returns it.
   *
   * Returns undefined if the body has not arrived completely, was read, or belongs to `#inner`.
   * Throws the reason of the signal if it is aborted.
   */
  #takeWholeBody(): string | Uint8Array | undefined {
    const { body, signal } = this.#parts;
    if (this.#inner !== undefined || this.#used || body === null || isChunks(body)) return undefined;
    this.#used = true;
    if (signal?.aborted === true) throw signal.reason;
    return body;
  }

  #asPlatformResponse(): Response {
    if (this.#inner === undefined) {
      const { status } = this.#parts;
      const content = this.#content();
      this.#inner = new Response(content as BodyGiven, { ...initOf(status), headers: this.headers });
      // The body was read through this class, so the platform's response is marked as read too.
      if (this.#used) void this.#inner.arrayBuffer();
    }
    return this.#inner;
  }

  /**
   * Returns the body for the constructor of the platform's `Response`: bytes, a stream, or null.
   *
   * If the signal is aborted and the body was not used, returns a stream that fails with the reason
   * of the signal.
   */
  #content(): Uint8Array | ReadableStream<Uint8Array> | null {
    const { body, signal } = this.#parts;
    if (body === null) return null;
    if (signal?.aborted === true && !this.#used) return failedStream(signal.reason);
    if (isChunks(body)) return toReadableStream(body);
    // Bytes, because the platform adds a content type for a string.
    return typeof body === "string" ? encoder.encode(body) : body;
  }
}

/**
 * Returns the options that set this status in the constructor of `Response`. Returns undefined for
 * 200, which is the default, and for statuses that the constructor rejects (below 200 or above
 * 599).
 */
function initOf(status: number): { status: number } | undefined {
  return status === OK || status < 200 || status > 599 ? undefined : { status };
}

// Loggers and libraries compare the name of the class.
Object.defineProperty(GateResponse, "name", { value: "Response" });

if ("bytes" in Response.prototype) {
  Object.defineProperty(GateResponse.prototype, "bytes", {
    async value(this: GateResponse): Promise<Uint8Array> {
      return new Uint8Array(await this.arrayBuffer());
    },
    configurable: true,
    writable: true,
  });
}

function isChunks(body: ResponseParts["body"]): body is ChunkSource {
  return body !== null && typeof body === "object" && !(body instanceof Uint8Array);
}

/** Returns a byte stream whose reads reject with `error`. */
function failedStream(error: unknown): ReadableStream<Uint8Array> {
  return new ReadableStream({ type: "bytes", start: (controller) => controller.error(error) });
}

function withoutByteOrderMark(text: string): string {
  return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
}

/** Returns a `Response` that creates the platform's objects only when they are needed. */
export function createResponse(parts: ResponseParts): Response {
  return new GateResponse(parts) as unknown as Response;
}
