/**
 * The gate: the object a process shares.
 *
 * @module
 */
import type { Config, ReplicaConfig } from "./config.js";
import { type Context, deriveContext, runInContext } from "./context.js";
import { argumentError, errorFrom } from "./errors.js";
import type { Explanation } from "./explain.js";
import { customFetchOf, type FetchSettings, fetchThroughGate, fetchWithoutGate } from "./fetch/index.js";
import type { Fetch } from "./fetch/types.js";
import { type MapFunction, type MapOptions, type MapResult, mapItems } from "./map.js";
import { type Failure, type NativeGate, native } from "./native.js";
import { CompletionKind, panicError, port } from "./native-port.js";
import type { CallRecord, Snapshot } from "./snapshot.js";
import { runWithSlot, type TargetSlot } from "./target-slot.js";
import { acquireTool, type ToolOptions, type ToolSlot } from "./tool.js";
import type { WaitOptions } from "./wait.js";
import { copyClient, fetchOf } from "./wrap.js";

/** The configuration, and what is no text. */
export interface GateOptions extends Config {
  /**
   * A fetch of your own, to make the exchanges below the gate: for proxies, TLS settings, undici dispatchers, mocks. Caps, queues, retries,
   * cool-downs and deadlines are the gate's all the same. A slot is free once its promise is settled, or its body over.
   */
  fetch?: Fetch;
}

export interface WrapOptions {
  /**
   * `auto` (the default): a fetch of the client's own is kept below the gate. `native`: the gate's
   * transport is used instead, and undici dispatchers are ignored.
   */
  transport?: "auto" | "native";
}

export type Mode = "enforce" | "observe" | "off";

/**
 * Lets through as many calls to each model as it can take right now: no fewer, no more.
 *
 * Share one per thread: a worker thread's gate is its own.
 */
export class Gate {
  /**
   * The standard's `fetch`, through this gate. Bound: it can be handed on by itself.
   *
   * For everything that takes a fetch. Refusals and deadlines come as responses (429, 503, 504) whose JSON says why; under an SDK that
   * retries by itself (openai, anthropic and their kin) so does every other failure, marked `x-should-retry: false`, since a rejection
   * would be retried. Elsewhere those reject with a `TypeError` whose `cause` is a {@link TidegateError}. The caller's own abort rejects
   * with the signal's reason, and ends the exchange upstream at once. In mode `off` it is the platform's own fetch.
   *
   * If undici's global dispatcher is not the default one (`setGlobalDispatcher`,
   * `NODE_USE_ENV_PROXY`), the platform's fetch makes the exchanges by that dispatcher.
   */
  readonly fetch: Fetch;
  readonly #native: NativeGate;
  readonly #transport: FetchSettings["transport"];

