/**
 * This thread's side of the bridge: what is under way, by number, and what happens when the native side wakes us.
 *
 * @module
 */
import { type NativeGate, type NativeKept, type NativePort, native } from "./native.js";

/** What a row is; as in `src/bridge/queue.rs`. */
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

/** Waits for a row. */
export interface Waiter {
  settle(kind: CompletionKind, a: unknown, b: unknown, c: unknown, d: unknown): void;
  /** Told of an exchange that the caller's own fetch is to make; what it waits for comes later. */
  begin?(exchange: NativeKept, changes: string, url: string | null): void;
}

const ROW_LENGTH = 6;
/** Milliseconds without anything finished, after which lost bodies are looked for; doubled each time, as long as that changes nothing. */
const LOST_BODY_CHECK_MS = 1000;
/** Numbers are small integers, and come round again long after their first use. */
const MAX_NUMBER = 2 ** 30;
/** Fewer calls wait until those that are being made now are made: each hand-over wakes a sleeping thread. */
const FLUSH_THRESHOLD = 16;

class Port {
  readonly native: NativePort = new native.Port(() => this.drain());
  readonly #waiting = new Map<number, Waiter>();
  /** Waiters that keep no process alive: by themselves they come to nothing. */
  readonly #listening = new Map<number, Waiter>();
  readonly #cancelExchange = new Map<number, () => void>();
  readonly #gates = new Set<WeakRef<NativeGate>>();
  #next = 0;
  #keepsAlive = false;
  #watching = false;
  #settled = 0;
  readonly #flush = () => this.native.flush();

  /** A gate of this thread, to be asked whether its calls wait for slots. */
  addGate(gate: NativeGate): void {
    this.#gates.add(new WeakRef(gate));
  }

  /** A number that nobody uses. */
  allocateNumber(): number {
    do {
      this.#next = (this.#next + 1) % MAX_NUMBER;
    } while (this.#waiting.has(this.#next) || this.#listening.has(this.#next));
    return this.#next;
  }

  /** From now on the row of that number goes to the waiter, and the process stays alive for it. */
  wait(number: number, waiter: Waiter): void {
    this.#waiting.set(number, waiter);
    if (!this.#keepsAlive) {
      this.#keepsAlive = true;
      this.native.hold();
    }
    if (!this.#watching) this.#watchForLostBodies(LOST_BODY_CHECK_MS);
  }

  /** As `wait`, and the process may end meanwhile. */
  listen(number: number, waiter: Waiter): void {
    this.#listening.set(number, waiter);
  }

  /** Nobody waits for that number any more. */
  forget(number: number): void {
    this.#waiting.delete(number);
    this.#listening.delete(number);
    this.#releaseIfIdle();
  }

  /** Gives up the work of that number. */
  cancel(number: number): void {
    this.native.cancel(number);
    this.forget(number);
  }

  /** An exchange is being made by the caller's own fetch; how to end it. */
  registerExchange(id: number, cancel: () => void): void {
    this.#cancelExchange.set(id, cancel);
  }

  /** It is over. */
  unregisterExchange(id: number): void {
    this.#cancelExchange.delete(id);
  }

  /** So many calls wait to be handed over. */
  flushSoon(count: number): void {
    if (count === 1) queueMicrotask(this.#flush);
    else if (count >= FLUSH_THRESHOLD) this.native.flush();
  }

  /** Hands out everything that is finished. */
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
   * Where calls wait for slots, bodies are open that nobody reads, and nothing moves, the bodies may be lost, and it may be their slots that the
   * calls wait for: waiting makes no garbage, so nobody would ever collect them.
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

  /** Whether a call of this thread's gates waits for a slot. */
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

/** One for each thread: modules are loaded anew in each. */
export const port = new Port();

/** What came of work that panicked. */
export function panicError(): Error {
  return new Error("a fault inside tidegate ended this call; please report it");
}
