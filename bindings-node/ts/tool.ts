/**
 * Slots of tools: named resources with their own caps.
 *
 * @module
 */
import { currentContext, runInContext } from "./context.js";
import type { NativeGate, NativePermit } from "./native.js";
import { port } from "./native-port.js";
import { type WaitOptions, waitForPermit } from "./wait.js";
import { warnOfHeldSlot } from "./warnings.js";

// Older typings and other runtimes may not have the symbol.
const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");

/**
 * A slot of a tool. It is held until `release`, the end of an `await using`, or its garbage
 * collection.
 */
export class ToolSlot {
  readonly #permit: NativePermit;

  /** @internal */
  constructor(permit: NativePermit) {
    this.#permit = permit;
  }

  /**
   * Runs a function as the holder of this slot, so that a cycle of tools is rejected instead of
   * waiting forever.
   *
   * @param run - The function.
   * @returns The result of the function.
   */
  run<T>(run: () => T): T {
    return runInContext(this.#permit.context(), run);
  }

  /** Releases the slot. Idempotent. */
  release(): void {
    this.#permit.close();
  }

  /** Releases the slot, for `await using`. */
  async [asyncDispose](): Promise<void> {
    this.#permit.close();
  }
}

/** Options of {@link Gate.tool}. */
export interface ToolOptions extends WaitOptions {
  /**
   * Whether to release the model slots of this {@link Gate.run} while the tool is waited for and
   * held. Default: false. The rest of each response is read ahead, up to 1 MiB, and the slot is
   * released when the response has ended. The response can then be read as usual. Longer responses
   * and slots from {@link Gate.slot} are kept. Outside of `gate.run` it has no effect.
   */
  yieldSlot?: boolean | undefined;
}

/** Waits for a slot of a tool. */
export async function acquireTool(gate: NativeGate, tool: string, options?: ToolOptions): Promise<ToolSlot> {
  const start = (number: number) => {
    const asked = gate.ask(tool, currentContext(), options?.yieldSlot === true);
    if (asked.advice !== null) warnOfHeldSlot(asked.advice);
    asked.granted(port.native, number);
  };
  return new ToolSlot(await waitForPermit<NativePermit>(start, options));
}
