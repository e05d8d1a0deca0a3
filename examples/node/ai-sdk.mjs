// Vercel AI SDK with the gate's fetch. `maxRetries: 0`, because the gate retries.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";
import { Gate } from "tidegate";

const gate = new Gate();
const openai = createOpenAI({ fetch: gate.fetch });
const request = {
  model: openai.chat("gpt-4o-mini"),
  prompt: "What is a tide gate?",
  maxOutputTokens: 32,
  maxRetries: 0,
};

const { text } = await generateText(request);
console.log(text);

for await (const part of streamText(request).textStream) process.stdout.write(part);
console.log();
