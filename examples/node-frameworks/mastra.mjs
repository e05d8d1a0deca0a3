// Mastra: an agent whose model has the gate's fetch. See mastra-router.mjs for models given as text.
import { createOpenAI } from "@ai-sdk/openai";
import { Agent } from "@mastra/core/agent";
import { Gate } from "tidegate";

const gate = new Gate();
const openai = createOpenAI({ fetch: gate.fetch });
const agent = new Agent({
  id: "harbour-master",
  name: "Harbour master",
  instructions: "Answer briefly.",
  model: openai.chat("gpt-4o-mini"),
  // The default of agents. Mastra's own retries would multiply those of the gate.
  maxRetries: 0,
});

const { text } = await agent.generate("When is high water at Dover?");
console.log(text);

const stream = await agent.stream("When is high water at Ostend?");
for await (const part of stream.textStream) process.stdout.write(part);
console.log();
