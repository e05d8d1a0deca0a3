/**
 * Virtual time.
 *
 * @module
 */
import { argumentError } from "../errors.js";
import { type NativeClock, native } from "../native.js";
import { port } from "../native-port.js";
import { resetStartTimes } from "./fake-target.js";
import { VirtualTimers } from "./virtual-timers.js";

// What the platform has, whatever is put in its place meanwhile.
const { setImmediate, setTimeout } = globalThis;

/** As in `src/bridge/clock.rs`. */
const enum Step {
  Finished = 0,
  Over = 1,
  Idle = 2,
}

/** Turns of the event loop in which whatever was woken gets to its next wait. */
const EVENT_LOOP_TURNS = 4;
/** Steps in which nothing could come, each 50 ms of real time at most, before a wait gives up: real I/O may still have something to say. */
const MAX_IDLE_STEPS = 40;

/** Options of {@link VirtualClock}. */
export interface ClockOptions {
  /** Where the jitter of backoffs comes from: a whole number from 0. Default: 0. */
  seed?: number;
  /**
   * Whether `setTimeout` and `setInterval` (the globals, of `node:timers`, and `setTimeout` of `node:timers/promises`) are on virtual time too.
   * Default: true. With false they are real, or whatever mocks the test has: then tick those beside `advance`.
   */
  timers?: boolean;
}

/**
 * Time that passes only in {@link VirtualClock.until} and {@link VirtualClock.advance}, while everything waits. In place for the whole process
 * from `start` to `stop`.
 *
 * Meanwhile every gate starts anew from its configuration and runs on this time; afterwards it is what it was before. A Retry-After of ninety
 * seconds takes milliseconds, in the same order each run.
 *
 * Its limits: time stands still while JavaScript computes. What waits for real I/O (files, sockets, worker threads) is unknown to it: time may pass
 * meanwhile. `Date`, `performance` and `AbortSignal.timeout` stay real.
 */
export class VirtualClock {
  readonly #native: NativeClock;
  readonly #timers: VirtualTimers | undefined;

  constructor(options: ClockOptions = {}) {
    const { seed = 0, timers = true } = options;
    this.#native = new native.Clock(seed);
    this.#timers = timers ? new VirtualTimers(() => this.time()) : undefined;
  }

  /**
   * Puts it in place of real time.
   *
   * @throws An error where virtual time is in place already.
   */
  start(): this {
    this.#native.enter();
    this.#timers?.install();
    resetStartTimes();
    return this;
  }

  /** Puts real time back. Idempotent. Timers that are still set never come. */
  stop(): void {
    this.#timers?.uninstall();
    this.#native.leave();
  }

  /** Seconds since it was made. */
  time(): number {
    return this.#native.time();
  }

  /**
   * Lets time pass until the promise is settled, and returns what it came to.
   *
   * @throws An error (a rejection) where nothing is left that could settle it, or it is not settled within `most` seconds of virtual time
   * (default: a day).
   */
  async until<T>(promise: Promise<T>, most = 86_400): Promise<T> {
    let settled = false;
    const settle = () => {
      settled = true;
    };
    promise.then(settle, settle);
    const end = this.time() + most;
    let idle = 0;
    let over = false;
    for (;;) {
      await runEventLoop();
      if (settled) return promise;
      if (over || this.time() >= end) throw new Error(`not settled within ${most} s of virtual time`);
      const step = this.#step(end);
      over = step === Step.Over;
      idle = step === Step.Idle ? idle + 1 : 0;
      if (idle > MAX_IDLE_STEPS) throw new Error("nothing is left that could settle this promise");
      if (step === Step.Idle) await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  /**
   * Lets so many seconds pass; what is due meanwhile happens.
   *
   * @throws `RangeError` for a number that is negative or NaN, and if the clock would be more than
   * ten years from its start.
   */
  async advance(seconds: number): Promise<void> {
    if (!(seconds >= 0)) {
      throw new RangeError(`seconds: ${seconds} is not valid; give a finite number of seconds, 0 or more`);
    }
    const end = this.time() + seconds;
    let over = false;
    for (await runEventLoop(); !over && this.time() < end; await runEventLoop())
      over = this.#step(end, true) === Step.Over;
    while (this.#timers?.runNext()) await runEventLoop();
  }

  #nativeStep(limit: number | undefined): Step {
    try {
      return this.#native.step(port.native, limit);
    } catch (error) {
      throw argumentError(error);
    }
  }

  /** To the next thing that happens. Until `end` at most; that long only where `waits`, or something is set for then. */
  #step(end: number, waits = false): Step {
    const due = this.#timers?.next();
    const limit = due === undefined ? (waits ? end : undefined) : Math.min(due, end);
    const step = this.#nativeStep(limit);
    if (step === Step.Finished) port.drain();
    // Otherwise `Step.Over` means that `end` is reached, even if `time()` is less than it: the clock
    // counts whole nanoseconds.
    else if (step === Step.Over && this.#timers?.runNext()) return Step.Finished;
    return step;
  }
}

async function runEventLoop(): Promise<void> {
  for (let turn = 0; turn < EVENT_LOOP_TURNS; turn++) await new Promise((resolve) => setImmediate(resolve));
}
