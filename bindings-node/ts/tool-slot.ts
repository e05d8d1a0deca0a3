/**
 * Slots of tools: named resources with their own caps.
 *
 * @module
 */

import { port } from "./completions.js";
import { currentContext, runInContext } from "./context.js";
import type { NativeGate, NativePermit } from "./native.js";
import { type WaitOptions, waitForPermit } from "./slot-wait.js";
import { warnOfHeldSlot } from "./warnings.js";

// Older typings and other runtimes may not have the symbol.
const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");

/**
 * A slot of a tool. It is occupied until `release` is called, an `await using` block ends, or this
 * object is collected as garbage.
 */
export class ToolSlot {
  readonly #permit: NativePermit;

  /**
   * Takes ownership of a native slot. Called by {@link Gate.acquireTool} and {@link Gate.tool}.
   *
   * @internal
   */
  constructor(permit: NativePermit) {
    this.#permit = permit;
  }

  /**
   * Runs a function as the holder of this slot. If the function requests another tool and could
   * wait forever, because the holder of that tool waits for this one, the request is rejected.
   * Tenant, lane, deadline and label are those of the caller's {@link Gate.run} or, outside of any,
   * those with which the slot was requested.
   *
   * @param run - The function.
   * @returns The result of the function.
   */
  run<T>(run: () => T): T {
    return runInContext(this.#permit.context(currentContext()), run);
  }

  /** Releases the slot. Idempotent. */
  release(): void {
    this.#permit.close();
  }

  /** Releases the slot at the end of an `await using` block. Idempotent. */
  async [asyncDispose](): Promise<void> {
    this.#permit.close();
  }
}

/** Options of {@link Gate.tool} and {@link Gate.acquireTool}. */
export interface ToolOptions extends WaitOptions {
  /**
   * `true` to release the model slots that are held inside this {@link Gate.run} while the caller
   * waits for the tool or holds it. Default: false. The rest of each response is read ahead, up to
   * 1 MiB, and the slot is released when the response has ended. The response can then be read as
   * usual. A longer response keeps its slot, and so does a slot from {@link Gate.slot}. Outside of
   * `gate.run` the option has no effect.
   */
  yieldSlot?: boolean | undefined;
}

/** Waits for a slot of a tool, and resolves with it. For the errors, see {@link Gate.tool}. */
export async function acquireTool(gate: NativeGate, tool: string, options?: ToolOptions): Promise<ToolSlot> {
  const start = (number: number) => {
    const request = gate.requestTool(tool, currentContext(), options?.yieldSlot === true);
    if (request.advice !== null) warnOfHeldSlot(request.advice);
    request.wait(port.native, number);
  };
  return new ToolSlot(await waitForPermit<NativePermit>(start, options));
}
