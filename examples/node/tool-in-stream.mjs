// A tool within a stream: the model slot is released meanwhile, and waiting calls are explained.
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { Gate } from "tidegate";

const gate = new Gate({ defaults: { cap: 1 }, tools: { search: 4 } });
const client = gate.wrap(new OpenAI());
const messages = [{ role: "user", content: "What is a tide gate?" }];

/** Starts a call. Resolves to the call's stream, which holds a slot until it is read to its end. */
const ask = () => client.chat.completions.create({ model: "gpt-4o-mini", messages, max_tokens: 16, stream: true });

async function read(stream) {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
  return text;
}

await gate.run({ call: "first" }, async () => {
  const stream = await ask();
  const other = gate.run({ call: "second" }, async () => read(await ask()));
  await sleep(50);
  console.log(`second: ${gate.explain("second")?.text}`);
  const text = await gate.tool("search", () => other, { yieldSlot: true });
  console.log(`the second answer arrived while the first was open: ${text}`);
  console.log(`the first answer is complete: ${await read(stream)}`);
});
