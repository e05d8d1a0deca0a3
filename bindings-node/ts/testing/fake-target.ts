/**
 * A fake target that answers from a script.
 *
 * @module
 */
import { argumentError } from "../errors.js";
import { finiteJson } from "../json.js";
import { type NativeFakeTarget, native } from "../native.js";
import { type Answer, ok } from "./answers.js";
import { type Attempt, type Call, describeAttempt, groupByCall } from "./attempts.js";

/** How a fake target, or one of its routes, answers requests. */
export interface Script {
  /**
   * Answers to the next attempts in order of arrival. Each is given once, or as often as its
   * `times` says. Default: none.
   */
  answers?: readonly Answer[];
  /**
   * Answer after all `answers` are used up. With null, further requests fail as unmatched. Default:
   * `ok()`.
   */
  otherwise?: Answer | null;
  /**
   * Maximum number of attempts in flight. Any further attempt gets status 429 and uses up no
   * answer. Default: no limit.
   */
  capacity?: number;
  /**
   * Maximum number of attempts per minute. Any further attempt gets status 429 with a Retry-After.
   * Default: no limit.
   */
  rate?: number;
  /** Seconds in the Retry-After header of attempts above `capacity`. Default: no header. */
  retryAfter?: number;
}

/**
 * Which requests a route matches. A property that is not set matches every request. In patterns,
 * `*` matches any text.
 */
export interface Match {
  /** Pattern for the host of the URL. Default: any host. */
  host?: string;
  /**
   * Pattern for the path of the URL. Requests that a gate sends of its own accord only match a
   * pattern that does not end in `*`. Default: any path.
   */
  path?: string;
  /** Pattern for the model that the request names. Default: any model, or none. */
  model?: string;
  /** Text that the request body must contain, without patterns. Default: any body. */
  contains?: string;
}

const installed = new Set<NativeFakeTarget>();

/**
 * Answers requests from a script instead of the network, and records them.
 *
 * The answers have the format of the API that the request uses (OpenAI's chat completions,
 * completions, Responses and embeddings, Anthropic's messages, Gemini's generateContent), so that
 * the official SDKs parse them. Other requests are answered as chat completions, unless a route
 * matches.
 *
 * Requests that a gate sends of its own accord use up no answer and are not recorded: a health
 * probe of a pool gets status 200, and a request for metrics, models or token counts gets status
 * 404. A route whose `path` names theirs, such as `/metrics`, answers them instead.
 *
 * @example
 * ```ts
 * const target = new FakeTarget({ answers: [overloaded(), ok("done")], capacity: 2 });
 * await target.during(() => client.responses.create({ model: "gpt-4o", input: "Say hello." }));
 * assert.deepEqual(target.attempts.map(({ status }) => status), [503, 200]);
 * ```
 */
export class FakeTarget {
  readonly #native: NativeFakeTarget;
  #routes: readonly object[] = [];
  #defaultRoute: object;

