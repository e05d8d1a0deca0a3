// Mastra's model router calls the global fetch, so the gate's fetch replaces that.
import { Agent } from "@mastra/core/agent";
import { Gate } from "tidegate";

const gate = new Gate();
globalThis.fetch = gate.fetch;

const agent = new Agent({
  id: "harbour-master",
  name: "Harbour master",
  instructions: "Answer briefly.",
  model: "openai/gpt-4o-mini",
  maxRetries: 0,
});

const { text } = await agent.generate("When is high water at Dover?");
console.log(text);
