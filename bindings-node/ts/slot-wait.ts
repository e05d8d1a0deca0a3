/**
 * Waits for a slot of a tool or of a target.
 *
 * @module
 */

import { anySignal, unwatch, watch } from "./abort-signal.js";
import { CompletionKind, panicError, port } from "./completions.js";
import { currentSignal } from "./context.js";
import { errorFrom } from "./errors.js";
import type { Failure } from "./native.js";

/** Options of {@link Gate.tool}, {@link Gate.acquireTool} and {@link Gate.slot}. */
export interface WaitOptions {
  /**
   * A signal whose abort cancels the wait for the slot. The wait then rejects with the signal's
   * reason. Default: none.
   */
  signal?: AbortSignal | undefined;
}

/**
 * Waits for a slot, and resolves with its native object.
 *
 * Rejects with the gate's error, or with the reason of `options.signal` or of an enclosing map.
 *
 * @param start - Starts the native wait. Its argument is the port number under which the result
 * must be delivered.
 */
export function waitForPermit<T>(start: (number: number) => void, options: WaitOptions = {}): Promise<T> {
  const signal = anySignal(options.signal, currentSignal());
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) throw signal.reason;
    const number = port.allocateNumber();
    const waiter = {
      settle(kind: CompletionKind, value: unknown) {
        if (signal !== undefined) unwatch(signal, waiter);
        if (kind === CompletionKind.Failure) reject(errorFrom(value as Failure));
        else if (kind === CompletionKind.Panicked) reject(panicError());
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
