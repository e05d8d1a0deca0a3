// The answers of the upstream, over a socket or in memory.
export const COMPLETION = JSON.stringify({
  id: "chatcmpl-1",
  object: "chat.completion",
  created: 1,
  model: "small",
  choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: "hello there" } }],
  usage: { prompt_tokens: 9, completion_tokens: 2, total_tokens: 11 },
});

const chunk = (choice) =>
  `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "small", choices: [choice] })}\n\n`;

export const EVENT = chunk({ index: 0, delta: { content: "word" } });
export const LAST = `${chunk({ index: 0, delta: {}, finish_reason: "stop" })}data: [DONE]\n\n`;
