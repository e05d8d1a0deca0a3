/**
 * The gate: the object through which a thread of the program makes its calls.
 *
 * @module
 */

import { checkSeconds } from "./check-arguments.js";
import { CompletionKind, panicError, port } from "./completions.js";
import type { Config, ReplicaConfig } from "./config.js";
import { type Context, deriveContext, runInContext } from "./context.js";
import { argumentError, ConfigError, errorFrom } from "./errors.js";
import type { Explanation } from "./explain.js";
import { customFetchOf, type FetchSettings, fetchThroughGate, fetchWithoutGate, sdkRetriesOf } from "./fetch/index.js";
import type { Fetch } from "./fetch/platform-types.js";
import { finiteJson } from "./json.js";
import { type MapFunction, type MapOptions, type MapResult, mapItems } from "./map.js";
import { type Failure, MAX_COUNT, type NativeGate, native } from "./native.js";
import type { WaitOptions } from "./slot-wait.js";
import type { CallRecord, Snapshot } from "./snapshot.js";
import { runWithSlot, type TargetSlot } from "./target-slot.js";
import { acquireTool, type ToolOptions, type ToolSlot } from "./tool-slot.js";
import { copyClient, fetchOf, retriesOf } from "./wrap.js";

/** The configuration of a gate, and a custom fetch. */
export interface GateOptions extends Config {
  /**
   * A custom fetch that makes the exchanges below the gate: for proxies, TLS settings, undici
   * dispatchers or mocks. The gate still applies caps, queues, retries, cool-downs and deadlines. A
   * slot is released when the promise of the fetch has rejected or the body of its response has
   * ended. Until then, what this fetch calls bypasses the same gate. Default: the gate's native
   * transport, unless undici's global dispatcher is a custom one.
   */
  fetch?: Fetch;
}

/** Options of {@link Gate.wrap}. */
export interface WrapOptions {
  /**
   * `auto` (default): the custom fetch of the client, if it has one, makes the exchanges below the
   * gate. `native`: the gate's transport makes them instead, and undici dispatchers are ignored.
   */
  transport?: "auto" | "native";
}

/**
 * The mode of a gate: `enforce` limits calls, `observe` sends every call at once and only measures,
 * and `off` bypasses the gate.
 */
export type Mode = "enforce" | "observe" | "off";

/**
 * Limits the calls to each model to the number that the model can serve at the moment, and queues
 * the others.
 *
 * Share one gate per thread. Gates of worker threads are separate.
 *
 * @example
 * ```ts
 * const gate = new Gate({
 *   targets: { openai: { url: "https://api.openai.com", cap: 64 } },
 *   tools: { db: 8 },
 * });
 * const client = gate.wrap(new OpenAI());
 * ```
 */
export class Gate {
  /**
   * The standard `fetch`, through this gate. The function is bound, so it can be passed on by
   * itself.
   *
   * Pass it to any library that accepts a fetch. Rejected calls and passed deadlines become
   * responses (413, 429, 503 or 504) with a JSON body that explains them. Below an SDK that retries
   * by itself (openai, anthropic), every other failure also becomes a response, with the header
   * `x-should-retry: false`, because the SDK would retry after a rejected promise. Otherwise these
   * failures reject with a `TypeError` whose `cause` is a {@link TidegateError}.
   *
   * An abort by the caller rejects with the signal's reason and ends the upstream exchange at once.
   * In mode `off`, this is the platform's fetch. If undici's global dispatcher is not the default
   * one (`setGlobalDispatcher`, `NODE_USE_ENV_PROXY`), the platform's fetch makes the exchanges
   * with that dispatcher.
   *
   * @example
   * ```ts
   * const response = await gate.fetch("https://api.openai.com/v1/models");
   * ```
   */
  readonly fetch: Fetch;
  readonly #native: NativeGate;
  readonly #transport: FetchSettings["transport"];

