/**
 * The JavaScript side of the port to the native module. Each call or wait in progress has a port
 * number. The native module delivers its completion (result) under this number.
 *
 * @module
 */
import { type NativeExchange, type NativeGate, type NativePort, native } from "./native.js";

/**
 * What a completion reports. The numbers equal those of `CompletionKind` in
 * `src/bridge/completions.rs`.
 */
export const enum CompletionKind {
  Answer = 0,
  Failure = 1,
  Chunk = 2,
  End = 3,
  Ready = 4,
  Permit = 5,
  Count = 6,
  Panicked = 7,
  Exchange = 8,
  CancelExchange = 9,
  Slot = 10,
}

/** The object that waits for the completion of a port number and receives it by `settle`. */
export interface Waiter {
  settle(kind: CompletionKind, a: unknown, b: unknown, c: unknown, d: unknown): void;
  /**
   * Called before `settle`, each time that the caller's own fetch has to make an exchange. Only
   * waiters of calls have this method.
   */
  onExchange?(exchange: NativeExchange, changes: string, url: string | null): void;
  /** `true` if the waiter is a read of a response body. */
  readonly readsBody?: true;
}

// The platform's timer, because virtual timers that a test installs end with the test.
const { setTimeout } = globalThis;

const ROW_LENGTH = 6;
/**
 * Milliseconds after which the garbage collector is run to find lost response bodies, if nothing
 * completes except reads of streams. The time doubles with each run while nothing else completes.
 */
const LOST_BODY_CHECK_MS = 1000;
/** Port numbers are below this number, and start again at 0 after it. */
const MAX_NUMBER = 2 ** 30;
/**
 * Number of submitted calls at which they are handed to the worker threads immediately. Fewer calls
 * are handed over at the end of the current microtask, because each hand-over wakes a thread.
 */
const FLUSH_THRESHOLD = 16;

class Port {
  readonly native: NativePort = new native.Port(() => this.drain());
  readonly #waiting = new Map<number, Waiter>();
  /** The waiters that do not keep the process alive, by port number. */
  readonly #listening = new Map<number, Waiter>();
  readonly #cancelExchange = new Map<number, () => void>();
  readonly #gates = new Set<WeakRef<NativeGate>>();
  #next = 0;
  #keepsAlive = false;
  #watching = false;
  /** The number of completions so far, without the traffic of streams (`isStreamTraffic`). */
  #settled = 0;
  readonly #flush = () => this.native.flush();

  /**
   * Registers a gate of this thread. The check for lost response bodies queries each registered
   * gate for the number of its queued calls.
   */
  addGate(gate: NativeGate): void {
    this.#gates.add(new WeakRef(gate));
  }

