// LangGraph.js: a graph whose model has the gate's fetch. `maxRetries: 0`, because the gate retries.
import { MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { ChatOpenAI } from "@langchain/openai";
import { Gate } from "tidegate";

const gate = new Gate();
const { OPENAI_BASE_URL: baseURL } = process.env;
const model = new ChatOpenAI({
  model: "gpt-4o-mini",
  maxTokens: 32,
  maxRetries: 0,
  configuration: { baseURL, fetch: gate.fetch },
});

// Without a `retryPolicy`, which would multiply the attempts of the gate.
const answer = async ({ messages }) => ({ messages: [await model.invoke(messages)] });
const graph = new StateGraph(MessagesAnnotation).addNode("answer", answer).addEdge(START, "answer").compile();
const input = { messages: [{ role: "user", content: "When is high water at Dover?" }] };

const { messages } = await graph.invoke(input);
console.log(messages.at(-1).content);

let text = "";
for await (const [chunk] of await graph.stream(input, { streamMode: "messages" })) text += chunk.content;
console.log(text);
