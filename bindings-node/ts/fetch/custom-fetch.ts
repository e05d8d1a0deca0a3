/**
 * Lets the caller's own fetch make the exchanges of calls through the gate, so that undici
 * dispatchers, mocks and proxies keep working.
 *
 * @module
 */
import { AsyncResource } from "node:async_hooks";
import { ReadableStream, TransformStream } from "node:stream/web";
import { port } from "../completions.js";
import type { NativeExchange, NativeGate } from "../native.js";
import { CustomExchange } from "./exchange-context.js";
import { toLines } from "./header-lines.js";
import type { Fetch, FetchInit } from "./platform-types.js";
import type { FetchRequest } from "./request.js";
import type { Payload } from "./request-body.js";

type BodyGiven = Payload | FetchInit["body"];

/** One call whose attempts the caller's own fetch makes. */
export class CustomFetchCall {
  /**
   * The values that the fetch threw, one for each failed attempt. If the call fails because of such
   * an attempt, the caller gets the same value.
   */
  readonly thrown: unknown[] = [];
  /**
   * The responses that the fetch returned, one for each answered attempt. The native module refers
   * to a response by its index.
   */
  readonly responses: Response[] = [];
  readonly #gate: NativeGate;
  readonly #fetch: Fetch;
  readonly #request: FetchRequest;
  /**
   * The asynchronous context of the caller, in which the fetch runs. Libraries for tracing and
   * signing need this context.
   */
  readonly #context = new AsyncResource("tidegate.fetch");

  constructor(gate: NativeGate, fetch: Fetch, request: FetchRequest) {
    this.#gate = gate;
    this.#fetch = fetch;
    this.#request = request;
  }

  /** `true` if the request body is a stream, which can be sent only once. */
  get hasStreamedBody(): boolean {
    return this.#request.payload instanceof ReadableStream;
  }

  /**
   * Starts one attempt. Its result is reported to `exchange`.
   *
   * @param exchange - The native object of the attempt.
   * @param changes - The headers that the gate changed, as lines `name\nvalue\n`.
   * @param url - URL at a replica of the pool, or null to use the caller's URL.
   */
  begin(exchange: NativeExchange, changes: string, url: string | null): void {
    this.#context.runInAsyncScope(() => void this.#serve(exchange, changes, url));
  }

