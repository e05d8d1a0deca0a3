/**
 * What a fake target saw. Times are seconds since it was installed, or since virtual time began.
 *
 * @module
 */

/** One try of a call, as it arrived. */
export interface Attempt {
  /** Which call it belongs to: 0 for the first that arrived. */
  call: number;
  /** Which of that call's attempts it is: 1 for the first. */
  attempt: number;
  method: string;
  /** The URL without its query, which may hold a key. */
  url: string;
  path: string;
  model: string | null;
  /** Whether it asks for a stream. */
  stream: boolean;
  /** In order, names in lower case; the values of credentials are `***`. */
  headers: [string, string][];
  /** The body, as text. */
  body: string;
  /** What it was answered with; `capacity` and `rate` are a 429, for there were too many. */
  answer: "reply" | "status" | "overloaded" | "refuse" | "capacity" | "rate" | "unmatched";
  /** The status, where it came to one. */
  status: number | null;
  /** `answered`: as scripted, to the end. `cancelled`: its caller gave it up. */
  outcome: "answered" | "cancelled" | "in_flight";
  arrived: number;
  /** Null while it is in flight. */
  ended: number | null;
}

/** What was asked for once: one attempt or more, in the order of their arrival. */
export interface Call {
  number: number;
  attempts: Attempt[];
}

export function groupByCall(attempts: readonly Attempt[]): Call[] {
  const calls = new Map<number, Call>();
  for (const attempt of attempts) {
    const call = calls.get(attempt.call) ?? { number: attempt.call, attempts: [] };
    call.attempts.push(attempt);
    calls.set(attempt.call, call);
  }
  return [...calls.values()];
}

/** In one line. */
export function describeAttempt(of: Attempt): string {
  const said = of.status === null ? of.answer : `${of.answer} ${of.status}`;
  const ended = of.ended === null ? "" : `, ended at ${of.ended.toFixed(3)} s`;
  const what = `${of.method} ${of.path} (${of.model})`;
  return `call ${of.call}, attempt ${of.attempt}: ${what} at ${of.arrived.toFixed(3)} s: ${said}, ${of.outcome}${ended}`;
}
