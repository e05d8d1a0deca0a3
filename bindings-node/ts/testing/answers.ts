/**
 * The answers of a fake target. All times are in seconds and may be fractions.
 *
 * @module
 */

/** A call of a tool by the model. */
export interface ToolCall {
  /** Name of the tool. */
  name: string;
  /** Arguments of the call. Default: none. */
  arguments?: Record<string, unknown>;
}

/** When the chunks of an answer arrive. */
export interface Pace {
  /**
   * Seconds until the first chunk. An answer that is not streamed arrives when its stream would
   * have ended. Default: 0.
   */
  after?: number;
  /** Seconds between two chunks. Default: 0. */
  every?: number;
}

/**
 * One answer of a script. {@link ok}, {@link rateLimited} and the other functions of this module
 * create it.
 */
export class Answer {
  readonly #kind: string;
  readonly #fields: Readonly<Record<string, unknown>>;

  /** @internal */
  constructor(kind: string, fields: Record<string, unknown>) {
    this.#kind = kind;
    this.#fields = fields;
  }

  /**
   * Returns the same answer, given `count` times instead of once.
   *
   * @param count - Number of attempts that get the answer.
   * @returns The answer.
   * @example
   * ```ts
   * const target = new FakeTarget({ answers: [overloaded().times(3), ok()] });
   * ```
   */
  times(count: number): Answer {
    return new Answer(this.#kind, { ...this.#fields, times: count });
  }

  /** Returns the answer as JSON data, which is the same in every language. */
  toJSON(): Record<string, unknown> {
    return { [this.#kind]: this.#fields };
  }
}

/**
 * Answers successfully, in the API of the request, as a whole or as a stream of words.
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
 * Answers successfully with the given chunks.
 *
 * @param chunks - Chunks of text.
 * @param pace - When the chunks arrive.
 * @returns The answer.
 */
export function stream(chunks: readonly string[], pace: Pace = {}): Answer {
  return new Answer("reply", { chunks, ...pace });
}

/**
 * Sends the chunks, then nothing more. The response never ends. Without chunks, only its head is
 * sent.
 *
 * @param chunks - Chunks of text.
 * @param pace - When the chunks arrive.
 * @returns The answer.
 */
export function stall(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("stall", chunks, pace);
}

/**
 * Sends the chunks, then ends the response cleanly but without the final event of the API.
 *
 * An answer that is not streamed ends in the middle.
 *
 * @param chunks - Chunks of text.
 * @param pace - When the chunks arrive.
 * @returns The answer.
 */
export function truncate(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("truncate", chunks, pace);
}

/**
 * Sends the chunks, then breaks the connection.
 *
 * @param chunks - Chunks of text.
 * @param pace - When the chunks arrive.
 * @returns The answer.
 */
export function breakOff(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("break", chunks, pace);
}

/**
 * Sends the chunks, then an error event under status 200.
 *
 * An answer that is not streamed has status 500.
 *
 * @param chunks - Chunks of text.
 * @param pace - When the chunks arrive.
 * @returns The answer.
 */
export function errorEvent(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("error", chunks, pace);
}

/**
 * Answers with a status.
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
 * Answers with status 429.
 *
 * @param retryAfter - Seconds in the Retry-After header. Default: no header.
 * @param options - `after`: seconds until the answer. Default: 0.
 * @returns The answer.
 */
export function rateLimited(retryAfter?: number, options: { after?: number } = {}): Answer {
  return new Answer("status", { status: 429, retry_after: retryAfter, ...options });
}

/**
 * Answers that the server is overloaded: status 529 in Anthropic's API, otherwise 503.
 *
 * @param retryAfter - Seconds in the Retry-After header. Default: no header.
 * @param options - `after`: seconds until the answer. Default: 0.
 * @returns The answer.
 */
export function overloaded(retryAfter?: number, options: { after?: number } = {}): Answer {
  return new Answer("overloaded", { retry_after: retryAfter, ...options });
}

/**
 * Refuses the connection, so that the request is never sent.
 *
 * @param options - `after`: seconds until the refusal. Default: 0.
 * @returns The answer.
 */
export function refuseConnection(options: { after?: number } = {}): Answer {
  return new Answer("refuse", options);
}

/** Returns an answer that ends early. */
function incompleteAnswer(end: string, chunks: readonly string[], pace: Pace): Answer {
  // Without chunks, the response ends before a first chunk.
  return new Answer("reply", { chunks, end, ...(chunks.length === 0 ? { end_after: 0 } : {}), ...pace });
}
