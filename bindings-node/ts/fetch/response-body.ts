/**
 * The body of a response as a byte stream. Each read requests one chunk, and nothing is read ahead.
 *
 * @module
 */
import { type ReadableByteStreamController, ReadableStream, type UnderlyingByteSource } from "node:stream/web";
import { type Abortable, watchWeakly } from "../abort-signal.js";
import { CompletionKind, panicError, port, type Waiter } from "../completions.js";
import { bodyError } from "../errors.js";
import { type Failure, type NativeReply, native } from "../native.js";

/**
 * Reads the chunks of a native response. When this object is collected as garbage, the exchange
 * ends.
 */
export class ReplyBody implements Waiter, Abortable {
  readonly readsBody = true;
  readonly #reply: NativeReply;
  readonly #number = port.allocateNumber();
  readonly #thrown: unknown[] | undefined;
  #unwatch: (() => void) | undefined;
  #pending: PendingPull | undefined;
  #aborted: { reason: unknown } | undefined;
  /**
   * Called with the reason when the signal is aborted. A stream sets this function, so that it
   * fails at once, even if nobody reads it.
   */
  onAbort: ((reason: unknown) => void) | undefined;

  /**
   * Takes ownership of `reply`.
   *
   * @param reply - The native response.
   * @param signal - The caller's signal, or undefined if there is none.
   * @param thrown - The values that the caller's own fetch threw, by index; undefined if the native
   * transport makes the exchange.
   */
  constructor(reply: NativeReply, signal: AbortSignal | undefined, thrown: unknown[] | undefined) {
    this.#reply = reply;
    this.#thrown = thrown;
    if (signal !== undefined) this.#unwatch = watchWeakly(signal, this);
  }

  /**
   * Returns the next chunk, or null at the end. Rejects if the body ended early or was aborted.
   *
   * Only one read at a time is allowed.
   */
  next(): Uint8Array | null | Promise<Uint8Array | null> {
    if (this.#aborted !== undefined) return Promise.reject(this.#aborted.reason);
    const pulled = this.#reply.pull(port.native, this.#number);
    if (pulled instanceof Uint8Array) return pulled;
    if (pulled === null) {
      this.#stopWatching();
      return null;
    }
    if (pulled !== undefined) return Promise.reject(this.#failed(pulled));
    return new Promise((resolve, reject) => {
      this.#pending = { resolve, reject };
      port.wait(this.#number, this);
    });
  }

  settle(kind: CompletionKind, value: unknown): void {
    const pending = this.#pending;
    this.#pending = undefined;
    if (kind === CompletionKind.Chunk) {
      pending?.resolve(value as Uint8Array);
    } else if (kind === CompletionKind.End) {
      this.#stopWatching();
      pending?.resolve(null);
    } else {
      pending?.reject(kind === CompletionKind.Failure ? this.#failed(value as Failure) : panicError());
    }
  }

  /** Ends the exchange now, releases the slot, and rejects a pending read. */
  close(): void {
    this.#end(() => bodyError(native.Reply.closed()));
  }

  abort(reason: unknown): void {
    this.#aborted = { reason };
    this.#end(() => reason);
    this.onAbort?.(reason);
  }

  #end(reason: () => unknown): void {
    this.#stopWatching();
    // `cancel` of a stream does not reach a pending read, so the read is rejected here.
    this.#reply.close();
    const pending = this.#pending;
    if (pending === undefined) return;
    this.#pending = undefined;
    port.forget(this.#number);
    pending.reject(reason());
  }

  #failed(failure: Failure): unknown {
    this.#stopWatching();
    const thrown = failure.thrown === undefined ? undefined : this.#thrown?.[failure.thrown];
    // An AbortError would look like an abort by the caller.
    if (thrown instanceof Error && thrown.name !== "AbortError") return thrown;
    return bodyError(failure, thrown);
  }

  #stopWatching(): void {
    this.#unwatch?.();
    this.#unwatch = undefined;
  }
}

/** The functions that settle the promise of a read whose chunk has not arrived. */
interface PendingPull {
  resolve: (chunk: Uint8Array | null) => void;
  reject: (error: unknown) => void;
}

/** A source of body chunks, such as a native response or a decoder. */
export interface ChunkSource {
  /** Returns the next chunk, or null at the end. Only one read at a time is allowed. */
  next(): Uint8Array | null | Promise<Uint8Array | null>;
  /** Ends the source, and the exchange behind it, now. */
  close(): void;
  /**
   * Called with the reason when the caller's signal is aborted. The stream that reads the source
   * sets it.
   */
  onAbort: ((reason: unknown) => void) | undefined;
}

/** Returns a byte stream of the chunks, which reads a chunk only when one is requested. */
export function toReadableStream(chunks: ChunkSource): ReadableStream<Uint8Array> {
  return new ReadableStream(new ByteSource(chunks));
}

class ByteSource implements UnderlyingByteSource {
  readonly type = "bytes";
  readonly #chunks: ChunkSource;

  constructor(chunks: ChunkSource) {
    this.#chunks = chunks;
  }

  start(controller: ReadableByteStreamController): void {
    this.#chunks.onAbort = (reason) => controller.error(reason);
  }

  pull(controller: ReadableByteStreamController): void | Promise<void> {
    const next = this.#chunks.next();
    if (next instanceof Promise) return next.then((chunk) => deliver(controller, chunk));
    deliver(controller, next);
  }

  cancel(): void {
    this.#chunks.onAbort = undefined;
    this.#chunks.close();
  }
}

function deliver(controller: ReadableByteStreamController, chunk: Uint8Array | null): void {
  if (chunk !== null) {
    controller.enqueue(chunk);
    return;
  }
  controller.close();
  // A reader with its own buffer waits until the buffer is returned.
  (controller.byobRequest as ReadableStreamBYOBRequest | null)?.respond(0);
}
