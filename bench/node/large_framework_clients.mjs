// The packages of examples/node-frameworks, with the interface of `framework_clients.mjs`.
import { createRequire } from "node:module";

import { ASK, chat, model, openai } from "./framework_clients.mjs";

const require = createRequire(new URL("../../examples/node-frameworks/package.json", import.meta.url));
const { createOpenAI } = require("@ai-sdk/openai");
const { Agent: MastraAgent } = require("@mastra/core/agent");
const { Agent, OpenAIProvider, retryPolicies, Runner } = require("@openai/agents");
const OpenAI = require("openai");

const { dependencies } = require("./package.json");
const pinned = (name) => `${name} ${dependencies[name]}`;
const instructions = "Answer briefly.";

/**
 * Returns the function `make` for the OpenAI Agents SDK, with the Responses API or chat completions.
 *
 * If there is a gate, the gate wraps the client of the model provider, and the agent gets
 * `modelSettings`. `stream` yields the events of the model only, because the SDK emits events of its
 * own before them.
 */
const agents = (useResponses, modelSettings) => (url, apiKey, gate) => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey });
  const openAIClient = gate ? gate.wrap(client) : client;
  const modelProvider = new OpenAIProvider({ openAIClient, useResponses });
  const runner = new Runner({ modelProvider, tracingDisabled: true });
  const agent = new Agent({ name: "tides", instructions, model, ...(gate && { modelSettings }) });
  return {
    ask: (signal) => runner.run(agent, ASK, { signal }),
    async *stream(signal) {
      const result = await runner.run(agent, ASK, { signal, stream: true });
      for await (const event of result) if (event.type === "raw_model_stream_event") yield event;
      await result.completed;
    },
  };
};

/**
 * Returns the function `make` for Mastra with a model of the AI SDK: `chat` or `responses`.
 *
 * If there is a gate, the provider gets the gate's `fetch`, and the agent the given settings. The
 * streams of Mastra report an error as a part instead of throwing it, so `stream` throws it. An
 * aborted `generate` resolves without an error; its `finishReason` is `aborted`.
 */
const mastra = (api, settings) => (url, apiKey, gate) => {
  const provider = createOpenAI({ baseURL: `${url}/v1`, apiKey, ...(gate && { fetch: gate.fetch }) });
  const agent = new MastraAgent({
    id: "tides",
    name: "tides",
    instructions,
    model: provider[api](model),
    ...(gate && settings),
  });
  return {
    ask: (abortSignal) => agent.generate(ASK, { abortSignal }),
    async *stream(abortSignal) {
      for await (const part of (await agent.stream(ASK, { abortSignal })).fullStream) {
        if (part.type === "error") throw part.payload.error;
        if (part.type === "abort") throw abortSignal.reason;
        if (part.type === "text-delta") yield part;
      }
    },
  };
};

export const LARGE_PACKAGES = [
  { title: pinned("openai"), make: openai(OpenAI, chat) },
  { title: pinned("@openai/agents"), make: agents(true) },
  { title: `${pinned("@openai/agents")}, chat completions`, make: agents(false) },
  { title: pinned("@mastra/core"), make: mastra("chat", { maxRetries: 0 }) },
  { title: `${pinned("@mastra/core")}, responses`, make: mastra("responses", { maxRetries: 0 }) },
  {
    title: `${pinned("@openai/agents")}, retry.maxRetries: 2`,
    make: agents(true, { retry: { maxRetries: 2, policy: retryPolicies.httpStatus([429, 500]) } }),
    loops: true,
  },
  { title: `${pinned("@mastra/core")}, maxRetries: 2`, make: mastra("chat", { maxRetries: 2 }), loops: true },
];
