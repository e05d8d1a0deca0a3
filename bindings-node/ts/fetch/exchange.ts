/**
 * One request sent through the gate, and its head awaited.
 *
 * @module
 */
import { current } from "../context.js";
import { fetchFailed } from "../errors.js";
import type { Failure, NativeGate, NativeReply, NativeUpload } from "../native.js";
import { Kind, lost, port, type Waiter } from "../port.js";
import { type Abortable, unwatch, watch } from "./abort.js";
import { Source } from "./stream.js";

/** What came back, before redirects and encodings are seen to. */
export interface Head {
  status: number;
  headers: string;
  body: string | Uint8Array | Source | null;
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
}

/** Sends it. The promise settles with the head, with the signal's reason, or with a `TypeError` whose cause is ours. */
export function exchange(gate: NativeGate, sent: Sent): Promise<Head> {
  return new Promise((resolve, reject) => new Exchange(resolve, reject, sent.signal).start(gate, sent));
}

class Exchange implements Waiter, Abortable {
  readonly #resolve: (head: Head) => void;
  readonly #reject: (error: unknown) => void;
  readonly #signal: AbortSignal | undefined;
  readonly #number = port.number();

  constructor(resolve: (head: Head) => void, reject: (error: unknown) => void, signal: AbortSignal | undefined) {
    this.#resolve = resolve;
    this.#reject = reject;
    this.#signal = signal;
  }

  start(gate: NativeGate, { method, url, headers, body, upload, wrapped }: Sent): void {
    const started = gate.send(port.native, this.#number, method, url, headers, body, upload, current(), wrapped);
    if (typeof started !== "number") {
      this.#reject(fetchFailed(started));
      return;
    }
    port.wait(this.#number, this);
    port.started(started);
    if (this.#signal !== undefined) watch(this.#signal, this);
  }

  settle(kind: Kind, a: unknown, b: unknown, c: unknown): void {
    if (this.#signal !== undefined) unwatch(this.#signal, this);
    if (kind === Kind.Answer) {
      const whole = c === null || typeof c === "string" || c instanceof Uint8Array;
      const body = whole ? (c as string | Uint8Array | null) : new Source(c as NativeReply, this.#signal);
      this.#resolve({ status: a as number, headers: b as string, body });
    } else {
      this.#reject(kind === Kind.Failure ? fetchFailed(a as Failure) : lost());
    }
  }

  abort(reason: unknown): void {
    port.cancel(this.#number);
    this.#reject(reason);
  }
}