  /**
   * Checks the configuration and opens the gate.
   *
   * The keys are those of the configuration file. Durations are seconds, or text with a unit
   * (`"500ms"`, `"2m"`). A target without settings has a queue and an adaptive limit. A target with
   * an objective (`ttft`) adapts its limit to the objective. A target with only a `cap` has that
   * fixed limit.
   *
   * @param options - The configuration, and optionally a custom fetch.
   * @throws {@link ConfigError} if a key is unknown or impossible. The message names every such key
   * and the nearest valid one. Also thrown if a proxy variable of the environment cannot be used.
   */
  constructor(options: GateOptions = {}) {
    const { fetch } = options;
    const variables = proxyVariables();
    this.#native = gateOrThrow(
      options instanceof ConfigFile
        ? native.Gate.openFile(options.path, variables)
        : native.Gate.open(toJson(options), variables),
    );
    port.addGate(this.#native);
    this.#transport = fetch ?? "auto";
    this.fetch = this.#native.canBypass
      ? fetchWithoutGate(this.#native, fetch)
      : fetchThroughGate(this.#native, { sdk: undefined, transport: this.#transport });
  }

  /**
   * Opens a gate that is configured by a TOML file.
   *
   * @param path - Path of the file: a regular file of at most 16 MiB.
   * @param options - A custom fetch, as in {@link GateOptions}.
   * @returns The open gate.
   * @throws {@link ConfigError} if the file cannot be read or is too large, or if a key is wrong.
   * The message names the file, the line and every wrong key. Also thrown if a proxy variable of
   * the environment cannot be used.
   */
  static fromFile(path: string, options: Pick<GateOptions, "fetch"> = {}): Gate {
    return new Gate(new ConfigFile(path, options.fetch));
  }

  /** The mode of the gate. The environment variable `TIDEGATE` overrides the configured mode. */
  get mode(): Mode {
    return this.#native.mode;
  }

  /**
   * Returns a copy of an SDK client whose requests go through this gate.
   *
   * Supported are the clients of `openai` and `@anthropic-ai/sdk`, and their Azure and other
   * variants. The copy keeps your keys, base URL, headers and timeouts. A custom `fetch` or undici
   * dispatcher of the client makes the exchanges below the gate, and so does a global dispatcher
   * other than undici's default (`setGlobalDispatcher`, `NODE_USE_ENV_PROXY`). The original client
   * is not changed.
   *
   * The gate retries instead of the SDK, so `maxRetries` of the copy is 0. If your client has
   * another `maxRetries` than the SDK's default of 2, the gate makes at most one attempt more than
   * that number for each call; otherwise the target's `retry.attempts` applies. Leave
   * `maxRetries` of the copy at 0: the SDK would repeat calls that cannot connect. Another 0, such
   * as `{ maxRetries: 0 }` of one request, therefore changes nothing: for calls without retries,
   * use a second copy, `gate.wrap(client.withOptions({ maxRetries: 0 }))`. In mode `observe` the
   * SDK keeps its retries. In mode `off` the copy has your retries and your fetch, unless a target
   * is a pool: only the gate can resolve the address of a pool.
   *
   * Bedrock clients that sign their requests with AWS credentials, such as `AnthropicBedrock`, do so
   * before the requests wait in the queue, and AWS rejects signatures that are older than five
   * minutes. For their target, set `wait = "4m"` and `deadline = "5m"` or less: `wait` alone counts
   * neither failed attempts nor the time in which the target is closed.
   *
   * @param client - The client.
   * @param options - Which transport makes the exchanges. Default: `auto`.
   * @returns The copy, of the same type as `client`.
   * @throws `TypeError` if the object is not a supported client; `RangeError` if `transport` is
   * another value than `auto` or `native`.
   * @example
   * ```ts
   * const client = gate.wrap(new OpenAI());
   * ```
   */
  wrap<Client extends object>(client: Client, { transport = "auto" }: WrapOptions = {}): Client {
    if (transport !== "auto" && transport !== "native") {
      throw new RangeError(`transport: ${String(transport)} is not valid; use "auto" or "native"`);
    }
    if (this.#native.canBypass) return copyClient(client, {});
    const own = this.#transport === "auto" ? customFetchOf(fetchOf(client)) : this.#transport;
    const sdk = sdkRetriesOf(fetchOf(client)) ?? retriesOf(client);
    const fetch = fetchThroughGate(this.#native, { sdk, transport: transport === "native" ? "native" : own });
    // Only one layer may retry: attempts of nested retry loops multiply.
    return copyClient(client, this.mode === "enforce" ? { fetch, maxRetries: 0 } : { fetch });
  }

  /**
   * Runs a function while it holds a slot of a tool, and releases the slot when the function has
   * ended.
   *
   * Calls inside the function count as holders of the tool. If such a call waits for another tool
   * whose holder waits for this one, it is rejected instead of waiting forever.
   *
   * A process warning (`TIDEGATE_SLOT_HELD`) is emitted, once for each line of the program, if the
   * caller waits for the tool while it holds a slot of a model: an unread response, or a slot from
   * {@link Gate.slot}. That slot is idle meanwhile, and two such callers can wait for each other.
   * JavaScript has no task identity, so the callers are told apart by the innermost {@link
   * Gate.run} around them. Use one `gate.run` for each of several concurrent activities. Outside of
   * `gate.run` there is no warning.
   *
   * @param name - Name of a configured tool.
   * @param run - The function.
   * @param options - A signal that cancels the wait, and whether model slots are released while the
   * caller waits for the tool or holds it.
   * @returns The result of the function.
   * @throws {@link UnknownNameError} (as a rejection) if the tool is not configured, and {@link
   * Refused} if the queue is full, the wait is over, or the wait would never end.
   * @example
   * ```ts
   * const rows = await gate.tool("db", () => query());
   * ```
   */
  async tool<T>(name: string, run: () => T | Promise<T>, options?: ToolOptions): Promise<T> {
    const slot = await acquireTool(this.#native, name, options);
    try {
      return await slot.run(run);
    } finally {
      slot.release();
    }
  }

  /**
   * Waits for a slot of a tool and returns it.
   *
   * @param name - Name of a configured tool.
   * @param options - As for {@link Gate.tool}.
   * @returns The slot, which the caller must release.
   * @throws As {@link Gate.tool}.
   * @example
   * ```ts
   * const slot = await gate.acquireTool("db");
   * try {
   *   await slot.run(query);
   * } finally {
   *   slot.release();
   * }
   * ```
   */
  acquireTool(name: string, options?: ToolOptions): Promise<ToolSlot> {
    return acquireTool(this.#native, name, options);
  }

  /**
   * Runs a function while it holds a slot of a target.
   *
   * Use it for a call that no fetch makes through the gate: gRPC, an AWS client, websockets. The
   * call has the same queue, limits and records as every other call of that target. A target that
   * serves only such calls has `url: "none"`. The gate makes one attempt and does not retry. A
   * wrapped client acquires its own slots, so do not hold a slot around it.
   *
   * If the function resolves, the call counts as completed. `slot.failed(status, retryAfter)`
   * reports that the upstream failed it. After any other rejection the call counts as cancelled.
   *
   * @param target - Name of a configured target.
   * @param run - The function, called with the slot. `slot.replica` is the base URL to call if the
   * target is a pool.
   * @param options - A signal that cancels the wait.
   * @returns The result of the function.
   * @throws {@link UnknownNameError} (as a rejection) if the target is not configured, and {@link
   * Refused} if the queue is full, the wait is over, or a cool-down of the target lasts too long.
   * @example
   * ```ts
   * const answer = await gate.slot("bedrock", async (slot) => {
   *   try {
   *     return await converse();
   *   } catch (error) {
   *     slot.failed(503);
   *     throw error;
   *   }
   * });
   * ```
   */
  slot<T>(target: string, run: (slot: TargetSlot) => T | Promise<T>, options?: WaitOptions): Promise<T> {
    return runWithSlot(this.#native, target, run, options);
  }

  /**
   * Runs a function with a tenant, lane, deadline or label for every call and tool that it uses,
   * directly or in what it awaits.
   *
   * @param context - The context. Properties that are not set are inherited.
   * @param run - The function.
   * @returns The result of the function.
   * @throws `TypeError` if a key of the context does not exist, or if a value has the wrong type;
   * `RangeError` if the lane does not exist, or if the deadline is not greater than 0.
   * @example
   * ```ts
   * await gate.run({ tenant: "acme", lane: "batch", deadline: 30 }, () => query());
   * ```
   */
  run<T>(context: Context, run: () => T): T {
    return runInContext(deriveContext(context), run);
  }

  /**
   * Runs a function over items, with as many items at the same time as the gate has capacity for.
   *
   * The number of running items adapts so that some of their calls always wait for a slot (a
   * quarter of the running ones, at least 8), and every free slot is used. In modes `observe` and
   * `off`, and if the function makes no calls through this gate, 8 items run at the same time.
   * Memory is bounded: an item is taken from the source only when it can start, and never while
   * `ahead` results are unread.
   *
   * The error of an item is in its result. An error of the source is thrown after all started items
   * have been returned.
   *
   * Leaving the loop, `return()` of the iterator, or an abort of `options.signal` ends the calls,
   * tools and slots that the function uses through this gate, aborts the function's `signal`, and
   * closes the source.
   *
   * For files in OpenAI's batch format, use the command `tidegate run`.
   *
   * @param items - An iterable or async iterable.
   * @param run - The function, called with each item.
   * @param options - Order, limits and context. See {@link MapOptions}.
   * @returns An iterator over the results.
   * @throws `TypeError` if `run` is not a function or `items` cannot be iterated; `RangeError` if
   * `ahead` is less than 1 or the lane does not exist.
   * @example
   * ```ts
   * const ask = (row) => client.responses.create({ model: "gpt-4o", input: row.text });
   * for await (const result of gate.map(rows, ask)) {
   *   if ("error" in result) console.error(result.index, result.error);
   *   else await save(result.item, result.value);
   * }
   * ```
   */
  map<Item, Value>(
    items: Iterable<Item> | AsyncIterable<Item>,
    run: MapFunction<Item, Value>,
    options?: MapOptions,
  ): AsyncGenerator<MapResult<Item, Value>, void, undefined> {
    return mapItems(items, run, options);
  }

  /**
   * Returns the name of the configured target that serves requests to a URL.
   *
   * A request that matches no configured target gets a target of its own, for its combination of
   * origin, credential and model. The URL is resolved as `fetch` does.
   *
   * @param url - The whole URL of the request.
   * @param model - The model that the request names. Default: none.
   * @returns The name, or undefined if no configured target matches.
   * @throws {@link RequestError} if `url` is not a URL.
   */
  targetFor(url: string | URL, model?: string): string | undefined {
    const text = String(url);
    const sent = URL.canParse(text) ? new URL(text).href : text;
    const found = this.#native.targetFor(sent, model) ?? undefined;
    if (typeof found === "object") throw errorFrom(found);
    return found;
  }

  /**
   * Replaces the replicas of a pool.
   *
   * New replicas are added, and known replicas keep their state. Replicas that are not in the list
   * get no more calls and are removed when their last call ends. With an empty list, calls wait.
   *
   * @param target - Name of a target whose `pool` has neither `dns` nor `file`.
   * @param replicas - Base URLs, or objects with the keys of the configuration.
   * @throws {@link UnknownNameError} if the target is not configured; {@link ConfigError} if it is
   * not such a pool, or if a replica is invalid (the replicas do not change); `TypeError` if
   * `replicas` is a single URL or object instead of a list.
   * @example
   * ```ts
   * gate.setReplicas("llama", [
   *   "http://10.0.0.1:8000",
   *   { url: "http://10.0.0.2:8000", weight: 2 },
   * ]);
   * ```
   */
  setReplicas(target: string, replicas: Iterable<string | ReplicaConfig>): void {
    if (typeof replicas !== "object" || replicas === null || !(Symbol.iterator in replicas)) {
      throw new TypeError("replicas: pass a list, even for a single replica: [...]");
    }
    const failure = this.#native.setReplicas(target, toJson([...replicas]));
    if (failure) throw errorFrom(failure);
  }

  /**
   * Returns the current state of every target and tool.
   *
   * @returns Limits, slots, queues, budgets, counts, and quantiles in seconds. See {@link
   * Snapshot}.
   * @example
   * ```ts
   * for (const [name, target] of Object.entries(gate.snapshot().targets)) {
   *   console.log(name, target.in_flight, target.limit, target.queue_depth);
   * }
   * ```
   */
  snapshot(): Snapshot {
    return JSON.parse(this.#native.snapshot());
  }

  /**
   * Returns every metric in Prometheus' text format.
   *
   * @returns The text, with a line feed at the end of each line.
   */
  prometheus(): string {
    return this.#native.prometheus();
  }

  /**
   * Returns the records of the last 1,024 calls that ended, oldest first, with the times of each
   * attempt.
   *
   * Records contain no prompts and no headers, and no URLs except those of replicas.
   *
   * @returns The records. See {@link CallRecord}.
   */
  calls(): CallRecord[] {
    return JSON.parse(this.#native.calls());
  }

  /**
   * Returns why calls wait: the blocking rule, the time for which it has blocked the call, and the
   * expected wait.
   *
   * @param call - Label from `gate.run({ call }, ...)`, or the number of the call. If several calls
   * have the label, the one that has waited longest is explained. Default: every active call and
   * every wait for a tool; waiting ones first, the longest wait first.
   * @param limit - Maximum length of the list, 0 or more. Default: 100.
   * @returns For one call, an {@link Explanation}, or undefined if no such call is active.
   * Otherwise a list.
   * @throws `RangeError` if `limit` is negative or NaN.
   * @example
   * ```ts
   * for (const explanation of gate.explain()) console.log(explanation.text);
   * ```
   */
  explain(call: string | number): Explanation | undefined;
  explain(call?: undefined, limit?: number): Explanation[];
  explain(call?: string | number, limit = 100): Explanation | undefined | Explanation[] {
    if (call === undefined) {
      if (!(limit >= 0)) throw new RangeError(`limit: ${limit} is not valid; give a number of 0 or more`);
      return JSON.parse(this.#native.explainAll(Math.min(limit, MAX_COUNT)));
    }
    const explanation = this.#native.explain(call);
    return explanation === null ? undefined : JSON.parse(explanation);
  }

  /**
   * Stops admitting new calls, and waits until no call is active.
   *
   * @param seconds - Maximum wait in seconds, 0 or more. Afterwards queued calls are rejected, and
   * calls in flight continue. Default: 30.
   * @returns The number of calls that are still active: 0 if the wait ended before `seconds`.
   * @throws (As a rejection) `TypeError` if `seconds` is not a number; `RangeError` if it is negative
   * or not finite.
   * @example
   * ```ts
   * const left = await gate.drain(10);
   * ```
   */
  async drain(seconds = 30): Promise<number> {
    checkSeconds("seconds", seconds);
    const number = port.allocateNumber();
    try {
      this.#native.drain(port.native, number, seconds);
    } catch (error) {
      throw argumentError(error);
    }
    return new Promise((resolve, reject) => {
      port.wait(number, {
        settle: (kind, left) => (kind === CompletionKind.Count ? resolve(left as number) : reject(panicError())),
      });
      port.native.flush();
    });
  }
}

/**
 * The options of a gate from {@link Gate.fromFile}: the path of the configuration file, and a
 * custom fetch. The constructor of `Gate` recognizes this class.
 */
class ConfigFile implements GateOptions {
  readonly path: string;
  readonly fetch?: Fetch;

  constructor(path: string, fetch: Fetch | undefined) {
    this.path = path;
    if (fetch !== undefined) this.fetch = fetch;
  }
}

/**
 * Returns the environment variables that configure proxies, by name in upper or lower case.
 * Variables that are not set are omitted.
 */
function proxyVariables(): Record<string, string> {
  const found: Record<string, string> = {};
  for (const upper of ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"]) {
    for (const name of [upper, upper.toLowerCase()]) {
      const value = process.env[name];
      if (value !== undefined) found[name] = value;
    }
  }
  return found;
}

/** Returns settings as JSON, or throws a {@link ConfigError} if a number is not finite. */
function toJson(settings: unknown): string {
  const invalid = (message: string) => new ConfigError({ kind: "config", message, status: 400, retryable: false });
  return finiteJson(settings, invalid);
}

function gateOrThrow(gate: NativeGate | Failure): NativeGate {
  if (gate instanceof native.Gate) return gate;
  throw errorFrom(gate as Failure);
}
