/**
 * Finds undici dispatchers that the program has set, for proxies, TLS settings or mocks: for all
 * fetches of the process, or for one `Request`.
 *
 * @module
 */
import { isDeepStrictEqual } from "node:util";

import type { FetchInit } from "./platform-types.js";

interface Dispatcher {
  constructor: { new (): object; name: string; prototype: { dispatch?: unknown } } | undefined;
  dispatch: unknown;
}

/** Symbols under which undici stores the global dispatcher. Version 7 of undici sets both. */
const GLOBAL_DISPATCHER_KEYS = [Symbol.for("undici.globalDispatcher.1"), Symbol.for("undici.globalDispatcher.2")];

/** Names of the properties that differ between an undici agent with options and one without. */
const SETTINGS = ["options", "factory"];

/**
 * Cache of the results of `isDefault`: `true` for agents with the default settings. Each agent is
 * compared only once.
 */
const isDefaultByAgent = new WeakMap<object, boolean>();

/** Returns `true` if the program has replaced the default global dispatcher of undici. */
export function hasCustomGlobalDispatcher(): boolean {
  return GLOBAL_DISPATCHER_KEYS.some((key) => {
    const dispatcher = (globalThis as Record<symbol, unknown>)[key] as Dispatcher | undefined;
    return dispatcher !== undefined && !isDefault(dispatcher);
  });
}

/**
 * Returns the undici dispatcher that a `Request` was made with.
 *
 * Undefined if it has none, and always with undici 7 (Node 24), which keeps the dispatcher in a
 * private field. undici 6 (Node 20 and 22) keeps it under a symbol.
 */
export function dispatcherOf(request: Request): FetchInit["dispatcher"] {
  return settingOf(request, "dispatcher") as FetchInit["dispatcher"];
}

/**
 * Returns `true` for an agent that undici itself has set as the global dispatcher.
 *
 * Node's undici and the one from npm both set such an agent when they are loaded. Therefore, a
 * dispatcher counts as set by the program only if its class, its `dispatch` method or its settings
 * differ from those of such an agent.
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

/**
 * Returns a property that undici keeps under an unexported symbol, or undefined if there is none.
 */
function settingOf(agent: object, name: string): unknown {
  const key = Object.getOwnPropertySymbols(agent).find(({ description }) => description === name);
  return key && (agent as Record<symbol, unknown>)[key];
}
