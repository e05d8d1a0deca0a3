/**
 * One small family of errors. What went wrong is in the properties; the text is for people.
 *
 * @module
 */
import type { Why } from "./explain.js";
import type { Failure } from "./native.js";

/** Why admission said no. */
export type Reason =
  | "no_slot"
  | "queue_full"
  | "wait_budget"
  | "deadline"
  | "cool_down"
  | "outage"
  | "draining"
  | "deadlock"
  /** A rate of the provider, or of the tenant, is used up. */
  | "no_budget"
  /** No waiting would help: its prompt is longer than what may ever go. */
  | "too_large"
  /** It would wait beyond its deadline, its wait budget or its objective. */
  | "predicted_wait"
  /** It made room for a more urgent call. */
  | "shed";

/** What the gate itself hands up. A provider's own error response is not one of these. */
export class TidegateError extends Error {
  /** The stable name of what went wrong (`refused`, `deadline`, `connect`, ...). */
  readonly kind: string;
  /** Why admission said no; undefined unless `kind` is `refused`. */
  readonly reason: Reason | undefined;
  /** The target or tool it happened at, where one is known. */
  readonly target: string | undefined;
  /** The HTTP status that says the same. */
  readonly status: number;
  /** Seconds until it is worth coming back; undefined where nobody knows. */
  readonly retryAfter: number | undefined;
  /** How many calls stood ahead of this one; undefined where it did not queue. */
  readonly queuePosition: number | undefined;
  /** Whether the same call may succeed later, unchanged. */
  readonly retryable: boolean;
  /** The number of the call that it ended, as in `gate.calls()`; undefined where there was none. */
  readonly call: number | undefined;
  /** What stood in a refused call's way; undefined where nothing is known of that. */
  readonly why: Why | undefined;

  /** @internal */
  constructor(failure: Failure) {
    super(failure.message);
    this.kind = failure.kind;
    this.reason = failure.reason as Reason | undefined;
    this.target = failure.target;
    this.status = failure.status;
    this.retryAfter = failure.retryAfter;
    this.queuePosition = failure.queuePosition;
    this.retryable = failure.retryable;
    this.call = failure.call;
    this.why = failure.why;
  }
}

/** The configuration is malformed or impossible; the message names the key and the nearest valid one. */
export class ConfigError extends TidegateError {}

/** A tool of that name is not configured. */
export class UnknownNameError extends TidegateError {}

/** Admission said no: see `reason`, `queuePosition` and `retryAfter`. */
export class Refused extends TidegateError {}

/** The whole call's deadline passed after it was admitted. */
export class Deadline extends TidegateError {}

/** No first token, or silence between chunks, for longer than allowed; or no connection in time. */
export class Timeout extends TidegateError {}

/** No connection could be made, or it broke. */
export class ConnectionFailed extends TidegateError {}

/** The response ended without the provider's terminal event, or shorter than it said. */
export class Truncated extends ConnectionFailed {}

/** The request cannot be sent as it is: a malformed URL, an unsupported scheme. */
export class RequestError extends TidegateError {}

const CLASSES: Record<string, new (failure: Failure) => TidegateError> = {
  config: ConfigError,
  unknown: UnknownNameError,
  refused: Refused,
  deadline: Deadline,
  first_token_timeout: Timeout,
  idle_timeout: Timeout,
  connect_timeout: Timeout,
  reader_stalled: ConnectionFailed,
  connect: ConnectionFailed,
  transport: ConnectionFailed,
  truncated: Truncated,
  request: RequestError,
};

// On the prototypes: `name` is what people and logs see, and what some libraries compare.
for (const type of [TidegateError, ...Object.values(CLASSES)]) {
  Object.defineProperty(type.prototype, "name", { value: type.name, configurable: true, writable: true });
}

/** The error of that kind. */
export function errorFrom(failure: Failure): TidegateError {
  return new (CLASSES[failure.kind] ?? TidegateError)(failure);
}

/**
 * What a fetch rejects with for it. Stock fetch says `TypeError: fetch failed`; libraries above compare that text whole, and repeat what
 * they find, so ours goes on to say what failed.
 */
export function fetchError(failure: Failure): TypeError {
  const cause = errorFrom(failure);
  return new TypeError(`fetch failed: ${cause.message}`, { cause });
}

/** What a body that broke errors with. Never an `AbortError`: SDKs take that for the caller's own, and end as if nothing were missing. */
export function bodyError(failure: Failure, thrown?: unknown): TypeError {
  const cause = errorFrom(failure);
  if (thrown !== undefined) cause.cause = thrown;
  return new TypeError(`terminated: ${cause.message}`, { cause });
}

/** What the native side throws for an argument, as JavaScript says it. */
export function argumentError(error: unknown): Error {
  const { code, message } = error as NodeJS.ErrnoException;
  return code === "InvalidArg" ? new RangeError(message) : new TypeError(message);
}
