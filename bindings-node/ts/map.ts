/**
 * `gate.map`: runs a function over items, with as many items at the same time as the gate has
 * capacity for.
 *
 * @module
 */

import { port } from "./completions.js";
import { currentContext, currentSignal, deriveContext, nestedContext, runInContext } from "./context.js";
import { MAX_COUNT, type NativeContext, type NativeWindow, native } from "./native.js";
import type { Lane } from "./types.js";

/** Options of {@link Gate.map}. */
export interface MapOptions {
  /**
   * `true` if results are returned in the order of the items. Default: false, in order of
   * completion.
   */
  ordered?: boolean | undefined;
  /**
   * Maximum number of items that were taken from the source and whose results were not yet
   * returned. An integer of at least 1. It also limits the number of running items. If results are
   * ordered, one slow item delays at most this many others. Default: 1,000.
   */
  ahead?: number | undefined;
  /** Priority class (lane) of the calls, as in {@link Gate.run}. Default: `batch`. */
  lane?: Lane | undefined;
  /** Tenant of the calls, as in {@link Gate.run}. Default: inherited. */
  tenant?: string | undefined;
  /** Ends the map when it is aborted. The iterator then rejects with its reason. Default: none. */
  signal?: AbortSignal | undefined;
}

/**
 * The result of one item: the value that the function returned (`value`), or the error that it
 * threw (`error`; test with `"error" in result`).
 *
 * `index` is the position of the item in the source, from 0.
 */
export type MapResult<Item, Value> =
  | { readonly index: number; readonly item: Item; readonly value: Value; readonly error?: never }
  | { readonly index: number; readonly item: Item; readonly value?: never; readonly error: unknown };

/** Information about an item, passed to the function of {@link Gate.map}. */
export interface MapItem {
  /** Position of the item in the source, from 0. */
  readonly index: number;
  /**
   * Aborted when the loop over the results is left early. Pass it to work that does not use this
   * gate. Calls through this gate end by themselves.
   */
  readonly signal: AbortSignal;
}

/** The function of {@link Gate.map}, which is called with each item and may return a promise. */
export type MapFunction<Item, Value> = (item: Item, info: MapItem) => Value | PromiseLike<Value>;

/**
 * Returns the iterator of {@link Gate.map}. No item starts before the first result is requested.
 *
 * For the arguments and errors, see {@link Gate.map}.
 */
export function mapItems<Item, Value>(
  items: Iterable<Item> | AsyncIterable<Item>,
  run: MapFunction<Item, Value>,
  options: MapOptions = {},
): AsyncGenerator<MapResult<Item, Value>, void, undefined> {
  if (typeof run !== "function") throw new TypeError("map: the second argument must be a function");
  if (!isIterable(items)) {
    throw new TypeError("map: items must be an iterable or an async iterable");
  }
  const { ahead = 1_000, lane = "batch", tenant } = options;
  if (!Number.isSafeInteger(ahead) || ahead < 1) {
    throw new RangeError(`ahead: ${ahead} is not valid; give an integer of 1 or more`);
  }
  const window = new native.Window(Math.min(ahead, MAX_COUNT), currentContext());
  const context = window.itemContext(deriveContext({ lane, tenant }));
  return new MapRun(items, run, { ...options, ahead }, window, context).iterate();
}

/**
 * The state of one running map.
 *
 * The number of items whose results were not yet returned never exceeds `ahead`. Therefore, the
 * source is not read further if the consumer is slow or, with ordered results, if the next result
 * belongs to an item that has not ended.
 */
class MapRun<Item, Value> {
  readonly #items: Iterable<Item> | AsyncIterable<Item>;
  readonly #run: MapFunction<Item, Value>;
  readonly #options: MapOptions & { ahead: number };
  readonly #window: NativeWindow;
  readonly #context: NativeContext;
  readonly #outerSignal = currentSignal();
  readonly #running = new Set<AbortController>();
  /**
   * Results that were not yet returned to the consumer, by the index of their item. The map is in
   * order of completion.
   */
  readonly #results = new Map<number, MapResult<Item, Value>>();
  readonly #startable = new Notification();
  readonly #resultReady = new Notification();
  #started = 0;
  #returned = 0;
  /**
   * Port number of the native wait that `#watchSlots` started, or undefined if there is no such
   * wait.
   */
  #slotWatch: number | undefined;
  #sourceEnded = false;
  /** The error of the source, if it failed. It is thrown after all results. */
  #sourceError: { reason: unknown } | undefined;
  /**
   * The reason of the abort, if the caller's signal or that of an enclosing map was aborted.
   * Undefined if neither was.
   */
  #aborted: { reason: unknown } | undefined;
  #closed = false;

  constructor(
    items: Iterable<Item> | AsyncIterable<Item>,
    run: MapFunction<Item, Value>,
    options: MapOptions & { ahead: number },
    window: NativeWindow,
    context: NativeContext,
  ) {
    this.#items = items;
    this.#run = run;
    this.#options = options;
    this.#window = window;
    this.#context = context;
  }

  /** Returns the iterator over the results. Its `return` and `throw` also end a pending `next`. */
  iterate(): AsyncGenerator<MapResult<Item, Value>, void, undefined> {
    const results = this.#iterate();
    // The methods of a generator only take effect after a pending `next`.
    const [end, fail] = [results.return.bind(results), results.throw.bind(results)];
    return Object.assign(results, {
      return: (value: void | PromiseLike<void>) => {
        this.#leave();
        return end(value);
      },
      throw: (error: unknown) => {
        this.#leave();
        return fail(error);
      },
    });
  }

