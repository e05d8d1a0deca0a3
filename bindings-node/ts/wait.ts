/**
 * Waits for a slot of a tool or of a target.
 *
 * @module
 */

import { anySignal, unwatch, watch } from "./abort-signal.js";
import { currentSignal } from "./context.js";
import { errorFrom } from "./errors.js";
import type { Failure } from "./native.js";
import { CompletionKind, panicError, port } from "./native-port.js";

/** Options of a wait for a slot. */
export interface WaitOptions {
  /** Cancels the wait when it is aborted. The wait then rejects with its reason. */
  signal?: AbortSignal | undefined;
}

/** Starts a wait with the given function and resolves with the permit. */
export function waitForPermit<T>(start: (number: number) => void, options: WaitOptions = {}): Promise<T> {
  const signal = anySignal(options.signal, currentSignal());
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) throw signal.reason;
    const number = port.allocateNumber();
    const waiter = {
      settle(kind: CompletionKind, value: unknown) {
        if (signal !== undefined) unwatch(signal, waiter);
        if (kind === CompletionKind.Failure) reject(errorFrom(value as Failure));
        else if (kind === CompletionKind.Lost) reject(panicError());
        else resolve(value as T);
      },
      abort(reason: unknown) {
        port.cancel(number);
        reject(reason);
      },
    };
    start(number);
    port.wait(number, waiter);
    port.native.flush();
    if (signal !== undefined) watch(signal, waiter);
  });
}
