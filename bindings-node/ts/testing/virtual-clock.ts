/**
 * A clock of virtual time, which lets tests pass hours of waiting in milliseconds.
 *
 * @module
 */

import { port } from "../completions.js";
import { argumentError } from "../errors.js";
import { type NativeClock, native } from "../native.js";
import { resetStartTimes } from "./fake-target.js";
import { VirtualTimers } from "./virtual-timers.js";

// The platform's timers, which the clock needs while its own timers replace them.
const { setImmediate, setTimeout } = globalThis;

/**
 * How a step of the native clock ended: with a result (`Finished`), at its end time (`Over`), or
 * because nothing is left to wait for (`Idle`). The values equal those of `Step` in
 * `src/bridge/virtual_clock.rs`.
 */
const enum Step {
  Finished = 0,
  Over = 1,
  Idle = 2,
}

/**
 * Number of turns of the event loop in which code can react to a result. After these turns, all
 * code is assumed to wait again.
 */
const EVENT_LOOP_TURNS = 4;
/**
 * Number of steps without progress after which a wait fails. A step takes at most 50 ms of real
 * time, in which real I/O may still make progress.
 */
const MAX_IDLE_STEPS = 40;

/** Options of {@link VirtualClock}. */
export interface ClockOptions {
  /** Seed of the random jitter of backoffs: an integer of 0 or more. Default: 0. */
  seed?: number;
  /**
   * Whether `setTimeout` and `setInterval` (the globals, those of `node:timers`, and `setTimeout`
   * of `node:timers/promises`) are on virtual time. Default: true. With false, they are real, or
   * those of another mock, which must then be advanced together with the clock.
   */
  timers?: boolean;
}

/**
 * Virtual time, which passes only in {@link VirtualClock.until} and {@link VirtualClock.advance},
 * while everything waits. It applies to the whole process from `start` to `stop`.
 *
 * Meanwhile every gate starts again from its configuration and runs on virtual time. Afterwards
 * each gate has its earlier state. A Retry-After of 90 s takes milliseconds, and events have the
 * same order in each run.
 *
 * Limits: time does not pass while JavaScript computes. The clock does not know of real I/O (files,
 * sockets, worker threads), so time may pass during it. `Date`, `performance` and
 * `AbortSignal.timeout` remain real.
 *
 * @example
 * ```ts
 * const clock = new VirtualClock({ seed: 1 }).start();
 * await clock.until(new Promise((resolve) => setTimeout(resolve, 3_600_000)));
 * clock.stop();
 * ```
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
   * Installs virtual time for the whole process.
   *
   * @returns The clock.
   * @throws An error if virtual time is installed already.
   */
  start(): this {
    this.#native.enter();
    this.#timers?.install();
    resetStartTimes();
    return this;
  }

  /**
   * Restores real time, and the earlier state of each gate. Idempotent. Timers that are still set
   * never fire.
   */
  stop(): void {
    this.#timers?.uninstall();
    this.#native.leave();
  }

  /** Returns the virtual seconds since the clock was created. */
  time(): number {
    return this.#native.time();
  }

  /**
   * Lets time pass until a promise is settled, and returns its value.
   *
   * @param promise - The promise.
   * @param maxSeconds - Maximum seconds of virtual time. Default: 86,400 (a day).
   * @returns The value of the promise.
   * @throws An error (as a rejection) if nothing can settle the promise any more, or if it is not
   * settled in time.
   */
  async until<T>(promise: Promise<T>, maxSeconds = 86_400): Promise<T> {
    let settled = false;
    const settle = () => {
      settled = true;
    };
    promise.then(settle, settle);
    const end = this.time() + maxSeconds;
    let idle = 0;
    let over = false;
    for (;;) {
      await runEventLoop();
      if (settled) return promise;
      if (over || this.time() >= end) throw new Error(`not settled within ${maxSeconds} s of virtual time`);
      const step = this.#step(end);
      over = step === Step.Over;
      idle = step === Step.Idle ? idle + 1 : 0;
      if (idle > MAX_IDLE_STEPS) throw new Error("nothing is left that could settle this promise");
      if (step === Step.Idle) await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  /**
   * Lets virtual time pass. Calls and timers that are due by then run.
   *
   * @param seconds - Seconds of virtual time, 0 or more.
   * @throws `RangeError` (as a rejection) for a number that is negative or NaN, and if the clock
   * would be more than ten years from its start.
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

  /**
   * Lets time pass until the next event, and runs the JavaScript timer that is due then. If `waits`
   * is true or a JavaScript timer is set, time passes at most to `end`, in seconds since the clock
   * was created. Otherwise, time passes only to the next native timers, and the step has no end.
   *
   * @returns `Finished` after an event, `Over` at `end`, and `Idle` if there was nothing to wait
   * for.
   */
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

/** Runs turns of the event loop until all code that was woken waits again. */
async function runEventLoop(): Promise<void> {
  for (let turn = 0; turn < EVENT_LOOP_TURNS; turn++) await new Promise((resolve) => setImmediate(resolve));
}
