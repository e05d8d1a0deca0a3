/**
 * Waiting for something that is then held: a tool's slot, a target's.
 *
 * @module
 */

import { either, unwatch, watch } from "./abort-signal.js";
import { ending } from "./context.js";
import { errorOf } from "./errors.js";
import type { Failure } from "./native.js";
import { Kind, lost, port } from "./native-port.js";

/** Options of a wait. */
export interface WaitOptions {
  /** Leaves the queue when it is aborted; the wait then rejects with its reason. */
  signal?: AbortSignal | undefined;
}

/** Starts a wait under a number; resolves with what came. */
export function held<T>(start: (number: number) => void, options: WaitOptions = {}): Promise<T> {
  const signal = either(options.signal, ending());
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) throw signal.reason;
    const number = port.number();
    const waiter = {
      settle(kind: Kind, value: unknown) {
        if (signal !== undefined) unwatch(signal, waiter);
        if (kind === Kind.Failure) reject(errorOf(value as Failure));
        else if (kind === Kind.Lost) reject(lost());
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
