/**
 * `gate.map`: a function over items, few or without end, as many at once as the gate has room for.
 *
 * @module
 */
import { currentContext, currentSignal, deriveContext, nestedContext, runInContext } from "./context.js";
import { type NativeContext, type NativeWindow, native } from "./native.js";
import { port } from "./native-port.js";
import type { Lane } from "./types.js";

/** Options of {@link Gate.map}. */
export interface MapOptions {
  /** Hands results out in the order of their items. Default: in the order in which they end. */
  ordered?: boolean | undefined;
  /**
   * The most items that were taken and whose results were not yet handed out; so also the most that run at once. At least 1. One slow item,
   * where results are ordered, holds back so many others. Default: 1,000.
   */
  ahead?: number | undefined;
  /** As in `gate.run`. Default: `batch`. */
  lane?: Lane | undefined;
  /** As in `gate.run`. */
  tenant?: string | undefined;
  /** Ends it all when it is aborted; the iterator then rejects with its reason. */
  signal?: AbortSignal | undefined;
}

/** What became of one item: a value, or (`"error" in result`) what the function threw. `index` is the item's place in the source, from 0. */
export type MapResult<Item, Value> =
  | { readonly index: number; readonly item: Item; readonly value: Value; readonly error?: never }
  | { readonly index: number; readonly item: Item; readonly value?: never; readonly error: unknown };

/** What the function is told beside its item. */
export interface MapItem {
  /** The item's place in the source, from 0. */
  readonly index: number;
  /** Aborted where the loop is left: for what does not go through this gate. What does ends by itself. */
  readonly signal: AbortSignal;
}

/** The function over the items. */
export type MapFunction<Item, Value> = (item: Item, info: MapItem) => Value | PromiseLike<Value>;

/** Begins nothing before the first result is asked for. */
export function mapItems<Item, Value>(
  items: Iterable<Item> | AsyncIterable<Item>,
  run: MapFunction<Item, Value>,
  options: MapOptions = {},
): AsyncGenerator<MapResult<Item, Value>, void, undefined> {
  if (typeof run !== "function") throw new TypeError("map: give a function, after the items");
  if (typeof items !== "object" || items === null || !(Symbol.asyncIterator in items || Symbol.iterator in items)) {
    throw new TypeError("map: items are an iterable, or an async iterable");
  }
  const { ahead = 1_000, lane = "batch", tenant } = options;
  if (!Number.isSafeInteger(ahead) || ahead < 1) {
    throw new RangeError(`ahead: ${ahead} is no number of items; give a whole one from 1`);
  }
  const window = new native.Window(Math.min(ahead, 2 ** 32 - 1), currentContext());
  const context = window.inside(deriveContext({ lane, tenant }));
  return new MapRun(items, run, { ...options, ahead }, window, context).results();
}

/** A map under way. At most `ahead` items are between their taking and the handing out of their results: who is slow stops the source, and not the memory. */
class MapRun<Item, Value> {
  readonly #items: Iterable<Item> | AsyncIterable<Item>;
  readonly #run: MapFunction<Item, Value>;
  readonly #options: MapOptions & { ahead: number };
  readonly #window: NativeWindow;
  readonly #context: NativeContext;
  readonly #outerSignal = currentSignal();
  readonly #running = new Set<AbortController>();
  /** By index; in the order of their ends. */
  readonly #results = new Map<number, MapResult<Item, Value>>();
  readonly #startable = new Notification();
  readonly #resultReady = new Notification();
  #started = 0;
  #returned = 0;
  /** The number under which news of slots that come free is waited for. */
  #slotWatch: number | undefined;
  /** The source has no more, or broke: the latter is told when all else was. */
  #sourceEnded = false;
  #sourceError: { reason: unknown } | undefined;
  /** An abort from outside. */
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

  async *results(): AsyncGenerator<MapResult<Item, Value>, void, undefined> {
    // The caller's own, and that of the map around it.
    const signals = [this.#options.signal, this.#outerSignal].filter((signal) => signal !== undefined);
    for (const signal of signals) signal.throwIfAborted();
    const abort = ({ target }: Event) => {
      this.#aborted = { reason: (target as AbortSignal).reason };
      this.#resultReady.notify();
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
      if (!done) this.#close(this.#aborted?.reason ?? new DOMException("the map was left", "AbortError"));
      this.#stopWatchingSlots();
    }
  }

  async #next(): Promise<MapResult<Item, Value> | undefined> {
    for (;;) {
      if (this.#aborted !== undefined) throw this.#aborted.reason;
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
      // It was left in the middle: a generator's `finally` runs.
      if (this.#closed) await source.return?.();
    } catch (reason) {
      this.#sourceError = { reason };
    }
    this.#sourceEnded = true;
    this.#resultReady.notify();
  }

  /** As soon as one may; false: it is over. */
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

  /** Hears of slots that come free although nothing ends. */
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
    this.#window.news(port.native, number);
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

  #close(reason: unknown): void {
    this.#closed = true;
    for (const controller of this.#running) controller.abort(reason);
    this.#startable.notify();
  }
}

/** Where items come from. */
interface Source<Item> {
  next(): IteratorResult<Item, unknown> | Promise<IteratorResult<Item, unknown>>;
  return?(): unknown;
}

function iteratorOf<Item>(items: Iterable<Item> | AsyncIterable<Item>): Source<Item> {
  return Symbol.asyncIterator in items ? items[Symbol.asyncIterator]() : items[Symbol.iterator]();
}

/** Wakes the one who waits; what rang while nobody did wakes the next at once. */
class Notification {
  #rang = false;
  #wake: (() => void) | undefined;

  notify(): void {
    this.#rang = true;
    this.#wake?.();
  }

  async wait(): Promise<void> {
    if (!this.#rang) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    this.#rang = false;
    this.#wake = undefined;
  }
}