  /**
   * Checks the configuration and opens the gate. The keys are those of the configuration file. Durations are seconds, or text with units
   * (`"500ms"`, `"2m"`). With nothing configured every target has a queue, and finds by itself how many calls it takes at once. A
   * target with an objective (`ttft`) keeps to that; a cap alone is what it says.
   *
   * @throws {@link ConfigError} naming every key that is unknown or impossible, and the nearest
   * valid one; also if a proxy variable of the environment cannot be used.
   */
  constructor(options: GateOptions = {}) {
    const { fetch } = options;
    const variables = proxyVariables();
    this.#native = gateOrThrow(
      options instanceof ConfigFile
        ? native.Gate.openFile(options.path, variables)
        : native.Gate.open(JSON.stringify(options), variables),
    );
    port.addGate(this.#native);
    this.#transport = fetch ?? "auto";
    this.fetch = this.#native.aside
      ? fetchWithoutGate(fetch)
      : fetchThroughGate(this.#native, { wrapped: false, transport: this.#transport });
  }

  /**
   * Opens a gate configured by a TOML file.
   *
   * @throws {@link ConfigError} naming the file, the line and every key that is wrong; also if it
   * cannot be read, is no regular file, or is larger than 16 MiB, and if a proxy variable of the
   * environment cannot be used.
   */
  static fromFile(path: string, options: Pick<GateOptions, "fetch"> = {}): Gate {
    return new Gate(new ConfigFile(path, options.fetch));
  }

  /** Whether it acts (`enforce`), only looks (`observe`) or stands aside (`off`). */
  get mode(): Mode {
    return this.#native.mode;
  }

  /**
   * The client you have, going through this gate.
   *
   * Takes the clients of `openai` and `@anthropic-ai/sdk`, Azure and the other flavours included. What you configured stays: keys, base URL,
   * headers, timeouts, and a `fetch` or an undici dispatcher of your own, which then make the
   * exchanges below the gate. A global dispatcher other than undici's default is used too
   * (`setGlobalDispatcher`, `NODE_USE_ENV_PROXY`). The original is left as it was. Retries become
   * the gate's: `maxRetries` is 0, except in mode `observe`, which keeps yours. In mode `off` the
   * copy has your own retries, and your own fetch, unless a target is a pool, whose name only the
   * gate can make an address.
   *
   * @throws `TypeError` for any other object.
   */
  wrap<Client extends object>(client: Client, { transport = "auto" }: WrapOptions = {}): Client {
    if (this.#native.aside) return copyClient(client, {});
    const own = this.#transport === "auto" ? customFetchOf(fetchOf(client)) : this.#transport;
    const fetch = fetchThroughGate(this.#native, { wrapped: true, transport: transport === "native" ? "native" : own });
    // Who retries must be one: two loops, one above the other, multiply.
    return copyClient(client, this.mode === "enforce" ? { fetch, maxRetries: 0 } : { fetch });
  }

  /**
   * Runs the function while holding a slot of the tool, and gives it back however the function ends.
   *
   * What is called inside knows which tools are held: a cycle of tools is refused instead of waited for.
   *
   * Whoever waits here while holding a slot of a model, by a response that is not read to its end or by {@link Gate.slot}, gets a process warning
   * (`TIDEGATE_SLOT_HELD`), once for each line: the slot idles meanwhile, and two that do so may wait for each other. JavaScript knows no tasks: what
   * counts is the innermost `gate.run` around both. Give what runs side by side a `gate.run` each; outside of any nothing is noticed.
   *
   * @throws {@link UnknownNameError} for a tool that is not configured; {@link Refused} when the queue is full, the wait is over, or
   * waiting would never end. All as rejections.
   */
  async tool<T>(name: string, run: () => T | Promise<T>, options?: ToolOptions): Promise<T> {
    const slot = await acquireTool(this.#native, name, options);
    try {
      return await slot.run(run);
    } finally {
      slot.release();
    }
  }

  /** A slot of a tool, as soon as there is one: `await using slot = await gate.acquireTool("db")`. Rejects as {@link Gate.tool} does. */
  acquireTool(name: string, options?: ToolOptions): Promise<ToolSlot> {
    return acquireTool(this.#native, name, options);
  }

  /**
   * Runs the function while holding a slot of a target, for a call that no fetch makes: gRPC, an AWS client, websockets.
   *
   * The same queue, limits and books as for every other call to that target; a target that is there for slots alone has `url: "none"`. There
   * is one attempt and no retry. What a wrapped client calls takes slots of its own: do not hold one around it. Where the function
   * resolves the call went well; `slot.replica` is where it is to go, if the target is a pool; `slot.failed(status, retryAfter)` says that the upstream failed it; without that, a rejection says nothing
   * of the target, and the call counts as cancelled.
   *
   * @throws {@link UnknownNameError} for a target that is not configured; {@link Refused} when the queue is full, the wait is over, or the
   * target is held back for too long. All as rejections.
   */
  slot<T>(target: string, run: (slot: TargetSlot) => T | Promise<T>, options?: WaitOptions): Promise<T> {
    return runWithSlot(this.#native, target, run, options);
  }

  /**
   * Runs the function with a tenant, a lane, a deadline (seconds) or a name of your own for every call and tool that it asks for, directly or in what it awaits.
   *
   * @throws `RangeError` for a lane that does not exist, or a deadline that is not in the future.
   */
  run<T>(context: Context, run: () => T): T {
    return runInContext(deriveContext(context), run);
  }

  /**
   * Runs the function over the items, as many at once as the gate has room for; few items, or without end.
   *
   * ```ts
   * for await (const result of gate.map(rows(), (row) => client.chat.completions.create({ model: "gpt-4o", messages: row.messages }))) {
   *   if ("error" in result) console.error(result.index, result.error);
   *   else await save(result.item, result.value);
   * }
   * ```
   *
   * How many run at once finds itself: as many as are needed for the gate always to have a call of theirs to let through (a few wait, at least 8, a
   * quarter of the others), and no more. In modes `observe` and `off`, and where the function asks nothing of this gate, nothing holds them
   * back, and 8 run at once. Memory is bounded: the source is asked for an item when one may begin, and never while `ahead` results wait to
   * be read.
   *
   * Each item's error is its own, in its result. What the source throws is thrown here, once all that was begun has been handed out.
   *
   * Leaving the loop, `return()` of the iterator, or an abort of `options.signal` ends the calls, tools and slots under way that the function asked
   * this gate for (and aborts its `signal`, for whatever else it does), and closes the source.
   *
   * For files in the batch format of OpenAI there is `tidegate run`.
   *
   * @throws `TypeError` for what is no function, or cannot be iterated; `RangeError` for an `ahead` below 1, or a lane that does not exist.
   */
  map<Item, Value>(
    items: Iterable<Item> | AsyncIterable<Item>,
    run: MapFunction<Item, Value>,
    options?: MapOptions,
  ): AsyncGenerator<MapResult<Item, Value>, void, undefined> {
    return mapItems(items, run, options);
  }

  /**
   * The name of the configured target that takes requests to this URL, for this model; undefined where none does: such requests get a
   * target of their own, by origin, credential and model. The URL is resolved as `fetch` does.
   *
   * @throws {@link RequestError} for what is no URL.
   */
  targetFor(url: string | URL, model?: string): string | undefined {
    const text = String(url);
    const sent = URL.canParse(text) ? new URL(text).href : text;
    const found = this.#native.targetFor(sent, model) ?? undefined;
    if (typeof found === "object") throw errorFrom(found);
    return found;
  }

  /**
   * Tells which are the replicas of a pool from now on: base URLs, or objects with the keys of the configuration.
   *
   * Who is new joins; who is known already goes on; who is not among them gets no more calls, and leaves with its last one. Of an empty list calls wait.
   * It takes the place of the configured list.
   *
   * @throws {@link UnknownNameError} for a target that is not configured; {@link ConfigError} for one without a `pool`, or whose replicas `dns` or a `file`
   * names, and for what is no replica. They stay what they were. `TypeError` for one URL, or one object, where a list of them belongs.
   */
  setReplicas(target: string, replicas: Iterable<string | ReplicaConfig>): void {
    if (typeof replicas !== "object" || replicas === null || !(Symbol.iterator in replicas)) {
      throw new TypeError("replicas: give a list, also where there is only one: [...]");
    }
    const failure = this.#native.setReplicas(target, JSON.stringify([...replicas]));
    if (failure) throw errorFrom(failure);
  }

  /** The state of every target and tool now: limits, slots, queues, counts, quantiles in seconds. */
  snapshot(): Snapshot {
    return JSON.parse(this.#native.snapshot());
  }

  /** Every series in Prometheus' text format. */
  prometheus(): string {
    return this.#native.prometheus();
  }

  /** The last 1,024 calls that ended, oldest first, with the stamps of each attempt. No prompt and no header is kept, and no URL but a replica's. */
  calls(): CallRecord[] {
    return JSON.parse(this.#native.calls());
  }

  /**
   * Why a call waits now: which rule stands in its way, since when, and how long it expects to wait. undefined: no such call is under way.
   *
   * @param call - what `gate.run({ call }, ...)` named it, or its number. Of several calls of one name the one is meant that has waited the
   * longest. Without it: every call under way and every wait for a tool, at most `limit` of them (100), those that wait first, the
   * longest wait first.
   */
  explain(call: string | number): Explanation | undefined;
  explain(call?: undefined, limit?: number): Explanation[];
  explain(call?: string | number, limit = 100): Explanation | undefined | Explanation[] {
    if (call === undefined) return JSON.parse(this.#native.explainAll(limit));
    const told = this.#native.explain(call);
    return told === null ? undefined : JSON.parse(told);
  }

  /**
   * Takes no new calls and waits for those under way; resolves with how many are left.
   *
   * @param seconds - the most to wait. Then what still waits is refused; what is in flight goes on. Default: 30.
   * @throws `RangeError` (a rejection) where that is no time to wait.
   */
  async drain(seconds = 30): Promise<number> {
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

/** A configuration that is in a file. */
class ConfigFile implements GateOptions {
  readonly path: string;
  readonly fetch?: Fetch;

  constructor(path: string, fetch: Fetch | undefined) {
    this.path = path;
    if (fetch !== undefined) this.fetch = fetch;
  }
}

/** Returns the proxy variables of the environment, as they are now. */
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

function gateOrThrow(gate: NativeGate | Failure): NativeGate {
  if (gate instanceof native.Gate) return gate;
  throw errorFrom(gate as Failure);
}