  /** Returns a port number that no waiter uses. */
  allocateNumber(): number {
    do {
      this.#next = (this.#next + 1) % MAX_NUMBER;
    } while (this.#waiting.has(this.#next) || this.#listening.has(this.#next));
    return this.#next;
  }

  /**
   * Registers the waiter of a port number. The process stays alive until the completion of this
   * number has arrived.
   */
  wait(number: number, waiter: Waiter): void {
    this.#waiting.set(number, waiter);
    if (!this.#keepsAlive) {
      this.#keepsAlive = true;
      this.native.ref();
    }
    if (!this.#watching) this.#watchForLostBodies(LOST_BODY_CHECK_MS);
  }

  /** Registers the waiter of a port number without keeping the process alive. */
  listen(number: number, waiter: Waiter): void {
    this.#listening.set(number, waiter);
  }

  /** Removes the waiter of a port number. The completion of the number is then ignored. */
  forget(number: number): void {
    this.#waiting.delete(number);
    this.#listening.delete(number);
    this.#releaseIfIdle();
  }

  /** Cancels the native work that was submitted under this number, and removes its waiter. */
  cancel(number: number): void {
    this.native.cancel(number);
    this.forget(number);
  }

  /**
   * Registers the function that cancels an exchange of the caller's own fetch. `id` is the id of
   * the exchange.
   */
  registerExchange(id: number, cancel: () => void): void {
    this.#cancelExchange.set(id, cancel);
  }

  /** Removes the function that cancels an exchange, because the exchange has ended. */
  unregisterExchange(id: number): void {
    this.#cancelExchange.delete(id);
  }

  /**
   * Hands the submitted calls to the worker threads: now if there are at least `FLUSH_THRESHOLD`,
   * otherwise at the end of the current microtask. `count` is the number of these calls.
   */
  flushSoon(count: number): void {
    if (count === 1) queueMicrotask(this.#flush);
    else if (count >= FLUSH_THRESHOLD) this.native.flush();
  }

  /**
   * Takes all completions from the native module, and passes each one to the waiter of its number.
   */
  drain(): void {
    const batch = this.native.take();
    for (let at = 0; at < batch.length; at += ROW_LENGTH) {
      const number = batch[at] as number;
      const kind = batch[at + 1] as CompletionKind;
      if (!isStreamTraffic(kind)) this.#settled++;
      if (kind === CompletionKind.CancelExchange) {
        this.#cancelExchange.get(batch[at + 2] as number)?.();
        continue;
      }
      const waiter = this.#waiting.get(number) ?? this.#listening.get(number);
      if (kind === CompletionKind.Exchange) {
        waiter?.onExchange?.(
          batch[at + 2] as NativeExchange,
          batch[at + 3] as string,
          (batch[at + 4] as string | null) ?? null,
        );
        continue;
      }
      this.#waiting.delete(number);
      this.#listening.delete(number);
      waiter?.settle(kind, batch[at + 2], batch[at + 3], batch[at + 4], batch[at + 5]);
    }
    this.#releaseIfIdle();
  }

  /**
   * Checks after `patience` milliseconds whether response bodies may be lost, and runs the garbage
   * collector if so: nothing has completed since except reads of streams, calls wait for slots, and
   * some open body has no pending read. Repeats the check until nothing waits. The time doubles
   * with each run of the collector while nothing else completes.
   *
   * Response bodies that nobody reads occupy their slots until they are collected. Waiting creates
   * no garbage, so they would never be collected otherwise.
   */
  #watchForLostBodies(patience: number): void {
    this.#watching = true;
    const before = this.#settled;
    setTimeout(() => {
      this.#watching = false;
      if (this.#waiting.size === 0) return;
      if (this.#settled !== before) return this.#watchForLostBodies(LOST_BODY_CHECK_MS);
      let reads = 0;
      for (const waiter of this.#waiting.values()) if (waiter.readsBody === true) reads++;
      const mayBeLost = this.native.openBodies() > reads && this.#queued();
      if (mayBeLost) this.native.collectGarbage();
      this.#watchForLostBodies(mayBeLost ? patience * 2 : patience);
    }, patience).unref();
  }

  /** Returns `true` if a call waits for a slot in one of the gates of this thread. */
  #queued(): boolean {
    for (const known of this.#gates) {
      const gate = known.deref();
      if (gate === undefined) this.#gates.delete(known);
      else if (gate.queued() > 0) return true;
    }
    return false;
  }

  #releaseIfIdle(): void {
    if (this.#keepsAlive && this.#waiting.size === 0) {
      this.#keepsAlive = false;
      this.native.unref();
    }
  }
}

/** Returns `true` for completions of body streams, which also arrive while no call is answered. */
function isStreamTraffic(kind: CompletionKind): boolean {
  return kind === CompletionKind.Chunk || kind === CompletionKind.End || kind === CompletionKind.Ready;
}

/** The port of this thread. Each worker thread loads its own copy of this module. */
export const port = new Port();

/** Returns the error for a call whose native work panicked. */
export function panicError(): Error {
  return new Error("a fault inside tidegate ended this call; please report it");
}