  async #serve(exchange: NativeExchange, changes: string, url: string | null): Promise<void> {
    const control = new AbortController();
    const custom = new CustomExchange(this.#gate, this.#fetch);
    let body: BodyReader | undefined;
    port.registerExchange(exchange.id, () => {
      control.abort(this.#request.signal?.reason);
      // The fetch may ignore its signal.
      body?.cancel().catch(() => {});
    });
    try {
      // Not in the context of the exchange, because the caller's code produces a streamed body.
      const init = this.#init(exchange, changes, url !== null, control.signal);
      const response = await custom.run(() => this.#fetch(url ?? this.#request.url.href, init));
      body = bodyReader(response.body);
      const attempt = this.responses.push(response) - 1;
      if (exchange.answer(attempt, response.status, decodedHeaders(response))) {
        await custom.run(() => forwardBody(exchange, body));
      } else {
        await body?.cancel();
      }
    } catch (error) {
      exchange.fail(errorKind(error), `the caller's own fetch failed: ${nameOf(error)}`, this.thrown.push(error) - 1);
      // Has no effect if the body itself has failed.
      body?.cancel().catch(() => {});
    } finally {
      custom.hasEnded = true;
      port.unregisterExchange(exchange.id);
      // Idempotent. A cancelled exchange occupies its slot until this call.
      exchange.close();
    }
  }

  #init(exchange: NativeExchange, changes: string, toReplica: boolean, signal: AbortSignal): FetchInit {
    const { init, method, payload, redirect, cache, mode } = this.#request;
    const headers = new Headers(this.#request.headers);
    if (toReplica) headers.delete("host");
    const lines = changes.split("\n");
    for (let at = 0; at + 1 < lines.length; at += 2) headers.set(lines[at] as string, lines[at + 1] as string);
    const body = bodyFor(payload, init?.body);
    // The fetch encodes the form again, with another boundary.
    if (body instanceof FormData) headers.delete("content-type");
    return {
      ...init,
      method,
      headers: inGivenForm(init?.headers, headers),
      ...(redirect !== "follow" && { redirect }),
      ...(cache !== "default" && { cache }),
      ...(mode !== "cors" && { mode }),
      signal,
      ...(this.hasStreamedBody && { duplex: "half" as const }),
      ...(payload !== undefined && { body: reportWhenSent(body, exchange) as NonNullable<FetchInit["body"]> }),
    };
  }
}

/**
 * Returns the headers in the form in which the caller gave them: `Headers`, or pairs or an object
 * with the caller's spelling of the names. Custom fetches copy and replace headers in that form.
 *
 * @param given - The `headers` of the caller's options.
 * @param headers - The headers to send.
 */
function inGivenForm(given: FetchInit["headers"], headers: Headers): NonNullable<FetchInit["headers"]> {
  if (given == null || (Symbol.iterator in given && !Array.isArray(given))) return headers;
  const names = Array.isArray(given) ? given.map(([name]) => String(name)) : Object.keys(given);
  const spelling = new Map(names.map((name): [string, string] => [name.toLowerCase(), name]));
  const pairs = Array.from(headers, ([name, value]): [string, string] => [spelling.get(name) ?? name, value]);
  return Array.isArray(given) ? pairs : Object.fromEntries(pairs);
}

/**
 * Returns the request body that a custom fetch gets: a stream, or an object of the kind that the
 * caller gave.
 *
 * The body of a `Request` becomes a `Blob`, because undici 6 (Node 20 and 22) cannot send bytes
 * again after a redirect. The caller's own bytes remain bytes, because some fetches, such as that
 * of node-fetch 2, cannot send a `Blob`.
 *
 * @param payload - The body as the gate reads it. Bytes are those at the time of the call.
 * @param given - The `body` of the copied options.
 */
function bodyFor(payload: Payload, given: unknown): BodyGiven {
  if (!(payload instanceof Uint8Array)) return payload;
  if (given instanceof ArrayBuffer || ArrayBuffer.isView(given)) return payload;
  const isSendable = given instanceof Blob || given instanceof FormData || given instanceof URLSearchParams;
  return isSendable ? given : new Blob([payload]);
}

/**
 * Returns the request body. If the body is a stream, returns another stream with the same chunks,
 * which calls `exchange.bodySent` when it has been read to its end.
 */
function reportWhenSent(payload: BodyGiven, exchange: NativeExchange): BodyGiven {
  if (!(payload instanceof ReadableStream)) return payload;
  return payload.pipeThrough(new TransformStream<Uint8Array, Uint8Array>({ flush: () => exchange.bodySent() }));
}

/** Reads the chunks of the response body of a custom fetch. */
interface BodyReader {
  next(): Promise<{ done?: boolean | undefined; value?: Uint8Array | undefined }>;
  /** Ends the body early. */
  cancel(): Promise<unknown>;
}

/** A response body of node-fetch and cross-fetch. */
interface NodeStream extends AsyncIterable<Uint8Array> {
  destroy?(): unknown;
}

/**
 * Returns the reader of a response body, which is a stream of the platform or of Node. Undefined if
 * there is no body.
 */
function bodyReader(body: unknown): BodyReader | undefined {
  if (body == null) return undefined;
  if (typeof (body as ReadableStream).getReader === "function") {
    const reader = (body as ReadableStream<Uint8Array>).getReader();
    return { next: () => reader.read(), cancel: () => reader.cancel() };
  }
  const stream = body as NodeStream;
  const chunks = stream[Symbol.asyncIterator]();
  return {
    next: () => chunks.next(),
    cancel: async () => {
      // An iterator that was not used yet does not destroy its stream.
      stream.destroy?.();
      await chunks.return?.();
    },
  };
}

/** Passes the response body to the gate, at most one chunk ahead of its reader. */
async function forwardBody(exchange: NativeExchange, body: BodyReader | undefined): Promise<void> {
  while (body !== undefined) {
    const { done, value } = await body.next();
    if (done === true) break;
    const room = exchange.chunk(value as Uint8Array);
    if (room === null) {
      await body.cancel();
      return;
    }
    if (room === false) await waitUntilReady(exchange);
  }
  exchange.end();
}

/**
 * Resolves when the gate can take another chunk, when the caller no longer reads the response, or
 * when the exchange has ended.
 */
function waitUntilReady(exchange: NativeExchange): Promise<void> {
  return new Promise((resolve) => {
    const number = port.allocateNumber();
    port.wait(number, { settle: () => resolve() });
    exchange.ready(port.native, number);
    port.native.flush();
  });
}

/**
 * Headers about the bytes that the upstream sent. They need not apply to the body of a custom
 * fetch, which may have decoded or rewritten it.
 */
const ENCODING_HEADERS = ["content-encoding", "content-length"];

/**
 * Returns the response headers as lines `name\nvalue\n`, without `content-encoding` and
 * `content-length`.
 */
function decodedHeaders(response: Response): string {
  const headers = new Headers(response.headers);
  for (const name of ENCODING_HEADERS) headers.delete(name);
  return toLines(headers);
}

/**
 * Returns the headers of the caller's response: those that the gate returned, plus
 * `content-encoding` and `content-length` from the response of the custom fetch, because
 * `decodedHeaders` removed them before the gate got the headers.
 *
 * @param headers - The headers that the gate returned, after a reason phrase.
 * @param response - The response of the custom fetch, which also has the reason phrase.
 */
export function originalHeaders(headers: string, response: Response): string {
  let flat = response.statusText + headers.slice(headers.indexOf("\n"));
  for (const name of ENCODING_HEADERS) {
    const value = response.headers.get(name);
    if (value !== null) flat += `${name}\n${value}\n`;
  }
  return flat;
}

/**
 * The kind of a failure, by the error code of Node or undici. If the kind is `refused`, `connect`
 * or `connect_timeout`, nothing was sent.
 */
const KINDS: Record<string, string> = {
  ECONNREFUSED: "refused",
  ENOTFOUND: "connect",
  EAI_AGAIN: "connect",
  EHOSTUNREACH: "connect",
  ENETUNREACH: "connect",
  UND_ERR_CONNECT_TIMEOUT: "connect_timeout",
  UND_ERR_HEADERS_TIMEOUT: "first_token_timeout",
  UND_ERR_BODY_TIMEOUT: "idle_timeout",
  UND_ERR_SOCKET: "transport",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "truncated",
  ECONNRESET: "transport",
  EPIPE: "transport",
  ETIMEDOUT: "transport",
};

/** Codes of Node for failed TLS handshakes and rejected certificates. Nothing was sent. */
const TLS_FAILURE = /^(CERT_|ERR_TLS_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_)/;

/** The properties of an error. It may be from another realm, such as a test environment. */
interface ErrorLike {
  name?: unknown;
  code?: unknown;
  cause?: ErrorLike | null;
}

function errorKind(error: unknown): string {
  for (const code of codesOf(error)) {
    const kind = TLS_FAILURE.test(code) ? "connect" : KINDS[code];
    if (kind !== undefined) return kind;
  }
  // Unknown failures are not retried.
  return "request";
}

/**
 * Returns the name of an error and the first code in its chain of causes. The messages are left
 * out, because they may contain a URL with a key.
 */
function nameOf(error: unknown): string {
  const name = (error as ErrorLike | null | undefined)?.name;
  const [code] = codesOf(error);
  return `${typeof name === "string" ? name : typeof error}${code === undefined ? "" : ` ${code}`}`;
}

/** Returns the codes of an error and its causes, outermost first, at most four errors deep. */
function codesOf(error: unknown): string[] {
  const codes: string[] = [];
  let at = error as ErrorLike | null | undefined;
  for (let depth = 0; at != null && depth < 4; at = at.cause, depth++) {
    if (typeof at.code === "string") codes.push(at.code);
  }
  return codes;
}
