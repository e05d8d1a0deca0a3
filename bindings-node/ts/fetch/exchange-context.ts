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
import type { Fetch } from "./platform-types.js";

/** An exchange that a custom fetch makes for a gate. */
export class CustomExchange {
  readonly gate: NativeGate;
  readonly fetch: Fetch;
  /**
   * Whether the exchange has ended. What it started, such as a timer, may run on in its asynchronous
   * context, but is not part of it any more.
   */
  hasEnded = false;

  constructor(gate: NativeGate, fetch: Fetch) {
    this.gate = gate;
    this.fetch = fetch;
  }

  /** Runs a function that is part of the exchange, and returns its result. */
  run<T>(run: () => T): T {
    return storage.run([...current(), this], run);
  }
}

/**
 * The exchanges that the current code is part of: several if the custom fetch of one gate calls
 * another gate.
 */
const storage = new AsyncLocalStorage<readonly CustomExchange[]>();

/**
 * Makes an exchange with a custom fetch, in code that no gate limits. The exchange ends when the
 * fetch has returned its response.
 */
export async function exchangeBy(gate: NativeGate, fetch: Fetch, ...call: Parameters<Fetch>): Promise<Response> {
  const exchange = new CustomExchange(gate, fetch);
  try {
    return await exchange.run(() => fetch(...call));
  } finally {
    exchange.hasEnded = true;
  }
}

/** Returns `true` if the current code is part of an exchange for the gate. */
export function isInExchange(gate: NativeGate): boolean {
  return current().some((exchange) => exchange.gate === gate);
}

/** Returns `true` if the current code is part of an exchange that this fetch makes. */
export function isRunning(fetch: Fetch): boolean {
  return current().some((exchange) => exchange.fetch === fetch);
}

function current(): readonly CustomExchange[] {
  return storage.getStore()?.filter((exchange) => !exchange.hasEnded) ?? [];
}
