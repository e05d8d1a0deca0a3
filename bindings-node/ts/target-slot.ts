/**
 * Slots of targets, for calls that no fetch makes through the gate.
 *
 * @module
 */

import { port } from "./completions.js";
import { currentContext } from "./context.js";
import { argumentError } from "./errors.js";
import type { NativeGate, NativeSlot } from "./native.js";
import { type WaitOptions, waitForPermit } from "./slot-wait.js";

/** A slot of a target, which {@link Gate.slot} passes to its function. */
export class TargetSlot {
  readonly #native: NativeSlot;

  /**
   * Wraps a native slot, which {@link Gate.slot} releases.
   *
   * @internal
   */
  constructor(native: NativeSlot) {
    this.#native = native;
  }

  /**
   * Base URL of the replica to call, if the target is a pool.
   *
   * Null for other targets, in mode `off`, and after the slot was released.
   */
  get replica(): string | null {
    return this.#native.replica ?? null;
  }

  /**
   * Reports that the upstream failed the call. A transient failure, such as 429, 503 or 529, can
   * start a cool-down of the target. Only the first report counts.
   *
   * @param status - HTTP status. For gRPC codes: RESOURCE_EXHAUSTED is 429, UNAVAILABLE 503,
   * DEADLINE_EXCEEDED 504, INTERNAL 500. Undefined if the connection failed.
   * @param retryAfter - Delay in seconds that the upstream asked for. The target admits no call
   * during this time. Undefined if the upstream asked for no delay.
   * @returns `true` if the same call may succeed later.
   * @throws `RangeError` if an argument is invalid; `Error` if the slot was released.
   */
  failed(status?: number, retryAfter?: number): boolean {
    let retryable: boolean | null;
    try {
      retryable = this.#native.failed(status, retryAfter);
    } catch (error) {
      throw argumentError(error);
    }
    if (retryable === null) throw new Error("this slot was released: report failures while the slot is held");
    return retryable;
  }
}

/**
 * Runs a function while it holds a slot of a target. For the arguments and errors, see {@link
 * Gate.slot}.
 */
export async function runWithSlot<T>(
  gate: NativeGate,
  target: string,
  run: (slot: TargetSlot) => T | Promise<T>,
  options?: WaitOptions,
): Promise<T> {
  const slot = await waitForPermit<NativeSlot>(
    (number) => gate.acquireSlot(port.native, number, target, currentContext()),
    options,
  );
  let succeeded = false;
  try {
    const value = await run(new TargetSlot(slot));
    succeeded = true;
    return value;
  } finally {
    slot.close(succeeded);
  }
}
