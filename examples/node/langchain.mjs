// @langchain/openai with the gate's fetch. `maxRetries: 0`, because the gate retries.
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

const answer = await model.invoke("What is a tide gate?");
console.log(answer.content);

let text = "";
for await (const chunk of await model.stream("What is a tide gate?")) text += chunk.content;
console.log(text);