  /**
   * Creates the target without installing it.
   *
   * @param script - The answers to requests that no route matches. Default: `ok()`.
   * @throws `RangeError` if a number is not finite, a time is negative or longer than a year, or a
   * status or a header is invalid.
   */
  constructor(script: Script = {}) {
    this.#defaultRoute = routeScript(script);
    const text = scriptText([this.#defaultRoute]);
    this.#native = withArgumentErrors(() => new native.FakeTarget(text));
  }

  /**
   * Replaces the answers to requests that no route matches, and restarts the script of every route
   * from its first answer.
   *
   * @param script - The answers.
   * @returns The target.
   * @throws `RangeError` if a number is not finite, a time is negative or longer than a year, or a
   * status or a header is invalid.
   */
  script(script: Script): this {
    this.#replace(this.#routes, routeScript(script));
    return this;
  }

  /**
   * Adds a route: answers to the requests that match. The first matching route answers a request.
   *
   * The scripts of all routes restart from their first answer. Capacity and rate apply to each
   * route separately.
   *
   * @param match - Which requests match.
   * @param script - The answers. Default: `ok()`.
   * @returns The target.
   * @throws `RangeError` if a number is not finite, a time is negative or longer than a year, or a
   * status or a header is invalid.
   */
  route(match: Match, script: Script = {}): this {
    this.#replace([...this.#routes, { ...match, ...routeScript(script) }], this.#defaultRoute);
    return this;
  }

  /**
   * Replaces the network with the target for every gate of the process, until {@link
   * FakeTarget.uninstall}.
   *
   * Gates start again from their configuration. When the target is uninstalled, each gate has its
   * earlier state, so that tests do not affect each other. The target applies to the whole process,
   * so tests of one file must not run concurrently. Requests that do not go through a gate still
   * use the network: those of clients that are not wrapped, and of gates in mode `off`.
   *
   * @returns The target.
   * @throws An error if the target is installed already.
   */
  install(): this {
    this.#native.install();
    installed.add(this.#native);
    return this;
  }

  /** Restores the network and the earlier state of each gate. Idempotent. */
  uninstall(): void {
    this.#native.uninstall();
    installed.delete(this.#native);
  }

  /**
   * Runs a function while the target is installed.
   *
   * @param run - The function.
   * @returns The result of the function.
   * @throws An error (as a rejection), at the end, if a request matched no answer. The request
   * itself fails at once.
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

  /** The attempts so far, in order of arrival. */
  get attempts(): Attempt[] {
    return JSON.parse(this.#native.attempts());
  }

  /** The calls so far with their attempts, in order of arrival. */
  get calls(): Call[] {
    return groupByCall(this.attempts);
  }

  /** The attempts that the caller cancelled before the end of their answers. */
  get cancelled(): Attempt[] {
    return this.attempts.filter((attempt) => attempt.outcome === "cancelled");
  }

  /** Number of attempts that are in flight now. */
  get inFlight(): number {
    return this.#native.inFlight;
  }

  /** Maximum number of attempts that were in flight at the same time, including rejected ones. */
  get maxInFlight(): number {
    return this.#native.maxInFlight;
  }

  /** One line for each request for which the script had no answer, with the reason. */
  get unmatched(): string[] {
    return this.#native.unmatched;
  }

  /**
   * Returns one line for each attempt, in order of arrival. Two runs of a test on virtual time have
   * equal traces.
   */
  trace(): string[] {
    return this.attempts.map(describeAttempt);
  }

  /**
   * Checks that every attempt was answered to its end or cancelled.
   *
   * @throws An error if an attempt is in flight, for example a stream that was not cancelled.
   */
  assertNoCallInFlight(): void {
    throwIfAny(
      "still in flight",
      this.attempts.filter(({ outcome }) => outcome === "in_flight"),
    );
  }

  /**
   * Checks that every request matched an answer.
   *
   * @throws An error if a request matched no answer.
   */
  assertAllMatched(): void {
    throwIfAny("the fake target has no answer for", this.unmatched);
  }

  /** Replaces all routes, or none of them if one is invalid. */
  #replace(routes: readonly object[], defaultRoute: object): void {
    const text = scriptText([...routes, defaultRoute]);
    withArgumentErrors(() => this.#native.setScript(text));
    this.#routes = routes;
    this.#defaultRoute = defaultRoute;
  }
}

/**
 * Sets the moment from which the times of later attempts are counted to now, at all installed
 * targets. Called when virtual time starts.
 */
export function resetStartTimes(): void {
  for (const target of installed) target.resetStartTime();
}

/** Returns the JSON script with these routes. Throws a `RangeError` if a number is not finite. */
function scriptText(routes: readonly object[]): string {
  return finiteJson({ routes }, (message) => new RangeError(message));
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

function throwIfAny(what: string, entries: readonly (string | Attempt)[]): void {
  if (entries.length === 0) return;
  const lines = entries.map((one) => `  ${typeof one === "string" ? one : describeAttempt(one)}`);
  throw new Error(`${what}:\n${lines.join("\n")}`);
}
