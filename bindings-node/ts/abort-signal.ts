/**
 * Lets abort signals end calls. Each signal gets one listener, however many calls share it.
 *
 * napi's own handling of signals is not used, because it overwrites the caller's `onabort`.
 *
 * @module
 */

/** A call or wait that an abort signal ends. */
export interface Abortable {
  /**
   * Ends the call with the reason of the signal. Called at most once, when the signal is aborted.
   */
  abort(reason: unknown): void;
}

/** The single listener of one signal, and the calls that the signal ends. */
class SignalListener {
  readonly #signal: AbortSignal;
  readonly #calls = new Set<Abortable>();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    // Node never collects composite and timed signals that still have a listener.
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

/** The listener of each signal for which calls are registered. */
const listeners = new WeakMap<AbortSignal, SignalListener>();

/**
 * Registers a call, so that `call.abort` is called when the signal is aborted. `unwatch` ends the
 * registration. The signal must not be aborted yet.
 */
export function watch(signal: AbortSignal, call: Abortable): void {
  let watch = listeners.get(signal);
  if (watch === undefined) {
    watch = new SignalListener(signal);
    listeners.set(signal, watch);
  }
  watch.add(call);
}

/**
 * Returns a signal that is aborted when `a` or `b` is, or undefined if both are undefined.
 *
 * If both are given, one of them must not outlive the call, because a long-lived signal keeps a
 * reference to each signal that is derived from it. Before Node 20.3, signals cannot be combined:
 * if both are given, the result is `a`.
 */
export function anySignal(a: AbortSignal | undefined, b: AbortSignal | undefined): AbortSignal | undefined {
  if (a === undefined || b === undefined || a === b) return a ?? b;
  // Node before 20.3 does not have `AbortSignal.any`.
  return typeof AbortSignal.any === "function" ? AbortSignal.any([a, b]) : a;
}

/** For each signal of another library, the platform's signal that follows it. */
const followers = new WeakMap<AbortSignal, AbortSignal>();

/**
 * Returns the signal itself if the platform has made it. Otherwise returns a platform signal that is
 * aborted with it: the same one for each call, so that a signal gets one listener.
 *
 * A signal of another library may be aborted without a reason. The reason is then an `AbortError`,
 * as in the platform's fetch.
 */
export function toPlatformSignal(signal: AbortSignal): AbortSignal {
  if (signal instanceof AbortSignal) return signal;
  const foreign = signal as AbortSignal;
  const known = followers.get(foreign);
  if (known !== undefined) return known;
  const control = new AbortController();
  followers.set(foreign, control.signal);
  const follow = () => control.abort(foreign.reason);
  if (foreign.aborted) follow();
  else foreign.addEventListener("abort", follow, { once: true });
  return control.signal;
}

/** Stops watching the signal for the call. Has no effect if the call does not watch it. */
export function unwatch(signal: AbortSignal, call: Abortable): void {
  listeners.get(signal)?.remove(call);
}

/**
 * Calls `call.abort` when the signal is aborted, without keeping `call` alive.
 *
 * An exchange whose body nobody reads ends when the body is collected, so a signal that outlives
 * its calls must not keep the bodies alive.
 *
 * @returns A function that stops watching.
 */
export function watchWeakly(signal: AbortSignal, call: Abortable): () => void {
  const weak = new WeakAbortable(call);
  watch(signal, weak);
  const remove = () => unwatch(signal, weak);
  collected.register(call, remove, weak);
  return () => {
    collected.unregister(weak);
    remove();
  };
}

/** Forwards an abort to an object, unless the object was collected. */
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
