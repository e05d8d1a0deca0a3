/**
 * Tools: named resources with caps of their own.
 *
 * @module
 */
import { currentContext, runInContext } from "./context.js";
import type { NativeGate, NativePermit } from "./native.js";
import { port } from "./native-port.js";
import { type WaitOptions, waitForPermit } from "./wait.js";
import { warnOfHeldSlot } from "./warnings.js";

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
    return runInContext(this.#permit.context(), run);
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

/** Options of a wait for a tool. */
export interface ToolOptions extends WaitOptions {
  /**
   * Hands the model slots of this `gate.run` back while the tool is waited for and held: what the provider still sends is read ahead, up to
   * 1 MiB a response, and the slot is back when the answer has ended; the response then reads as if nothing had happened. No answer is
   * cut off: a longer one keeps its slot, and so does `gate.slot`. Outside of `gate.run` it does nothing.
   */
  yieldSlot?: boolean | undefined;
}

/** Waits for a slot. */
export async function acquireTool(gate: NativeGate, tool: string, options?: ToolOptions): Promise<ToolSlot> {
  const start = (number: number) => {
    const asked = gate.ask(tool, currentContext(), options?.yieldSlot === true);
    if (asked.advice !== null) warnOfHeldSlot(asked.advice);
    asked.granted(port.native, number);
  };
  return new ToolSlot(await waitForPermit<NativePermit>(start, options));
}
