/**
 * The errors of the package. Programs read the properties; the message is for people.
 *
 * @module
 */
import type { Why } from "./explain.js";
import type { Failure } from "./native.js";

/**
 * Why admission rejected a call.
 *
 * - `no_slot`: no slot is free, and the target does not queue.
 * - `queue_full`: the queue is full.
 * - `wait_budget`: the call was queued for as long as its `wait` setting allows.
 * - `client_timeout`: the call was queued for as long as the timeout of the client allows.
 * - `deadline`: the deadline passed while the call was queued.
 * - `cool_down`: the provider asked to wait (Retry-After) for longer than the call can wait, or the
 *   target does not queue.
 * - `outage`: the target is down, and the next test call is due after the deadline of the call or, at
 *   a target with a `fallback`, after its `wait`, or the target does not queue.
 * - `draining`: {@link Gate.drain} was called.
 * - `deadlock`: waiting for the tool would never end, because its holders wait for tools that this
 *   caller holds.
 * - `no_budget`: a rate of the provider or of the tenant, or the KV memory, is used up or reserved,
 *   and the target does not queue.
 * - `too_large`: the prompt exceeds `max_prompt`, or the call exceeds what a rate or the KV memory
 *   can ever admit.
 * - `predicted_wait`: the expected wait exceeds the deadline, the wait limit or the objective.
 * - `shed`: the call was removed from the queue in favour of a more urgent one.
 */
export type Reason =
  | "no_slot"
  | "queue_full"
  | "wait_budget"
  | "client_timeout"
  | "deadline"
  | "cool_down"
  | "outage"
  | "draining"
  | "deadlock"
  | "no_budget"
  | "too_large"
  | "predicted_wait"
  | "shed";

/**
 * Base class of the errors that the gate raises. An error response of a provider is not an
 * instance: the SDK or the fetch returns it unchanged.
 *
 * @example
 * ```ts
 * try {
 *   await gate.tool("db", query);
 * } catch (error) {
 *   if (error instanceof Refused) console.error(error.reason, error.retryAfter);
 * }
 * ```
 */
export class TidegateError extends Error {
  /** Stable name of the failure: `refused`, `deadline`, `connect` and others. */
  readonly kind: string;
  /**
   * A code of the platform's fetch for the same kind of failure of the network: `ECONNREFUSED`
   * (refused, or reset while connecting), `UND_ERR_CONNECT_TIMEOUT`, `UND_ERR_HEADERS_TIMEOUT`,
   * `UND_ERR_BODY_TIMEOUT` or `UND_ERR_SOCKET`. Undefined for every other failure.
   */
  readonly code: string | undefined;
  /** Why the call was rejected; undefined unless `kind` is `refused`. */
  readonly reason: Reason | undefined;
  /** Name of the target or tool; undefined if it is not known. */
  readonly target: string | undefined;
  /** HTTP status that corresponds to the failure, 400 to 599. */
  readonly status: number;
  /** Seconds after which a retry may succeed; undefined if that is not known. */
  readonly retryAfter: number | undefined;
  /**
   * Number of calls that were ahead in the queue of the same tenant when the call was rejected,
   * counted up to 1,000 if the call had waited; undefined if the number is not known.
   */
  readonly queuePosition: number | undefined;
  /** `true` if the same call may succeed later without a change. */
  readonly retryable: boolean;
  /** Number of the call, as in {@link Gate.calls}; undefined if the error belongs to no call. */
  readonly call: number | undefined;
  /** The rule that blocked a rejected call; undefined if it is not known. */
  readonly why: Why | undefined;

  /**
   * Creates the error of a failure that the native module reports.
   *
   * @internal
   */
  constructor(failure: Failure) {
    super(failure.message);
    this.kind = failure.kind;
    this.code = failure.connectRefused === true ? "ECONNREFUSED" : CODES[failure.kind];
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

/**
 * Thrown if the configuration has an unknown key, an invalid value or an impossible combination.
 *
 * The message names each wrong key and the nearest valid one.
 */
export class ConfigError extends TidegateError {}

/** Thrown if no tool or target with the given name is configured. */
export class UnknownNameError extends TidegateError {}

/**
 * Thrown if the gate rejects a call instead of sending it.
 *
 * `reason` says why, `queuePosition` is the number of calls of the same tenant that were ahead in
 * the queue, and `retryAfter` is the number of seconds after which a retry may succeed.
 */
export class Refused extends TidegateError {}

/** Thrown if the deadline of a call passes after the call was admitted. */
export class Deadline extends TidegateError {}

/** Thrown if connecting, the first token or the next chunk takes longer than its timeout allows. */
export class Timeout extends TidegateError {}

/** Thrown if the connection to the upstream cannot be opened, or breaks. */
export class ConnectionFailed extends TidegateError {}

/** Thrown if a response ends before the provider's final event, or before its declared length. */
export class Truncated extends ConnectionFailed {}

/** Thrown if the request itself cannot be sent, for example because its URL is malformed. */
export class RequestError extends TidegateError {}

/** Codes of the platform's fetch by the kind of the failure. */
const CODES: Record<string, string> = {
  first_token_timeout: "UND_ERR_HEADERS_TIMEOUT",
  idle_timeout: "UND_ERR_BODY_TIMEOUT",
  connect_timeout: "UND_ERR_CONNECT_TIMEOUT",
  transport: "UND_ERR_SOCKET",
  truncated: "UND_ERR_SOCKET",
};

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

// Logs print `name`, and some libraries compare it.
for (const type of [TidegateError, ...Object.values(CLASSES)]) {
  Object.defineProperty(type.prototype, "name", { value: type.name, configurable: true, writable: true });
}

/**
 * Returns the error object for a failure of the native module. `failure.kind` determines its class.
 */
export function errorFrom(failure: Failure): TidegateError {
  return new (CLASSES[failure.kind] ?? TidegateError)(failure);
}

/** The message of the platform's fetch for any failure. */
export const FETCH_FAILED = "fetch failed";

/**
 * Returns the `TypeError` with which `gate.fetch` rejects. Its class and message are those of the
 * platform's fetch, because programs compare them. Its cause is the {@link TidegateError}.
 */
export function fetchError(failure: Failure): TypeError {
  return new TypeError(FETCH_FAILED, { cause: errorFrom(failure) });
}

/**
 * Returns the `TypeError` with which `gate.fetch` rejects a request that it cannot send. Its cause is
 * an error that says why.
 */
export function invalidRequest(why: string): TypeError {
  return new TypeError(FETCH_FAILED, { cause: new Error(why) });
}

/**
 * Returns the `TypeError` for a response body that failed or was closed, with the message of the
 * platform's fetch. Its cause is the {@link TidegateError} of `failure`. If `thrown` is given, it is
 * the cause of that error.
 *
 * The error is never an `AbortError`, because SDKs take that for the caller's own abort and end the
 * stream as if it were complete.
 */
export function bodyError(failure: Failure, thrown?: unknown): TypeError {
  const cause = errorFrom(failure);
  if (thrown !== undefined) cause.cause = thrown;
  return new TypeError("terminated", { cause });
}

/**
 * Converts an exception of the native module into the error for the caller: `RangeError` for an
 * invalid value, otherwise `TypeError`.
 */
export function argumentError(error: unknown): Error {
  const { code, message } = error as NodeJS.ErrnoException;
  return code === "InvalidArg" ? new RangeError(message) : new TypeError(message);
}
