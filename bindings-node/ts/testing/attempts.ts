/**
 * Records of the calls and attempts that a fake target received.
 *
 * @module
 */

/**
 * One attempt of a call that a fake target received. Times are in seconds since the target was
 * installed, or since virtual time was installed if that was later.
 */
export interface Attempt {
  /** Number of the call, from 0, in order of arrival. */
  call: number;
  /** Number of the attempt within its call, from 1. */
  attempt: number;
  /** HTTP method of the request. */
  method: string;
  /** URL of the request without its query, because the query may contain a key. */
  url: string;
  /** Path of the request's URL. */
  path: string;
  /** Model that the request names, or null if it names none. */
  model: string | null;
  /** Whether the request asks for a streamed answer. */
  stream: boolean;
  /** Request headers in order, with names in lower case. Values of credentials are `***`. */
  headers: [string, string][];
  /** Request body as text. */
  body: string;
  /**
   * What the target answered with. `capacity` and `rate` mean status 429, because that limit of the
   * script was reached. `unmatched` means that the script had no answer for the request.
   */
  answer: "reply" | "status" | "overloaded" | "refuse" | "capacity" | "rate" | "unmatched";
  /** HTTP status of the answer, or null if no response was sent. */
  status: number | null;
  /**
   * How the attempt ended: `answered` (the answer was sent to its end) or `cancelled` (by the
   * caller). `in_flight` if it has not ended yet.
   */
  outcome: "answered" | "cancelled" | "in_flight";
  /**
   * Seconds from the installation (or the start of virtual time, if that was later) to the arrival
   * of the request.
   */
  arrived: number;
  /**
   * Seconds from the installation (or the start of virtual time, if that was later) to the end of
   * the attempt, or null while it is in flight.
   */
  ended: number | null;
}

/** One call that a fake target received, with its attempts. */
export interface Call {
  /** Number of the call, from 0, in order of arrival. */
  number: number;
  /** The attempts of the call in order of arrival. */
  attempts: Attempt[];
}

/**
 * Returns the calls of these attempts, each with its attempts. The calls are in the order of their
 * first attempts.
 */
export function groupByCall(attempts: readonly Attempt[]): Call[] {
  const calls = new Map<number, Call>();
  for (const attempt of attempts) {
    const call = calls.get(attempt.call) ?? { number: attempt.call, attempts: [] };
    call.attempts.push(attempt);
    calls.set(attempt.call, call);
  }
  return [...calls.values()];
}

/** Returns one line with the call, the request, the answer and the times of an attempt. */
export function describeAttempt(attempt: Attempt): string {
  const answer = attempt.status === null ? attempt.answer : `${attempt.answer} ${attempt.status}`;
  const ended = attempt.ended === null ? "" : `, ended at ${attempt.ended.toFixed(3)} s`;
  const what = `${attempt.method} ${attempt.path} (${attempt.model})`;
  return `call ${attempt.call}, attempt ${attempt.attempt}: ${what} at ${attempt.arrived.toFixed(3)} s: ${answer}, ${attempt.outcome}${ended}`;
}
