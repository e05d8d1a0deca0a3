/**
 * One request sent through the gate, and its head awaited.
 *
 * @module
 */

import { type Abortable, unwatch, watch } from "../abort-signal.js";
import { current } from "../context.js";
import { fetchFailed } from "../errors.js";
import type { Failure, NativeGate, NativeKept, NativeReply, NativeUpload } from "../native.js";
import { Kind, lost, port, type Waiter } from "../native-port.js";
import type { Host } from "./custom-fetch.js";
import { Source } from "./response-body.js";

/** What came back, before redirects and encodings are seen to. */
export interface Head {
  status: number;
  headers: string;
  body: string | Uint8Array | Source | null;
  /** The caller's own fetch's, where that made it. */
  own: Response | undefined;
}

/** One request, in the form in which it crosses. */
export interface Sent {
  method: string;
  url: string;
  headers: string;
  body: string | Uint8Array | undefined;
  upload: NativeUpload | undefined;
  signal: AbortSignal | undefined;
  wrapped: boolean;
  /** The caller's own fetch. */
  host: Host | undefined;
}

/** Sends it. The promise settles with the head, with the signal's reason, or with a `TypeError` whose cause is ours. */
export function exchange(gate: NativeGate, sent: Sent): Promise<Head> {
  return new Promise((resolve, reject) => new Exchange(resolve, reject, sent).start(gate, sent));
}

class Exchange implements Waiter, Abortable {
  readonly #resolve: (head: Head) => void;
  readonly #reject: (error: unknown) => void;
  readonly #signal: AbortSignal | undefined;
  readonly #host: Host | undefined;
  readonly #number = port.number();

  constructor(resolve: (head: Head) => void, reject: (error: unknown) => void, { signal, host }: Sent) {
    this.#resolve = resolve;
    this.#reject = reject;
    this.#signal = signal;
    this.#host = host;
  }

  start(gate: NativeGate, { method, url, headers, body, upload, wrapped }: Sent): void {
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
      current(),
      wrapped,
      this.#host?.streams,
    );
    if (typeof started !== "number") {
      this.#reject(fetchFailed(started));
      return;
    }
    port.wait(this.#number, this);
    port.started(started);
    if (this.#signal !== undefined) watch(this.#signal, this);
  }

  settle(kind: Kind, a: unknown, b: unknown, c: unknown, d: unknown): void {
    if (this.#signal !== undefined) unwatch(this.#signal, this);
    if (kind === Kind.Answer) {
      const whole = c === null || typeof c === "string" || c instanceof Uint8Array;
      const body = whole
        ? (c as string | Uint8Array | null)
        : new Source(c as NativeReply, this.#signal, this.#host?.thrown);
      const own = this.#host?.responses[d as number];
      this.#resolve({ status: a as number, headers: b as string, body, own });
    } else {
      this.#reject(kind === Kind.Failure ? this.#failed(a as Failure) : lost());
    }
  }

  begin(exchange: NativeKept, changes: string, url: string | null): void {
    this.#host?.begin(exchange, changes, url);
  }

  #failed(failure: Failure): unknown {
    // What the caller's own fetch rejected with is what the caller knows.
    return failure.thrown === undefined ? fetchFailed(failure) : this.#host?.thrown[failure.thrown];
  }

  abort(reason: unknown): void {
    port.cancel(this.#number);
    this.#reject(reason);
  }
}
