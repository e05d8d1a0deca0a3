/**
 * What a fake target may say. All times are seconds, fractions allowed.
 *
 * @module
 */

/** A tool that the model asks for. */
export interface ToolCall {
  name: string;
  arguments?: Record<string, unknown>;
}

/** When the pieces of an answer come. */
export interface Pace {
  /** Until the first piece. What is not streamed comes whole, when its stream would have ended. Default: 0. */
  after?: number;
  /** Between two pieces. Default: 0. */
  every?: number;
}

/** One answer of a script. Made by {@link ok}, {@link rateLimited} and the others of this module. */
export class Answer {
  readonly #kind: string;
  readonly #fields: Readonly<Record<string, unknown>>;

  /** @internal */
  constructor(kind: string, fields: Record<string, unknown>) {
    this.#kind = kind;
    this.#fields = fields;
  }

  /** The same answer, given so many times. Default: once. */
  times(count: number): Answer {
    return new Answer(this.#kind, { ...this.#fields, times: count });
  }

  /** As a script says it: the same JSON in every language. */
  toJSON(): Record<string, unknown> {
    return { [this.#kind]: this.#fields };
  }
}

/** Answers well, in the API and the manner (whole, or streamed in words) that the request asks for. Default text: `ok`; none beside tools. */
export function ok(text?: string, options: Pace & { toolCalls?: readonly ToolCall[] } = {}): Answer {
  const { toolCalls = [], ...pace } = options;
  return new Answer("reply", { text, tool_calls: toolCalls, ...pace });
}

/** Answers well, streamed in these pieces. */
export function stream(chunks: readonly string[], pace: Pace = {}): Answer {
  return new Answer("reply", { chunks, ...pace });
}

/** Sends these pieces, then nothing more, ever. Without pieces: the head of the answer only. */
export function stall(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("stall", chunks, pace);
}

/** Sends these pieces, then ends, cleanly, without the API's terminal event; what is not streamed ends half-way. */
export function truncate(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("truncate", chunks, pace);
}

/** Sends these pieces, then breaks the connection. */
export function breakOff(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("break", chunks, pace);
}

/** Sends these pieces, then an error as an event, under status 200; what is not streamed is a 500. */
export function errorEvent(chunks: readonly string[] = [], pace: Pace = {}): Answer {
  return incompleteAnswer("error", chunks, pace);
}

/** Answers with any status. The body: text as it is, anything else as JSON; by default an error in the words of the API. */
export function status(
  code: number,
  options: { body?: unknown; retryAfter?: number; headers?: Record<string, string>; after?: number } = {},
): Answer {
  const { retryAfter, ...rest } = options;
  return new Answer("status", { status: code, retry_after: retryAfter, ...rest });
}

/** Answers 429, with a Retry-After of so many seconds if one is given. */
export function rateLimited(retryAfter?: number, options: { after?: number } = {}): Answer {
  return new Answer("status", { status: 429, retry_after: retryAfter, ...options });
}

/** Answers that there is no room: 529 in Anthropic's API, else 503. */
export function overloaded(retryAfter?: number, options: { after?: number } = {}): Answer {
  return new Answer("overloaded", { retry_after: retryAfter, ...options });
}

/** Makes no connection: the request is never sent. */
export function refuseConnection(options: { after?: number } = {}): Answer {
  return new Answer("refuse", options);
}

function incompleteAnswer(end: string, chunks: readonly string[], pace: Pace): Answer {
  // Cut short before its first piece: one that never comes.
  return new Answer("reply", { chunks, end, ...(chunks.length === 0 ? { end_after: 0 } : {}), ...pace });
}
