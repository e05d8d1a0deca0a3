/**
 * `gate.slot(target, run)`: a slot of a target, for calls that go around every fetch.
 *
 * @module
 */
import { currentContext } from "./context.js";
import { argumentError } from "./errors.js";
import type { NativeGate, NativeSlot } from "./native.js";
import { port } from "./native-port.js";
import { type WaitOptions, waitForPermit } from "./wait.js";

/** A target's slot, as the function that holds it sees it. */
export class TargetSlot {
  readonly #native: NativeSlot;

  /** @internal */
  constructor(native: NativeSlot) {
    this.#native = native;
  }

  /**
   * Where its target is a pool, the base URL of the replica that the slot is at: the call is to go there. Null for any other target, in mode `off`, and once the slot
   * was given back.
   */
  get replica(): string | null {
    return this.#native.replica ?? null;
  }

  /**
   * Says that the upstream failed the call, and cools the target down as any such answer would. The first word counts.
   *
   * @param status - the HTTP status (of gRPC's codes RESOURCE_EXHAUSTED is 429, UNAVAILABLE 503, DEADLINE_EXCEEDED 504, INTERNAL 500);
   * undefined where the connection failed.
   * @param retryAfter - the seconds that the upstream asked for: until then nobody is admitted.
   * @returns whether the same call may succeed later.
   * @throws `RangeError` for what is no status, or no time; `Error` once the slot was given back.
   */
  failed(status?: number, retryAfter?: number): boolean {
    let retryable: boolean | null;
    try {
      retryable = this.#native.failed(status, retryAfter);
    } catch (error) {
      throw argumentError(error);
    }
    if (retryable === null) throw new Error("this slot was given back: say how the call went while it is held");
    return retryable;
  }
}

/** Runs the function while holding a slot. */
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
  let well = false;
  try {
    const value = await run(new TargetSlot(slot));
    well = true;
    return value;
  } finally {
    slot.close(well);
  }
}
