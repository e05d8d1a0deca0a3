/**
 * The answers of a fake target. All times are in seconds and may be fractions.
 *
 * @module
 */

/** A tool call that the model makes in its answer. */
export interface ToolCall {
  /** Name of the tool that the model calls. */
  name: string;
  /** Arguments of the tool call by name. Default: none. */
  arguments?: Record<string, unknown>;
}

/** When the chunks of an answer arrive. */
export interface Pace {
  /**
   * Seconds until the first chunk. An answer that is not streamed arrives when its stream would
   * have ended. Default: 0.
   */
  after?: number;
  /** Seconds between two chunks of the answer. Default: 0. */
  every?: number;
}

/**
 * One answer in the script of a fake target. The functions of this module, such as {@link ok} and
 * {@link rateLimited}, create answers.
 */
export class Answer {
  readonly #kind: string;
  readonly #fields: Readonly<Record<string, unknown>>;

  /**
   * Creates an answer from its kind and settings in the JSON script.
   *
   * @internal
   */
  constructor(kind: string, fields: Record<string, unknown>) {
    this.#kind = kind;
    this.#fields = fields;
  }

  /**
   * Returns the same answer, given `count` times instead of once.
   *
   * @param count - Number of attempts that get the answer, 1 or more.
   * @returns A new answer. This one is not changed.
   * @example
   * ```ts
   * const target = new FakeTarget({ answers: [overloaded().times(3), ok()] });
   * ```
   */
  times(count: number): Answer {
    return new Answer(this.#kind, { ...this.#fields, times: count });
  }

  /**
   * Returns the answer as data for the JSON script. The script has the same form in every language.
   */
  toJSON(): Record<string, unknown> {
    return { [this.#kind]: this.#fields };
  }
}

/**
 * Creates a successful answer, in the API of the request: a whole response, or a stream of words.
 *
 * @param text - Text of the answer. Default: `ok`, or nothing if there are tool calls.
 * @param options - Tools that the model calls after the text, and the pace.
 * @returns The answer.
 * @example
 * ```ts
 * const target = new FakeTarget({ answers: [ok("done", { after: 2 })] });
 * ```
 */
export function ok(text?: string, options: Pace & { toolCalls?: readonly ToolCall[] } = {}): Answer {
  const { toolCalls = [], ...pace } = options;
  return new Answer("reply", { text, tool_calls: toolCalls, ...pace });
}

/**
 * Creates a successful answer whose text consists of the given chunks.
 *
 * If the request asks for a stream, each chunk is sent by itself. Otherwise, the answer has the
 * whole text.
 *
 * @param chunks - Chunks of text.
 * @param pace - When the chunks arrive. Default: at once.
 * @returns The answer.
 */
export function stream(chunks: readonly string[], pace: Pace = {}): Answer {
  return new Answer("reply", { chunks, ...pace });
}

/**
 * Creates an answer that sends the chunks and then nothing more, and never ends.
 *
 * Without chunks, only the head of the response is sent.
 *
 * @param chunks - Chunks of text. Default: none.
 * @param pace - When the chunks arrive. Default: at once.
 * @returns The answer.
 */
export function stall(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("stall", chunks, pace);
}

/**
 * Creates an answer that ends cleanly after the chunks, but without the final event of the API.
 *
 * If the request asks for no stream, the body ends in the middle.
 *
 * @param chunks - Chunks of text. Default: none.
 * @param pace - When the chunks arrive. Default: at once.
 * @returns The answer.
 */
export function truncate(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("truncate", chunks, pace);
}

/**
 * Creates an answer whose connection breaks after the chunks.
 *
 * @param chunks - Chunks of text. Default: none.
 * @param pace - When the chunks arrive. Default: at once.
 * @returns The answer.
 */
export function breakOff(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("break", chunks, pace);
}

/**
 * Creates an answer with status 200 whose stream has an error event after the chunks.
 *
 * If the request asks for no stream, the answer has status 500 instead.
 *
 * @param chunks - Chunks of text. Default: none.
 * @param pace - When the chunks arrive. Default: at once.
 * @returns The answer.
 */
export function errorEvent(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("error", chunks, pace);
}

/**
 * Creates an answer with the given HTTP status.
 *
 * @param code - Status, 100 to 599.
 * @param options - `body`: text, or data that is sent as JSON (default: an error in the format of
 * the API). `retryAfter`: seconds in the Retry-After header (default: no header). `headers`:
 * further headers. `after`: seconds until the answer (default: 0).
 * @returns The answer.
 * @example
 * ```ts
 * const answer = status(500, { body: { error: "try later" }, retryAfter: 3 });
 * const target = new FakeTarget({ answers: [answer] });
 * ```
 */
export function status(
  code: number,
  options: { body?: unknown; retryAfter?: number; headers?: Record<string, string>; after?: number } = {},
): Answer {
  const { retryAfter, ...rest } = options;
  return new Answer("status", { status: code, retry_after: retryAfter, ...rest });
}

/**
 * Creates an answer with status 429.
 *
 * @param retryAfter - Seconds in the Retry-After header. Default: no header.
 * @param options - `after`: seconds until the answer. Default: 0.
 * @returns The answer.
 */
export function rateLimited(retryAfter?: number, options: { after?: number } = {}): Answer {
  return new Answer("status", { status: 429, retry_after: retryAfter, ...options });
}

/**
 * Creates the answer of an overloaded server: status 529 in Anthropic's API, otherwise 503.
 *
 * @param retryAfter - Seconds in the Retry-After header. Default: no header.
 * @param options - `after`: seconds until the answer. Default: 0.
 * @returns The answer.
 */
export function overloaded(retryAfter?: number, options: { after?: number } = {}): Answer {
  return new Answer("overloaded", { retry_after: retryAfter, ...options });
}

/**
 * Creates an answer that refuses the connection, so that the request is never sent.
 *
 * @param options - `after`: seconds until the refusal. Default: 0.
 * @returns The answer.
 */
export function refuseConnection(options: { after?: number } = {}): Answer {
  return new Answer("refuse", options);
}

/**
 * Returns an answer that sends the chunks and then ends early. `end` is the name of the kind of
 * this early end in the JSON script.
 */
function incompleteAnswer(end: string, chunks: readonly string[], pace: Pace): Answer {
  // Without chunks, the response ends before a first chunk.
  return new Answer("reply", { chunks, end, ...(chunks.length === 0 ? { end_after: 0 } : {}), ...pace });
}
