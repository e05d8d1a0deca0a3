// A uniform interface to the packages of examples/node: one call and one stream.
//
// `make(url, key, gate)` makes a client of an upstream, stock if there is no gate. The client has `ask(signal)` and
// `stream(signal)`. `loops` means that the package's own retry loop is left on, to show its effect.
import { createRequire } from "node:module";

const require = createRequire(new URL("../../examples/node/package.json", import.meta.url));
const { createOpenAI } = require("@ai-sdk/openai");
const Anthropic = require("@anthropic-ai/sdk");
const { MessagesAnnotation, START, StateGraph } = require("@langchain/langgraph");
const { ChatOpenAI } = require("@langchain/openai");
const { generateText, streamText } = require("ai");
const OpenAI = require("openai");

export const ASK = "What is a slack tide?";
const CHAT = [{ role: "user", content: ASK }];
export const model = "small";
const [max_tokens, stream] = [8, true];
const { dependencies } = require("./package.json");
const pinned = (name) => `${name} ${dependencies[name]}`;

/**
 * Yields the parts of a stream, to which the promise `parts` resolves.
 */
async function* flat(parts) {
  yield* await parts;
}

/**
 * Returns the tested client for an SDK client. If there is a gate, the gate wraps the SDK client.
 *
 * `create` sends one request through the SDK client.
 */
function sdk(client, gate, create) {
  const held = gate ? gate.wrap(client) : client;
  return {
    ask: (signal) => create(held, {}, { signal }),
    stream: (signal) => flat(create(held, { stream }, { signal })),
  };
}

export const chat = (client, more, options) =>
  client.chat.completions.create({ model, messages: CHAT, ...more }, options);
const responses = (client, more, options) => client.responses.create({ model, input: ASK, ...more }, options);
const messages = (client, more, options) =>
  client.messages.create({ model, max_tokens, messages: CHAT, ...more }, options);

/**
 * Returns the function `make` (see above) for a client class of `openai`.
 *
 * `create` sends one request, and `more` has further options of the client.
 */
export const openai = (Client, create, more) => (url, apiKey, gate) =>
  sdk(new Client({ baseURL: `${url}/v1`, apiKey, ...more }), gate, create);

const anthropic = (baseURL, apiKey, gate) => sdk(new Anthropic({ baseURL, apiKey }), gate, messages);

/**
 * Returns the function `make` (see above) for LangChain's `ChatOpenAI`.
 *
 * If there is a gate, the model gets the gate's `fetch` and the given settings.
 */
const langchain = (settings) => (url, apiKey, gate) => {
  const llm = chatModel(settings, url, apiKey, gate);
  return {
    ask: (signal) => llm.invoke(ASK, { signal }),
    stream: (signal) => flat(llm.stream(ASK, { signal })),
  };
};

/**
 * Returns the function `make` (see above) for a graph of LangGraph with one node, which calls
 * LangChain's `ChatOpenAI`.
 *
 * If there is a gate, the model gets `settings`, and the node `nodeSettings`.
 */
const langgraph = (settings, nodeSettings) => (url, apiKey, gate) => {
  const llm = chatModel(settings, url, apiKey, gate);
  const answer = async ({ messages }, config) => ({ messages: [await llm.invoke(messages, config)] });
  const graph = new StateGraph(MessagesAnnotation)
    .addNode("answer", answer, gate && nodeSettings)
    .addEdge(START, "answer")
    .compile();
  return {
    ask: (signal) => graph.invoke({ messages: CHAT }, { signal }),
    stream: (signal) => flat(graph.stream({ messages: CHAT }, { signal, streamMode: "messages" })),
  };
};

function chatModel(settings, url, apiKey, gate) {
  const configuration = { baseURL: `${url}/v1`, ...(gate && { fetch: gate.fetch }) };
  return new ChatOpenAI({ model, apiKey, configuration, ...(gate && settings) });
}

/**
 * Returns the function `make` (see above) for one API of Vercel's AI SDK: `chat` or `responses`.
 *
 * If there is a gate, the provider gets the gate's `fetch`, and each call gets the given settings.
 * The streams of the AI SDK report an error as a part instead of throwing it, so `stream` throws
 * it.
 */
const vercel = (api, settings) => (url, apiKey, gate) => {
  const provider = createOpenAI({ baseURL: `${url}/v1`, apiKey, ...(gate && { fetch: gate.fetch }) });
  const request = { model: provider[api](model), prompt: ASK, ...(gate && settings) };
  return {
    ask: (abortSignal) => generateText({ ...request, abortSignal }),
    async *stream(abortSignal) {
      for await (const part of streamText({ ...request, abortSignal, onError: () => {} }).fullStream) {
        if (part.type === "error") throw part.error;
        if (part.type === "abort") throw abortSignal.reason;
        yield part;
      }
    },
  };
};

const plain = (url, key, gate) => {
  const post = async (more, signal) => {
    const response = await (gate ?? globalThis).fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: JSON.stringify({ model, messages: CHAT, ...more }),
      signal,
    });
    if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
    return response;
  };
  return {
    ask: async (signal) => (await post({}, signal)).json(),
    stream: (signal) => flat(post({ stream }, signal).then(({ body }) => body)),
  };
};

const ai = `${pinned("ai")}, ${pinned("@ai-sdk/openai")}`;
export const PACKAGES = [
  { title: pinned("openai"), make: openai(OpenAI, chat) },
  { title: `${pinned("openai")}, responses`, make: openai(OpenAI, responses) },
  {
    title: `${pinned("openai")}, a fetch of its own kept`,
    make: openai(OpenAI, chat, { fetch: (...request) => globalThis.fetch(...request) }),
  },
  { title: pinned("@anthropic-ai/sdk"), make: anthropic },
  { title: pinned("@langchain/openai"), make: langchain({ maxRetries: 0 }) },
  { title: pinned("@langchain/langgraph"), make: langgraph({ maxRetries: 0 }) },
  { title: ai, make: vercel("chat", { maxRetries: 0 }) },
  { title: `${ai}, responses`, make: vercel("responses", { maxRetries: 0 }) },
  { title: `fetch of Node ${process.versions.node}`, make: plain },
  { title: `${pinned("@langchain/openai")}, maxRetries left on`, make: langchain({}), loops: true },
  {
    title: `${pinned("@langchain/langgraph")}, a retryPolicy of 3 attempts`,
    make: langgraph({ maxRetries: 0 }, { retryPolicy: { maxAttempts: 3, logWarning: false } }),
    loops: true,
  },
  { title: `${ai}, maxRetries left on`, make: vercel("chat", {}), loops: true },
];
