/**
 * The response: a `Response` of the platform whose parts are made when they are asked for.
 *
 * Most answers are small, complete when their head is, and read once as JSON: those never become a stream.
 *
 * @module
 */
import type { ReadableStream } from "node:stream/web";

import { headersOf, reasonOf } from "./headers.js";
import { type Chunks, streamOf } from "./response-body.js";

/** What came back. */
export interface Parts {
  status: number;
  /** As they crossed. */
  headers: string;
  /** All of it, as text or bytes; or what brings it; or null. */
  body: string | Uint8Array | Chunks | null;
  url: string;
  redirected: boolean;
  /** The caller's: once it is aborted, nothing more is read. */
  signal: AbortSignal | undefined;
  /** Whether a redirect left the origin. */
  crossed: boolean;
}

type BodyGiven = ConstructorParameters<typeof Response>[0];

const OK = 200;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

// Its typings say properties where the platform has accessors, which is what we override.
const Base = Response as unknown as new (body: null, init?: { status: number }) => object;

class Answer extends Base {
  readonly #parts: Parts;
  #headers: Headers | undefined;
  #used = false;
  /** Has the body, once more than its content is asked for. */
  #inner: Response | undefined;

  constructor(parts: Parts, inner?: Response) {
    super(null, initOf(parts.status));
    this.#parts = parts;
    this.#inner = inner;
  }

  get headers(): Headers {
    this.#headers ??= headersOf(this.#parts.headers);
    return this.#headers;
  }

  get status(): number {
    return this.#parts.status;
  }

  get ok(): boolean {
    return this.status >= 200 && this.status <= 299;
  }

  get statusText(): string {
    return reasonOf(this.#parts.headers);
  }

  get url(): string {
    return this.#parts.url;
  }

  get redirected(): boolean {
    return this.#parts.redirected;
  }

  get type(): "basic" | "cors" {
    return this.#parts.crossed ? "cors" : "basic";
  }

  get bodyUsed(): boolean {
    return this.#inner?.bodyUsed ?? this.#used;
  }

  get body(): ReadableStream<Uint8Array> | null {
    return this.#parts.body === null ? null : (this.#real().body as ReadableStream<Uint8Array> | null);
  }

  async text(): Promise<string> {
    const whole = this.#take();
    if (whole === undefined) return this.#real().text();
    return typeof whole === "string" ? withoutMark(whole) : decoder.decode(whole);
  }

  async json(): Promise<unknown> {
    const whole = this.#take();
    if (whole === undefined) return this.#real().json();
    return JSON.parse(typeof whole === "string" ? withoutMark(whole) : decoder.decode(whole));
  }

  async arrayBuffer(): Promise<ArrayBuffer> {
    const whole = this.#take();
    if (whole === undefined) return this.#real().arrayBuffer();
    const bytes = typeof whole === "string" ? encoder.encode(whole) : whole;
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
  }

  async blob(): Promise<Blob> {
    return this.#real().blob();
  }

  async formData(): Promise<FormData> {
    return this.#real().formData();
  }

  clone(): Response {
    if (this.bodyUsed || this.#inner?.body?.locked === true) {
      throw new TypeError("Response.clone: Body has already been consumed.");
    }
    const whole = this.#inner === undefined && !isChunks(this.#parts.body);
    const copy = new Answer(this.#parts, whole ? undefined : this.#real().clone());
    copy.#headers = new Headers(this.headers);
    return copy as unknown as Response;
  }

  /** The whole body, if it is there, and nobody has had it; then it is used. */
  #take(): string | Uint8Array | undefined {
    const { body, signal } = this.#parts;
    if (this.#inner !== undefined || this.#used || body === null || isChunks(body)) return undefined;
    this.#used = true;
    if (signal?.aborted === true) throw signal.reason;
    return body;
  }

  #real(): Response {
    if (this.#inner === undefined) {
      const { body, status } = this.#parts;
      // As bytes: for a string, the platform would make up a content type.
      const content = isChunks(body) ? streamOf(body) : typeof body === "string" ? encoder.encode(body) : body;
      this.#inner = new Response(content as BodyGiven, { ...initOf(status), headers: this.headers });
      // Read before, through us: so it is, for whoever asks it.
      if (this.#used) void this.#inner.arrayBuffer();
    }
    return this.#inner;
  }
}

/** Servers send, and fetch hands on, statuses that a constructor refuses. */
function initOf(status: number): { status: number } | undefined {
  return status === OK || status < 200 || status > 599 ? undefined : { status };
}

// For whoever prints or compares it by name.
Object.defineProperty(Answer, "name", { value: "Response" });

if ("bytes" in Response.prototype) {
  Object.defineProperty(Answer.prototype, "bytes", {
    async value(this: Answer): Promise<Uint8Array> {
      return new Uint8Array(await this.arrayBuffer());
    },
    configurable: true,
    writable: true,
  });
}

function isChunks(body: Parts["body"]): body is Chunks {
  return body !== null && typeof body === "object" && !(body instanceof Uint8Array);
}

function withoutMark(text: string): string {
  return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
}

/** The response of these parts. */
export function answer(parts: Parts): Response {
  return new Answer(parts) as unknown as Response;
}
