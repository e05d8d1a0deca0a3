/**
 * The context of calls (tenant, lane, deadline and label), carried by `AsyncLocalStorage`.
 *
 * @module
 */
import { AsyncLocalStorage } from "node:async_hooks";

import { argumentError } from "./errors.js";
import { type NativeContext, native } from "./native.js";
import type { Lane } from "./types.js";

/** The context of the calls inside {@link Gate.run}. A property that is not set is inherited. */
export interface Context {
  /**
   * Fairness key, at most 200 bytes; the rest is cut off. Default: inherited, otherwise `default`.
   */
  tenant?: string | undefined;
  /** Priority class. Default: inherited, otherwise `standard`. */
  lane?: Lane | undefined;
  /**
   * Seconds from now until each call must have ended, including its stream. The earlier deadline of
   * nested contexts applies. Values above ten years are reduced to ten years.
   */
  deadline?: number | undefined;
  /**
   * Label of the calls inside, for {@link Gate.explain} and {@link Gate.calls}. At most 200 bytes;
   * the rest is cut off.
   */
  call?: string | undefined;
}

/** The value in the asynchronous storage. */
interface Scope {
  context: NativeContext;
  /** Aborted when the result of the running function is no longer needed. */
  signal: AbortSignal | undefined;
}

const storage = new AsyncLocalStorage<Scope>();

/** Returns the context of the caller. */
export function currentContext(): NativeContext | undefined {
  return storage.getStore()?.context;
}

/** Returns the signal that ends the caller's calls and waits, in addition to their own signals. */
export function currentSignal(): AbortSignal | undefined {
  return storage.getStore()?.signal;
}

/** Runs a function in a context. Its calls and waits end when the signal is aborted. */
export function runInContext<T>(context: NativeContext, run: () => T, signal = currentSignal()): T {
  return storage.run({ context, signal }, run);
}

/** Returns a copy of the context that is a scope of its own. */
export function nestedContext(context: NativeContext): NativeContext {
  return new native.Context(context, undefined, undefined, undefined, undefined);
}

/**
 * Returns the current context with changes.
 *
 * @throws `RangeError` if the lane does not exist, or if the deadline is not greater than 0.
 */
export function deriveContext(context: Context): NativeContext {
  try {
    return new native.Context(currentContext(), context.tenant, context.lane, context.deadline, context.call);
  } catch (error) {
    throw argumentError(error);
  }
}
