// Responses of providers for tests, and functions that read the state of a gate.
export const CHAT = {
  id: "chatcmpl-1",
  object: "chat.completion",
  created: 1,
  model: "small",
  choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: "hello" } }],
  usage: { prompt_tokens: 9, completion_tokens: 2, total_tokens: 11 },
};

export const delta = (content, finish_reason = null) => ({
  id: "chatcmpl-1",
  object: "chat.completion.chunk",
  created: 1,
  model: "small",
  choices: [{ index: 0, delta: content === undefined ? {} : { content }, finish_reason }],
});

export const CHAT_STREAM = [delta("hel"), delta("lo"), delta(undefined, "stop"), "[DONE]"];

export const MESSAGES = [{ role: "user", content: "hi" }];

export const MESSAGE = {
  id: "msg_1",
  type: "message",
  role: "assistant",
  model: "claude",
  content: [{ type: "text", text: "hello" }],
  stop_reason: "end_turn",
  stop_sequence: null,
  usage: { input_tokens: 9, output_tokens: 2 },
};

/** Configuration of a gate without retries, so that a test gets each failure. */
export const ONCE = { defaults: { retry: { attempts: 1 } } };

export const inFlight = (gate) =>
  Object.values(gate.snapshot().targets).reduce((sum, target) => sum + target.in_flight, 0);

export const queued = (gate) =>
  Object.values(gate.snapshot().targets).reduce((sum, target) => sum + target.queue_depth, 0);

/** Waits until `holds()` returns true. Checks once for each turn of the event loop. */
export async function until(holds) {
  while (!holds()) await new Promise(setImmediate);
}
