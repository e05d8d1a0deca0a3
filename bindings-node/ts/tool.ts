/**
 * Tools: named resources with caps of their own.
 *
 * @module
 */
import { current, within } from "./context.js";
import { held, type WaitOptions } from "./hold.js";
import type { NativeGate, NativePermit } from "./native.js";
import { port } from "./port.js";

// Node 20 has it; older typings, and other runtimes, may not.
const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");

/** A tool's slot, held until `release`, the end of an `await using`, or, as a last resort, its collection. */
export class ToolSlot {
  readonly #permit: NativePermit;

  /** @internal */
  constructor(permit: NativePermit) {
    this.#permit = permit;
  }

  /** Runs the function as the holder of this slot: what it asks for inside knows, and a cycle of tools is refused, not waited for. */
  run<T>(run: () => T): T {
    return within(this.#permit.context(), run);
  }

  /** Gives the slot back. Idempotent. */
  release(): void {
    this.#permit.close();
  }

  /** The same, for `await using`. */
  async [asyncDispose](): Promise<void> {
    this.#permit.close();
  }
}

/** Waits for a slot. */
export async function acquire(gate: NativeGate, tool: string, options?: WaitOptions): Promise<ToolSlot> {
  const start = (number: number) => gate.acquire(port.native, number, tool, current());
  return new ToolSlot(await held<NativePermit>(start, options));
}
