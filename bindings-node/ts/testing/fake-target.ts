/**
 * The fake target.
 *
 * @module
 */
import { argumentError } from "../errors.js";
import { type NativeFakeTarget, native } from "../native.js";
import { type Answer, ok } from "./answers.js";
import { type Attempt, type Call, describeAttempt, groupByCall } from "./attempts.js";

/** How requests are answered. */
export interface Script {
  /** Given in turn, to whichever attempt comes next, each once or as often as its `times` says. */
  answers?: readonly Answer[];
  /** Given once these are used up. With null, what then comes fails as unmatched. Default: `ok()`. */
  otherwise?: Answer | null;
  /** The most attempts at once; one more is answered 429, and uses up no answer. Default: any number. */
  capacity?: number;
  /** The most attempts a minute; one more is answered 429, saying when to come back. Default: any number. */
  rate?: number;
  /** Seconds, the Retry-After of what `capacity` turns away. Default: none. */
  retryAfter?: number;
}

/** Which requests a route takes: what is not set matches anything; `*` is any run of characters. */
export interface Match {
  /** The URL's host. */
  host?: string;
  /** The URL's path. */
  path?: string;
  /** The model that the request names. */
  model?: string;
  /** Text that the request's body contains, as it is. */
  contains?: string;
}

const installed = new Set<NativeFakeTarget>();

/**
 * Answers from a script in place of the network, and remembers what it saw.
 *
 * Its answers have the shapes of the API that the request speaks (OpenAI's chat completions, completions, Responses and embeddings, Anthropic's
 * messages, Gemini's generateContent), as the official SDKs parse them. What it does not know is answered as chat completions are, unless a route
 * says otherwise.
 */
export class FakeTarget {
  readonly #native: NativeFakeTarget;
  readonly #routes: object[] = [];
  #defaultRoute: object;

  /** @throws `RangeError` for a time that is negative or longer than a year. */
  constructor(script: Script = {}) {
    this.#defaultRoute = routeScript(script);
    this.#native = withArgumentErrors(() => new native.FakeTarget(this.#script()));
  }

  /** Answers so from now on what no route takes. Every route begins anew. */
  script(script: Script): this {
    this.#defaultRoute = routeScript(script);
    withArgumentErrors(() => this.#native.follow(this.#script()));
    return this;
  }

  /**
   * Answers these requests by a script of their own. The first route that takes a request answers it. Every route begins anew; a capacity or a
   * rate of one route is apart from the others'.
   */
  route(match: Match, script: Script = {}): this {
    this.#routes.push({ ...match, ...routeScript(script) });
    withArgumentErrors(() => this.#native.follow(this.#script()));
    return this;
  }

  /**
   * Puts it in place of the network for every gate of the process, those that exist and those that are made meanwhile.
   *
   * Gates start anew from their configuration, and are what they were once it is uninstalled: what one test does to a gate that a module holds,
   * no other test sees. It is process-wide: tests of one file that run at once would share it. What does not go through a gate (a client that
   * was never wrapped, a gate whose mode is `off`) is not held back.
   */
  install(): this {
    this.#native.install();
    installed.add(this.#native);
    return this;
  }

  /** The network is back. Idempotent. */
  uninstall(): void {
    this.#native.uninstall();
    installed.delete(this.#native);
  }

  /**
   * Runs the function with the target installed.
   *
   * @throws An error (a rejection), at the end, where a request came that nothing in the script takes; such a request itself fails at once.
   */
  async during<T>(run: () => T | Promise<T>): Promise<T> {
    this.install();
    let result: T;
    try {
      result = await run();
    } finally {
      this.uninstall();
    }
    this.assertAllMatched();
    return result;
  }

  /** Every attempt so far, in the order of arrival. */
  get attempts(): Attempt[] {
    return JSON.parse(this.#native.attempts());
  }

  /** Every call so far, with its attempts, in the order of their first arrival. */
  get calls(): Call[] {
    return groupByCall(this.attempts);
  }

  /** The attempts that their caller gave up before they were answered to the end. */
  get cancelled(): Attempt[] {
    return this.attempts.filter((attempt) => attempt.outcome === "cancelled");
  }

  /** How many attempts are in flight now. */
  get inFlight(): number {
    return this.#native.inFlight;
  }

  /** The most attempts that were in flight at once, those turned away included. */
  get maxInFlight(): number {
    return this.#native.maxInFlight;
  }

  /** The requests that nothing in the script takes, and why. */
  get unmatched(): string[] {
    return this.#native.unmatched;
  }

  /** A line for each attempt: two runs of one test on virtual time have equal traces. */
  trace(): string[] {
    return this.attempts.map(describeAttempt);
  }

  /** @throws An error where an attempt has neither been answered to its end nor been given up: a stream that nobody cancelled. */
  assertNoCallInFlight(): void {
    throwIfAny(
      "still in flight",
      this.attempts.filter(({ outcome }) => outcome === "in_flight"),
    );
  }

  /** @throws An error where a request came that nothing in the script takes. */
  assertAllMatched(): void {
    throwIfAny("the fake target has no answer for", this.unmatched);
  }

  #script(): string {
    return JSON.stringify({ routes: [...this.#routes, this.#defaultRoute] });
  }
}

/** Times of what is installed count from now. */
export function resetStartTimes(): void {
  for (const target of installed) target.start();
}

function routeScript({ answers = [], otherwise = ok(), capacity, rate, retryAfter }: Script): object {
  return { answers, otherwise, capacity, rate, retry_after: retryAfter };
}

function withArgumentErrors<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw argumentError(error);
  }
}

function throwIfAny(what: string, those: readonly (string | Attempt)[]): void {
  if (those.length === 0) return;
  const lines = those.map((one) => `  ${typeof one === "string" ? one : describeAttempt(one)}`);
  throw new Error(`${what}:\n${lines.join("\n")}`);
}
