// The OpenAI Agents SDK: one wrapped client for all agents, and a tool with a cap.
import { Agent, run, setDefaultOpenAIClient, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { Gate } from "tidegate";
import { z } from "zod";

const gate = new Gate({ tools: { tables: 2 } });
setDefaultOpenAIClient(gate.wrap(new OpenAI()));
// Disables traces, which the SDK sends to OpenAI with the global fetch.
setTracingDisabled(true);

const highWater = tool({
  name: "high_water",
  description: "Returns the times of high water at a port.",
  parameters: z.object({ port: z.string() }),
  execute: ({ port }) => gate.tool("tables", async () => `At ${port}: 05:12 and 17:38.`),
});
const agent = new Agent({
  name: "Harbour master",
  instructions: "Answer briefly.",
  model: "gpt-4o-mini",
  tools: [highWater],
});

const { finalOutput } = await run(agent, "When is high water at Dover?");
console.log(finalOutput);

const stream = await run(agent, "When is high water at Ostend?", { stream: true });
for await (const text of stream.toTextStream()) process.stdout.write(text);
await stream.completed;
console.log();