  async *#iterate(): AsyncGenerator<MapResult<Item, Value>, void, undefined> {
    // The caller's signal, and that of an enclosing map.
    const signals = [this.#options.signal, this.#outerSignal].filter((signal) => signal !== undefined);
    for (const signal of signals) signal.throwIfAborted();
    const abort = ({ target }: Event) => {
      this.#aborted = { reason: (target as AbortSignal).reason };
      // Now, because the consumer may not ask for another result.
      this.#close(this.#aborted.reason);
    };
    for (const signal of signals) signal.addEventListener("abort", abort, { once: true });
    let done = false;
    try {
      const source = iteratorOf(this.#items);
      void this.#feed(source);
      for (let result = await this.#next(); result !== undefined; result = await this.#next()) {
        this.#returned++;
        this.#startable.notify();
        yield result;
      }
      done = true;
      if (this.#sourceError !== undefined) throw this.#sourceError.reason;
    } finally {
      for (const signal of signals) signal.removeEventListener("abort", abort);
      if (!done) this.#leave();
      this.#stopWatchingSlots();
    }
  }

  async #next(): Promise<MapResult<Item, Value> | undefined> {
    for (;;) {
      if (this.#aborted !== undefined) throw this.#aborted.reason;
      if (this.#closed) return undefined;
      const index = this.#options.ordered === true ? this.#returned : this.#results.keys().next().value;
      const result = index === undefined ? undefined : this.#results.get(index);
      if (result !== undefined) {
        this.#results.delete(result.index);
        return result;
      }
      if (this.#sourceEnded && this.#running.size === 0) return undefined;
      await this.#resultReady.wait();
    }
  }

  async #feed(source: Source<Item>): Promise<void> {
    try {
      while (await this.#waitUntilStartable()) {
        const next = await source.next();
        if (next.done === true || this.#closed) break;
        this.#startItem(next.value);
      }
      // The loop was left early. `return` runs the `finally` blocks of a generator.
      if (this.#closed) await source.return?.();
    } catch (reason) {
      this.#sourceError = { reason };
    }
    this.#sourceEnded = true;
    this.#resultReady.notify();
  }

  /**
   * Waits until one more item may start. Then counts it as started, and resolves to `true`.
   *
   * Resolves to `false` if the loop over the results was left.
   */
  async #waitUntilStartable(): Promise<boolean> {
    while (!this.#closed) {
      if (this.#started - this.#returned < this.#options.ahead) {
        if (this.#window.begin()) return true;
        this.#watchSlots();
      }
      await this.#startable.wait();
    }
    return false;
  }

  /**
   * Starts a native wait that wakes the map when one more item may start because calls of the
   * running items got slots. It does not wait for the end of an item. Has no effect if such a wait
   * is pending.
   */
  #watchSlots(): void {
    if (this.#slotWatch !== undefined) return;
    const number = port.allocateNumber();
    this.#slotWatch = number;
    port.listen(number, {
      settle: () => {
        this.#slotWatch = undefined;
        this.#startable.notify();
      },
    });
    this.#window.ready(port.native, number);
    port.native.flush();
  }

  #stopWatchingSlots(): void {
    if (this.#slotWatch !== undefined) port.cancel(this.#slotWatch);
    this.#slotWatch = undefined;
  }

  #startItem(item: Item): void {
    const index = this.#started++;
    const controller = new AbortController();
    this.#running.add(controller);
    const { signal } = controller;
    const onItemDone = (result: MapResult<Item, Value>) => {
      this.#running.delete(controller);
      this.#window.end();
      if (!this.#closed) this.#results.set(index, result);
      this.#startable.notify();
      this.#resultReady.notify();
    };
    runInContext(nestedContext(this.#context), async () => this.#run(item, { index, signal }), signal).then(
      (value) => onItemDone({ index, item, value }),
      (error: unknown) => onItemDone({ index, item, error }),
    );
  }

  /** Ends the map because its consumer needs no more results. */
  #leave(): void {
    if (!this.#closed) this.#close(new DOMException("the map was left", "AbortError"));
  }

  #close(reason: unknown): void {
    this.#closed = true;
    for (const controller of this.#running) controller.abort(reason);
    this.#startable.notify();
    this.#resultReady.notify();
  }
}

/** The iterator over the items of a map. */
interface Source<Item> {
  next(): IteratorResult<Item, unknown> | Promise<IteratorResult<Item, unknown>>;
  return?(): unknown;
}

/** Returns `true` if `items` can be iterated. Strings and functions can be iterable, too. */
function isIterable(items: unknown): boolean {
  if (items === undefined || items === null) return false;
  const object: object = Object(items);
  return Symbol.asyncIterator in object || Symbol.iterator in object;
}

function iteratorOf<Item>(items: Iterable<Item> | AsyncIterable<Item>): Source<Item> {
  // The operator `in` accepts no strings.
  const object: Iterable<Item> | AsyncIterable<Item> = Object(items);
  return Symbol.asyncIterator in object ? object[Symbol.asyncIterator]() : object[Symbol.iterator]();
}

/**
 * Wakes one waiting caller. A notification without a waiting caller makes the next wait return at
 * once.
 */
class Notification {
  #isNotified = false;
  #wake: (() => void) | undefined;

  notify(): void {
    this.#isNotified = true;
    this.#wake?.();
  }

  async wait(): Promise<void> {
    if (!this.#isNotified) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    this.#isNotified = false;
    this.#wake = undefined;
  }
}
