/**
 * The context of calls (tenant, lane, deadline and label), which `AsyncLocalStorage` carries
 * through asynchronous code.
 *
 * @module
 */
import { AsyncLocalStorage } from "node:async_hooks";

import { checkSeconds, checkString } from "./check-arguments.js";
import { argumentError } from "./errors.js";
import { type NativeContext, native } from "./native.js";
import type { Lane } from "./types.js";

/**
 * The context of the calls inside {@link Gate.run}. A property that is not set is inherited from
 * the enclosing `run`.
 */
export interface Context {
  /**
   * Name of the tenant. Tenants share capacity fairly. At most 200 bytes; the rest is cut off.
   * Default: inherited, otherwise `default`.
   */
  tenant?: string | undefined;
  /** Name of the priority class (lane). Default: inherited, otherwise `standard`. */
  lane?: Lane | undefined;
  /**
   * Seconds from now, above 0, until each call must have ended, including its stream. If contexts
   * are nested, the earlier deadline applies. The shorter of this and the `deadline` of the target
   * (10 minutes by default) applies; to allow more, raise that of the target. Values above ten years
   * are reduced to ten years. Default: inherited, otherwise the deadline of the target.
   */
  deadline?: number | undefined;
  /**
   * Label of the calls inside, for {@link Gate.explain} and {@link Gate.calls}. At most 200 bytes;
   * the rest is cut off. Default: inherited, otherwise none.
   */
  call?: string | undefined;
}

/** The check of the type of each property of a context. */
const CHECKS: Readonly<Record<keyof Context, (name: string, value: unknown) => void>> = {
  tenant: checkString,
  lane: checkString,
  deadline: checkSeconds,
  call: checkString,
};
const KEYS = Object.keys(CHECKS) as (keyof Context)[];

/** What `AsyncLocalStorage` carries: the context of calls, and the signal that ends them. */
interface Scope {
  context: NativeContext;
  /**
   * The signal of the enclosing map, which is aborted when the result of the running item is no
   * longer needed. Undefined outside a map.
   */
  signal: AbortSignal | undefined;
}

const storage = new AsyncLocalStorage<Scope>();

/** Returns the context of the innermost {@link Gate.run} or map, or undefined outside of both. */
export function currentContext(): NativeContext | undefined {
  return storage.getStore()?.context;
}

/**
 * Returns the signal of the innermost map around the caller, or undefined outside a map.
 *
 * The signal ends the caller's calls and waits, in addition to their own signals.
 */
export function currentSignal(): AbortSignal | undefined {
  return storage.getStore()?.signal;
}

/**
 * Runs a function in a context, and returns the result of the function.
 *
 * Calls and waits of the function end when `signal` is aborted. Default: the signal of the
 * enclosing context.
 */
export function runInContext<T>(context: NativeContext, run: () => T, signal = currentSignal()): T {
  return storage.run({ context, signal }, run);
}

/**
 * Returns a context that inherits everything from `context`, but counts as a separate task. The
 * gate tracks for each task which model slots it holds, to warn of tasks that keep one while they
 * wait for a tool.
 */
export function nestedContext(context: NativeContext): NativeContext {
  return new native.Context(context, undefined, undefined, undefined, undefined);
}

/**
 * Returns a context with the properties of `context`. Properties that are not set are inherited
 * from the context of the caller.
 *
 * @throws `TypeError` if a key or a type is wrong; `RangeError` if the lane does not exist, or if the
 * deadline is not above 0.
 */
export function deriveContext(context: Context): NativeContext {
  checkContext(context);
  try {
    return new native.Context(currentContext(), context.tenant, context.lane, context.deadline, context.call);
  } catch (error) {
    throw argumentError(error);
  }
}

/** Throws a `TypeError` if a key of a context does not exist, or if a value has the wrong type. */
function checkContext(context: Context): void {
  if (typeof context !== "object" || context === null) {
    throw new TypeError(`context: give an object with the keys ${KEYS.join(", ")}`);
  }
  for (const key of Object.keys(context)) {
    if (!Object.hasOwn(CHECKS, key)) {
      throw new TypeError(`context: ${JSON.stringify(key)} is not a key; the keys are ${KEYS.join(", ")}`);
    }
  }
  for (const key of KEYS) {
    // Programs without types may pass null for a property that is not set.
    if (context[key] !== undefined && context[key] !== null) CHECKS[key](key, context[key]);
  }
}
