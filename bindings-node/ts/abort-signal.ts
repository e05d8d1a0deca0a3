/**
 * Signals: one listener each, however many calls share one, and none once its calls are over.
 *
 * Listeners, and not napi's own conversion of a signal, which overwrites the caller's `onabort`.
 *
 * @module
 */

/** Hears of an abort. */
export interface Abortable {
  abort(reason: unknown): void;
}

class SignalListener {
  readonly #signal: AbortSignal;
  readonly #calls = new Set<Abortable>();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    // Once: Node keeps composite and timed signals for ever that have a listener left.
    signal.addEventListener("abort", this, { once: true });
  }

  add(call: Abortable): void {
    this.#calls.add(call);
  }

  remove(call: Abortable): void {
    if (this.#calls.delete(call) && this.#calls.size === 0) {
      listeners.delete(this.#signal);
      this.#signal.removeEventListener("abort", this);
    }
  }

  handleEvent(): void {
    listeners.delete(this.#signal);
    for (const call of this.#calls) call.abort(this.#signal.reason);
    this.#calls.clear();
  }
}

const listeners = new WeakMap<AbortSignal, SignalListener>();

/** Tells the call when the signal is aborted, until `unwatch`. The signal is not aborted yet. */
export function watch(signal: AbortSignal, call: Abortable): void {
  let watch = listeners.get(signal);
  if (watch === undefined) {
    watch = new SignalListener(signal);
    listeners.set(signal, watch);
  }
  watch.add(call);
}

/** Aborted when either is. Of two, one that lives no longer than a call: of each that depends on it a signal keeps a trace. */
export function anySignal(a: AbortSignal | undefined, b: AbortSignal | undefined): AbortSignal | undefined {
  if (a === undefined || b === undefined || a === b) return a ?? b;
  // Node 20.3 has it.
  return typeof AbortSignal.any === "function" ? AbortSignal.any([a, b]) : a;
}

export function unwatch(signal: AbortSignal, call: Abortable): void {
  listeners.get(signal)?.remove(call);
}

/**
 * Tells an object for as long as somebody else keeps it: a signal that outlives its calls must not keep their bodies, whose
 * collection is what ends an exchange that everybody forgot.
 */
export function watchWeakly(signal: AbortSignal, call: Abortable): () => void {
  const leash = new WeakAbortable(call);
  watch(signal, leash);
  const remove = () => unwatch(signal, leash);
  collected.register(call, remove, leash);
  return () => {
    collected.unregister(leash);
    remove();
  };
}

class WeakAbortable implements Abortable {
  readonly #call: WeakRef<Abortable>;

  constructor(call: Abortable) {
    this.#call = new WeakRef(call);
  }

  abort(reason: unknown): void {
    this.#call.deref()?.abort(reason);
  }
}

const collected = new FinalizationRegistry<() => void>((remove) => remove());
