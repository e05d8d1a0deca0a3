/**
 * Tools: named resources with caps of their own.
 *
 * @module
 */
import { current, within } from "./context.js";
import { errorOf } from "./errors.js";
import { unwatch, watch } from "./fetch/abort.js";
import type { Failure, NativeGate, NativePermit } from "./native.js";
import { Kind, lost, port } from "./port.js";

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

/** Options of a wait for a tool. */
export interface ToolOptions {
  /** Leaves the queue when it is aborted; the wait then rejects with its reason. */
  signal?: AbortSignal | undefined;
}

/** Waits for a slot. */
export function acquire(gate: NativeGate, tool: string, { signal }: ToolOptions = {}): Promise<ToolSlot> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) throw signal.reason;
    const number = port.number();
    const waiter = {
      settle(kind: Kind, value: unknown) {
        if (signal !== undefined) unwatch(signal, waiter);
        if (kind === Kind.Permit) resolve(new ToolSlot(value as NativePermit));
        else reject(kind === Kind.Failure ? errorOf(value as Failure) : lost());
      },
      abort(reason: unknown) {
        port.cancel(number);
        reject(reason);
      },
    };
    gate.acquire(port.native, number, tool, current());
    port.wait(number, waiter);
    port.native.flush();
    if (signal !== undefined) watch(signal, waiter);
  });
}
