/**
 * One request sent through the gate, and its head awaited.
 *
 * @module
 */

import { type Abortable, unwatch, watch } from "../abort-signal.js";
import { currentContext } from "../context.js";
import { fetchError } from "../errors.js";
import type { Failure, NativeGate, NativeKept, NativeReply, NativeUpload } from "../native.js";
import { CompletionKind, panicError, port, type Waiter } from "../native-port.js";
import type { CustomFetchCall } from "./custom-fetch.js";
import { ReplyBody } from "./response-body.js";

/** What came back, before redirects and encodings are seen to. */
export interface ResponseHead {
  status: number;
  headers: string;
  body: string | Uint8Array | ReplyBody | null;
  /** The caller's own fetch's, where that made it. */
  customResponse: Response | undefined;
}

/** One request, in the form in which it crosses. */
export interface ExchangeRequest {
  method: string;
  url: string;
  headers: string;
  body: string | Uint8Array | undefined;
  upload: NativeUpload | undefined;
  signal: AbortSignal | undefined;
  wrapped: boolean;
  /** The caller's own fetch. */
  customFetch: CustomFetchCall | undefined;
}

/** Sends it. The promise settles with the head, with the signal's reason, or with a `TypeError` whose cause is ours. */
export function sendExchange(gate: NativeGate, sent: ExchangeRequest): Promise<ResponseHead> {
  return new Promise((resolve, reject) => new Exchange(resolve, reject, sent).start(gate, sent));
}

class Exchange implements Waiter, Abortable {
  readonly #resolve: (head: ResponseHead) => void;
  readonly #reject: (error: unknown) => void;
  readonly #signal: AbortSignal | undefined;
  readonly #customFetch: CustomFetchCall | undefined;
  readonly #number = port.allocateNumber();

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

  start(gate: NativeGate, { method, url, headers, body, upload, wrapped }: ExchangeRequest): void {
    // Since the call began: between the hops of a redirect, say.
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
      wrapped,
      this.#customFetch?.streams,
    );
    if (typeof started !== "number") {
      this.#reject(fetchError(started));
      return;
    }
    port.wait(this.#number, this);
    port.flushSoon(started);
    if (this.#signal !== undefined) watch(this.#signal, this);
  }

  settle(kind: CompletionKind, a: unknown, b: unknown, c: unknown, d: unknown): void {
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

  begin(exchange: NativeKept, changes: string, url: string | null): void {
    this.#customFetch?.begin(exchange, changes, url);
  }

  #failed(failure: Failure): unknown {
    // What the caller's own fetch rejected with is what the caller knows.
    return failure.thrown === undefined ? fetchError(failure) : this.#customFetch?.thrown[failure.thrown];
  }

  abort(reason: unknown): void {
    port.cancel(this.#number);
    this.#reject(reason);
  }
}
