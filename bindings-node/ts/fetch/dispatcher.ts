/**
 * undici dispatchers that were set for all fetches of the process: proxies, TLS settings, mocks.
 *
 * @module
 */
import { isDeepStrictEqual } from "node:util";

import type { FetchInit } from "./types.js";

interface Dispatcher {
  constructor: { new (): object; name: string; prototype: { dispatch?: unknown } } | undefined;
  dispatch: unknown;
}

/** Symbols under which undici stores the global dispatcher. Version 7 sets both. */
const GLOBAL_DISPATCHER_KEYS = [Symbol.for("undici.globalDispatcher.1"), Symbol.for("undici.globalDispatcher.2")];

/** Properties that distinguish a custom agent. */
const SETTINGS = ["options", "factory"];

/** Whether an agent has the default settings, for each agent compared so far. */
const isDefaultByAgent = new WeakMap<object, boolean>();

/** Returns `true` if the global dispatcher is not one that undici itself would set. */
export function hasCustomGlobalDispatcher(): boolean {
  return GLOBAL_DISPATCHER_KEYS.some((place) => {
    const dispatcher = (globalThis as Record<symbol, unknown>)[place] as Dispatcher | undefined;
    return dispatcher !== undefined && !isDefault(dispatcher);
  });
}

/**
 * Returns the dispatcher that a `Request` was made with.
 *
 * undici 6 (Node 20 and 22) keeps it under a symbol. undici 7 (Node 24) keeps it in a private field,
 * which cannot be read: the result is then `undefined`.
 */
export function dispatcherOf(request: Request): FetchInit["dispatcher"] {
  return settingOf(request, "dispatcher") as FetchInit["dispatcher"];
}

/**
 * Returns `true` for an agent as undici itself makes one.
 *
 * Node's undici and the one from npm both set such an agent when they are loaded, so neither being
 * set nor being of that class tells the user's own dispatcher.
 */
function isDefault(dispatcher: Dispatcher): boolean {
  const { constructor: agent, dispatch } = dispatcher;
  if (agent?.name !== "Agent" || Object.getPrototypeOf(agent).name !== "DispatcherBase") return false;
  // Interceptors replace this method, also in place and at any time.
  if (dispatch !== agent.prototype.dispatch) return false;
  let known = isDefaultByAgent.get(dispatcher);
  if (known === undefined) {
    known = hasDefaultSettings(dispatcher, new agent());
    isDefaultByAgent.set(dispatcher, known);
  }
  return known;
}

function hasDefaultSettings(dispatcher: Dispatcher, fresh: object): boolean {
  return SETTINGS.every((name) => {
    const setting = settingOf(dispatcher, name);
    return setting !== undefined && isDeepStrictEqual(setting, settingOf(fresh, name));
  });
}

/** Returns a setting that undici keeps under an unexported symbol. */
function settingOf(agent: object, name: string): unknown {
  const key = Object.getOwnPropertySymbols(agent).find(({ description }) => description === name);
  return key && (agent as Record<symbol, unknown>)[key];
}
