/**
 * Who calls, how urgently and until when: carried along by the asynchronous context.
 *
 * @module
 */
import { AsyncLocalStorage } from "node:async_hooks";

import { argumentError } from "./errors.js";
import { type NativeContext, native } from "./native.js";
import type { Lane } from "./types.js";

/** What the calls made inside `gate.run` have in common. Whatever is left out is inherited. */
export interface Context {
  /** The fairness key. Default: `default`. At most 200 bytes; a longer one is cut. */
  tenant?: string | undefined;
  /** Default: `standard`. */
  lane?: Lane | undefined;
  /**
   * Seconds from now, by which each call, its stream included, must have ended. Of nested ones the
   * earliest holds. More than ten years count as ten.
   */
  deadline?: number | undefined;
  /** A name of your own for the calls inside, for `gate.explain` and the log of calls. At most 200 bytes; a longer one is cut. */
  call?: string | undefined;
}

/** What is carried along. */
interface Scope {
  context: NativeContext;
  /** Aborted where what runs here is no longer wanted. */
  signal: AbortSignal | undefined;
}

const storage = new AsyncLocalStorage<Scope>();

/** The context of whoever asks. */
export function currentContext(): NativeContext | undefined {
  return storage.getStore()?.context;
}

/** What ends the calls and waits of whoever asks, beside their own signals. */
export function currentSignal(): AbortSignal | undefined {
  return storage.getStore()?.signal;
}

/** Runs the function in that context; what it asks for ends by the signal, or by the one around. */
export function runInContext<T>(context: NativeContext, run: () => T, signal = currentSignal()): T {
  return storage.run({ context, signal }, run);
}

/** The same context, as a scope of its own. */
export function nestedContext(context: NativeContext): NativeContext {
  return new native.Context(context, undefined, undefined, undefined, undefined);
}

/** The current context with these changes. */
export function deriveContext(context: Context): NativeContext {
  try {
    return new native.Context(currentContext(), context.tenant, context.lane, context.deadline, context.call);
  } catch (error) {
    throw argumentError(error);
  }
}
