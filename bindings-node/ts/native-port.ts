/**
 * The JavaScript side of the native port: pending work by number, and its completions.
 *
 * @module
 */
import { type NativeGate, type NativeKept, type NativePort, native } from "./native.js";

/** The kind of a completion. The values equal those of `src/bridge/queue.rs`. */
export const enum CompletionKind {
  Answer = 0,
  Failure = 1,
  Chunk = 2,
  End = 3,
  Room = 4,
  Permit = 5,
  Count = 6,
  Lost = 7,
  Begin = 8,
  Cancel = 9,
  Slot = 10,
}

/** Receives the completion of a number. */
export interface Waiter {
  settle(kind: CompletionKind, a: unknown, b: unknown, c: unknown, d: unknown): void;
  /** Called for an exchange that the caller's own fetch makes, before the completion. */
  begin?(exchange: NativeKept, changes: string, url: string | null): void;
}

const ROW_LENGTH = 6;
/**
 * Milliseconds without a completion after which lost bodies are collected. The time doubles while
 * nothing completes.
 */
const LOST_BODY_CHECK_MS = 1000;
/** Numbers are small integers and are reused after this many. */
const MAX_NUMBER = 2 ** 30;
/**
 * Calls that are handed over at once. Fewer calls wait for the end of the current microtask,
 * because each hand-over wakes a thread.
 */
const FLUSH_THRESHOLD = 16;

class Port {
  readonly native: NativePort = new native.Port(() => this.drain());
  readonly #waiting = new Map<number, Waiter>();
  /** Waiters that do not keep the process alive. */
  readonly #listening = new Map<number, Waiter>();
  readonly #cancelExchange = new Map<number, () => void>();
  readonly #gates = new Set<WeakRef<NativeGate>>();
  #next = 0;
  #keepsAlive = false;
  #watching = false;
  #settled = 0;
  readonly #flush = () => this.native.flush();

  /** Adds a gate of this thread, whose calls may wait for slots. */
  addGate(gate: NativeGate): void {
    this.#gates.add(new WeakRef(gate));
  }

  /** Returns a number that is not in use. */
  allocateNumber(): number {
    do {
      this.#next = (this.#next + 1) % MAX_NUMBER;
    } while (this.#waiting.has(this.#next) || this.#listening.has(this.#next));
    return this.#next;
  }

  /** Registers the waiter of a number and keeps the process alive for it. */
  wait(number: number, waiter: Waiter): void {
    this.#waiting.set(number, waiter);
    if (!this.#keepsAlive) {
      this.#keepsAlive = true;
      this.native.hold();
    }
    if (!this.#watching) this.#watchForLostBodies(LOST_BODY_CHECK_MS);
  }

  /** Registers the waiter of a number, as `wait` does, without keeping the process alive. */
  listen(number: number, waiter: Waiter): void {
    this.#listening.set(number, waiter);
  }

  /** Removes the waiter of a number. */
  forget(number: number): void {
    this.#waiting.delete(number);
    this.#listening.delete(number);
    this.#releaseIfIdle();
  }

  /** Cancels the work of a number. */
  cancel(number: number): void {
    this.native.cancel(number);
    this.forget(number);
  }

  /** Registers how to cancel an exchange of the caller's own fetch. */
  registerExchange(id: number, cancel: () => void): void {
    this.#cancelExchange.set(id, cancel);
  }

  /** Removes an exchange that has ended. */
  unregisterExchange(id: number): void {
    this.#cancelExchange.delete(id);
  }

  /** Hands over the pending calls, now or at the end of the microtask. `count` is their number. */
  flushSoon(count: number): void {
    if (count === 1) queueMicrotask(this.#flush);
    else if (count >= FLUSH_THRESHOLD) this.native.flush();
  }

  /** Dispatches all completions. */
  drain(): void {
    this.#settled++;
    const batch = this.native.take();
    for (let at = 0; at < batch.length; at += ROW_LENGTH) {
      const number = batch[at] as number;
      const kind = batch[at + 1] as CompletionKind;
      if (kind === CompletionKind.Cancel) {
        this.#cancelExchange.get(batch[at + 2] as number)?.();
        continue;
      }
      const waiter = this.#waiting.get(number) ?? this.#listening.get(number);
      if (kind === CompletionKind.Begin) {
        waiter?.begin?.(batch[at + 2] as NativeKept, batch[at + 3] as string, (batch[at + 4] as string | null) ?? null);
        continue;
      }
      this.#waiting.delete(number);
      this.#listening.delete(number);
      waiter?.settle(kind, batch[at + 2], batch[at + 3], batch[at + 4], batch[at + 5]);
    }
    this.#releaseIfIdle();
  }

  /**
   * Collects lost bodies if calls wait and nothing completes.
   *
   * If calls wait for slots while unread bodies are open, the bodies may be lost and hold the
   * slots. Waiting creates no garbage, so the bodies would never be collected otherwise.
   */
  #watchForLostBodies(patience: number): void {
    this.#watching = true;
    const before = this.#settled;
    setTimeout(() => {
      this.#watching = false;
      if (this.#waiting.size === 0) return;
      if (this.#settled !== before) return this.#watchForLostBodies(LOST_BODY_CHECK_MS);
      let calls = 0;
      for (const waiter of this.#waiting.values()) if (waiter.begin !== undefined) calls++;
      const pulls = this.#waiting.size - calls;
      if (calls > 0 && this.native.openBodies() > pulls && this.#queued()) this.native.collect();
      this.#watchForLostBodies(patience * 2);
    }, patience).unref();
  }

  /** Returns `true` if a call of this thread's gates waits for a slot. */
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
      this.native.release();
    }
  }
}

/** The port of this thread. Each thread loads its own modules. */
export const port = new Port();

/** Returns the error of work that panicked. */
export function panicError(): Error {
  return new Error("a fault inside tidegate ended this call; please report it");
}
