/**
 * Sends one request through the gate and waits for the response head.
 *
 * @module
 */

import { type Abortable, unwatch, watch } from "../abort-signal.js";
import { CompletionKind, panicError, port, type Waiter } from "../completions.js";
import { currentContext } from "../context.js";
import { fetchError } from "../errors.js";
import type { Failure, NativeExchange, NativeGate, NativeReply, NativeUpload } from "../native.js";
import type { CustomFetchCall } from "./custom-fetch.js";
import { ReplyBody } from "./response-body.js";

/**
 * One response as the native module returns it. Redirects have not been followed yet, and the body
 * has not been decoded.
 */
export interface ResponseHead {
  /** HTTP status of the response. */
  status: number;
  /** The reason phrase, then the headers, as one string. See `header-lines.ts`. */
  headers: string;
  /**
   * The body as text or bytes if it has arrived completely, an object that reads its chunks if not,
   * or null if it is empty.
   */
  body: string | Uint8Array | ReplyBody | null;
  /**
   * The response of the caller's own fetch. Undefined if the native transport made the exchange, or
   * if the gate answered the call itself.
   */
  customResponse: Response | undefined;
}

/** One request in the form that the native module takes. */
export interface ExchangeRequest {
  /** HTTP method of the request. */
  method: string;
  /** URL of the request, without a fragment. */
  url: string;
  /** Request headers as one string of lines. See `header-lines.ts`. */
  headers: string;
  /** Request body in memory; undefined if there is no body, or if the body is streamed. */
  body: string | Uint8Array | undefined;
  /**
   * Streamed request body; undefined if the body is not streamed or the caller's own fetch sends
   * it.
   */
  upload: NativeUpload | undefined;
  /** The caller's signal, whose abort ends the call; undefined if there is none. */
  signal: AbortSignal | undefined;
  /** The retries of the wrapped SDK that makes the call; undefined for other callers. */
  sdk: SdkRetries | undefined;
  /**
   * The call whose exchanges the caller's own fetch makes; undefined if the native transport makes
   * them.
   */
  customFetch: CustomFetchCall | undefined;
}

/** The retries of an SDK, which the gate makes in its place. */
export interface SdkRetries {
  /**
   * Maximum number of attempts of a call, including the first, that the user has set at the SDK's
   * client. Undefined if the client has the SDK's default: the configuration of the gate applies.
   */
  maxAttempts: number | undefined;
}

/** A request that was handed to the gate. */
export interface SentExchange {
  /**
   * A promise of the response head. It rejects with the signal's reason, the error of the caller's
   * own fetch, or a `TypeError` whose cause is a `TidegateError`.
   */
  head: Promise<ResponseHead>;
  /**
   * Cancels the request, also while it is queued, and rejects `head` with this reason. Has no effect
   * if `head` has settled.
   */
  cancel(reason: unknown): void;
}

/** Sends a request through the gate. */
export function sendExchange(gate: NativeGate, sent: ExchangeRequest): SentExchange {
  let exchange: Exchange | undefined;
  const head = new Promise<ResponseHead>((resolve, reject) => {
    exchange = new Exchange(resolve, reject, sent);
    exchange.start(gate, sent);
  });
  return { head, cancel: (reason) => exchange?.cancel(reason) };
}

class Exchange implements Waiter, Abortable {
  readonly #resolve: (head: ResponseHead) => void;
  readonly #reject: (error: unknown) => void;
  readonly #signal: AbortSignal | undefined;
  readonly #customFetch: CustomFetchCall | undefined;
  readonly #number = port.allocateNumber();
  /** `true` while the completion of the call is awaited. */
  #isPending = false;

  constructor(
    resolve: (head: ResponseHead) => void,
    reject: (error: unknown) => void,
    { signal, customFetch }: ExchangeRequest,
  ) {
    this.#resolve = resolve;
    this.#reject = reject;
    this.#signal = signal;
    this.#customFetch = customFetch;
  }

  start(gate: NativeGate, { method, url, headers, body, upload, sdk }: ExchangeRequest): void {
    // The signal may be aborted between the hops of a redirect.
    if (this.#signal?.aborted === true) {
      this.#reject(this.#signal.reason);
      return;
    }
    const started = gate.send(
      port.native,
      this.#number,
      method,
      url,
      headers,
      body,
      upload,
      currentContext(),
      sdk !== undefined,
      sdk?.maxAttempts,
      this.#customFetch?.hasStreamedBody,
    );
    if (typeof started !== "number") {
      this.#reject(fetchError(started));
      return;
    }
    port.wait(this.#number, this);
    this.#isPending = true;
    port.flushSoon(started);
    if (this.#signal !== undefined) watch(this.#signal, this);
  }

  settle(kind: CompletionKind, a: unknown, b: unknown, c: unknown, d: unknown): void {
    this.#isPending = false;
    if (this.#signal !== undefined) unwatch(this.#signal, this);
    if (kind === CompletionKind.Answer) {
      const whole = c === null || typeof c === "string" || c instanceof Uint8Array;
      const body = whole
        ? (c as string | Uint8Array | null)
        : new ReplyBody(c as NativeReply, this.#signal, this.#customFetch?.thrown);
      const customResponse = this.#customFetch?.responses[d as number];
      this.#resolve({ status: a as number, headers: b as string, body, customResponse });
    } else {
      this.#reject(kind === CompletionKind.Failure ? this.#failed(a as Failure) : panicError());
    }
  }

  onExchange(exchange: NativeExchange, changes: string, url: string | null): void {
    this.#customFetch?.begin(exchange, changes, url);
  }

  #failed(failure: Failure): unknown {
    // The caller gets the very error of its own fetch.
    return failure.thrown === undefined ? fetchError(failure) : this.#customFetch?.thrown[failure.thrown];
  }

  abort(reason: unknown): void {
    this.#isPending = false;
    port.cancel(this.#number);
    this.#reject(reason);
  }

  cancel(reason: unknown): void {
    if (!this.#isPending) return;
    if (this.#signal !== undefined) unwatch(this.#signal, this);
    this.abort(reason);
  }
}
