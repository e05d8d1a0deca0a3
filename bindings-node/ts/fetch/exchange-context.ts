/**
 * Marks the code that makes an exchange for a gate, in `AsyncLocalStorage`.
 *
 * A custom fetch may call the gate again, for example through the global fetch. If the gate handled
 * that call, the call would wait for the slot that its own exchange occupies, or the custom fetch
 * would call itself without end.
 *
 * @module
 */
import { AsyncLocalStorage } from "node:async_hooks";
import type { NativeGate } from "../native.js";

/**
 * The gates for which the current code makes an exchange: several if the custom fetch of one gate
 * calls another gate.
 */
const storage = new AsyncLocalStorage<readonly NativeGate[]>();

/** Runs a function that makes an exchange for the gate, and returns its result. */
export function runInExchange<T>(gate: NativeGate, run: () => T): T {
  return storage.run([...(storage.getStore() ?? []), gate], run);
}

/**
 * Returns `true` if `runInExchange` runs the caller for this gate, directly or in what the function
 * awaits.
 */
export function isInExchange(gate: NativeGate): boolean {
  return storage.getStore()?.includes(gate) === true;
}
