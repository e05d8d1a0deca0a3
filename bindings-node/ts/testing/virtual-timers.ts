/**
 * `setTimeout` and related functions on virtual time. A test replaces the platform's functions by
 * them for a while.
 *
 * @module
 */
import { AsyncResource } from "node:async_hooks";
import { syncBuiltinESMExports } from "node:module";
import timers from "node:timers";
import promises from "node:timers/promises";
import { promisify } from "node:util";

type Callback = (...args: unknown[]) => void;

/**
 * A virtual timer with the methods of Node's timers. `due` is the virtual time, in seconds, at
 * which it runs next, and `seconds` is its delay or interval.
 */
class Timer {
  due: number;
  readonly order: number;
  readonly run: () => void;
  readonly seconds: number;
  readonly repeats: boolean;
  isCleared = false;
  readonly #timers: VirtualTimers;

  constructor(timers: VirtualTimers, order: number, run: () => void, seconds: number, repeats: boolean) {
    this.#timers = timers;
    this.order = order;
    this.run = run;
    this.seconds = seconds;
    this.repeats = repeats;
    this.due = timers.now() + seconds;
  }

  refresh(): this {
    this.due = this.#timers.now() + this.seconds;
    this.#timers.refresh(this);
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  hasRef(): boolean {
    return true;
  }

  close(): this {
    this.#timers.clear(this);
    return this;
  }

  [Symbol.toPrimitive](): number {
    return this.order;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** The global functions that virtual timers replace. */
const PATCHED = ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] as const;

/**
 * The virtual timers that are set. `install` replaces the platform's timer functions by virtual
 * ones, and `uninstall` restores them.
 */
export class VirtualTimers {
  readonly now: () => number;
  readonly #set = new Map<number, Timer>();
  #order = 0;
  #restore: (() => void) | undefined;

  /** Creates an empty set of timers. `now` returns the virtual time in seconds. */
  constructor(now: () => number) {
    this.now = now;
  }

  /**
   * Returns the virtual time, in seconds, at which the next timer is due, or undefined if no timer
   * is set.
   */
  next(): number | undefined {
    let due: number | undefined;
    for (const timer of this.#set.values()) due = due === undefined ? timer.due : Math.min(due, timer.due);
    return due;
  }

  /**
   * Runs the first timer that is due by now, and returns `true`. Returns `false` if none is due.
   */
  runNext(): boolean {
    const now = this.now();
    const due = [...this.#set.values()].filter((timer) => timer.due <= now + 1e-6);
    const [first] = due.sort((a, b) => a.due - b.due || a.order - b.order);
    if (first === undefined) return false;
    if (first.repeats) first.due += Math.max(first.seconds, 0.001);
    else this.#set.delete(first.order);
    first.run();
    return true;
  }

  /** Sets a timer, which runs in the asynchronous context of the caller. */
  add(run: () => void, seconds: number, repeats = false): Timer {
    this.#order += 1;
    const timer = new Timer(this, this.#order, AsyncResource.bind(run), seconds, repeats);
    this.#set.set(timer.order, timer);
    return timer;
  }

  /** Sets a timer again that may have run. Has no effect if the timer was cleared. */
  refresh(timer: Timer): void {
    if (!timer.isCleared) this.#set.set(timer.order, timer);
  }

  /** Clears a timer. Returns `false` if the timer, or the number of a timer, is not a virtual one. */
  clear(timer: unknown): boolean {
    const isNumber = typeof timer === "number" || typeof timer === "string";
    const found = isNumber ? this.#set.get(Number(timer)) : timer;
    if (!(found instanceof Timer)) return false;
    found.isCleared = true;
    this.#set.delete(found.order);
    return true;
  }

  /** Replaces the timer functions of the platform by virtual ones. */
  install(): void {
    const set =
      (repeats: boolean) =>
      (callback: Callback, milliseconds = 0, ...args: unknown[]) =>
        this.add(() => callback(...args), toSeconds(milliseconds), repeats);
    // Timers that were set before are those of the platform.
    const clear = (platform: typeof clearTimeout) => (timer: unknown) => {
      if (!this.clear(timer)) platform(timer as NodeJS.Timeout);
    };
    const replacements = {
      setTimeout: Object.assign(set(false), { [promisify.custom]: this.#sleep }),
      clearTimeout: clear(globalThis.clearTimeout),
      setInterval: set(true),
      clearInterval: clear(globalThis.clearInterval),
    };
    const global = globalThis as unknown as Record<string, unknown>;
    const module = timers as unknown as Record<string, unknown>;
    const before = PATCHED.map((name) => [name, global[name], module[name]] as const);
    const { setTimeout: sleep } = promises;
    for (const name of PATCHED) global[name] = module[name] = replacements[name];
    promises.setTimeout = this.#sleep as typeof promises.setTimeout;
    syncBuiltinESMExports();
    this.#restore = () => {
      for (const [name, ofGlobal, ofModule] of before) {
        global[name] = ofGlobal;
        module[name] = ofModule;
      }
      promises.setTimeout = sleep;
      syncBuiltinESMExports();
    };
  }

  /** Restores the timer functions of the platform. Virtual timers that are still set never fire. */
  uninstall(): void {
    this.#restore?.();
    this.#restore = undefined;
    this.#set.clear();
  }

  readonly #sleep = <T>(milliseconds?: number, value?: T, options: { signal?: AbortSignal } = {}): Promise<T> =>
    new Promise((resolve, reject) => {
      const { signal } = options;
      const abort = () => {
        this.clear(timer);
        reject(new DOMException("The operation was aborted", { name: "AbortError", cause: signal?.reason }));
      };
      const timer = this.add(() => {
        signal?.removeEventListener("abort", abort);
        resolve(value as T);
      }, toSeconds(milliseconds));
      if (signal?.aborted === true) abort();
      else signal?.addEventListener("abort", abort, { once: true });
    });
}

/**
 * Converts a delay from milliseconds to seconds. An invalid delay becomes one millisecond, as on
 * the platform.
 */
function toSeconds(milliseconds: number | undefined): number {
  const given = Number(milliseconds);
  return given >= 1 && given <= 2 ** 31 - 1 ? given / 1000 : 0.001;
}
