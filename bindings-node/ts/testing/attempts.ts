/**
 * Records of the calls and attempts that a fake target received.
 *
 * @module
 */

/**
 * One attempt of a call. Times are in seconds since the installation, or since the start of virtual
 * time.
 */
export interface Attempt {
  /** Number of the call, from 0, in order of arrival. */
  call: number;
  /** Number of the attempt within its call, from 1. */
  attempt: number;
  /** HTTP method. */
  method: string;
  /** URL without its query, which may contain a key. */
  url: string;
  /** Path of the URL. */
  path: string;
  /** Model that the request names, or null. */
  model: string | null;
  /** Whether the request asks for a stream. */
  stream: boolean;
  /** Headers in order, with names in lower case. Values of credentials are `***`. */
  headers: [string, string][];
  /** Body as text. */
  body: string;
  /**
   * What the target answered with. `capacity` and `rate` are status 429, because of these limits of
   * the target.
   */
  answer: "reply" | "status" | "overloaded" | "refuse" | "capacity" | "rate" | "unmatched";
  /** HTTP status, or null if there was none. */
  status: number | null;
  /** `answered` (to the end of the script), `cancelled` (by the caller) or `in_flight`. */
  outcome: "answered" | "cancelled" | "in_flight";
  /** Time of arrival. */
  arrived: number;
  /** Time of the end, or null while the attempt is in flight. */
  ended: number | null;
}

/** One call with its attempts. */
export interface Call {
  /** Number of the call, from 0, in order of arrival. */
  number: number;
  /** The attempts in order of arrival. */
  attempts: Attempt[];
}

/** Returns the calls to which the attempts belong. */
export function groupByCall(attempts: readonly Attempt[]): Call[] {
  const calls = new Map<number, Call>();
  for (const attempt of attempts) {
    const call = calls.get(attempt.call) ?? { number: attempt.call, attempts: [] };
    call.attempts.push(attempt);
    calls.set(attempt.call, call);
  }
  return [...calls.values()];
}

/** Returns the attempt as one line of text. */
export function describeAttempt(of: Attempt): string {
  const said = of.status === null ? of.answer : `${of.answer} ${of.status}`;
  const ended = of.ended === null ? "" : `, ended at ${of.ended.toFixed(3)} s`;
  const what = `${of.method} ${of.path} (${of.model})`;
  return `call ${of.call}, attempt ${of.attempt}: ${what} at ${of.arrived.toFixed(3)} s: ${said}, ${of.outcome}${ended}`;
}
