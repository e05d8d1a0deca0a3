// A tool in the middle of a stream: the model slot is handed back meanwhile, and whoever waits can be asked why.
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { Gate } from "tidegate";

const gate = new Gate({ defaults: { cap: 1 }, tools: { search: 4 } });
const client = gate.wrap(new OpenAI());
const messages = [{ role: "user", content: "What is a tide gate?" }];

/** Reads one answer as it comes; looks something up as soon as it has begun. */
const ask = (call, onBegun) =>
  gate.run({ call }, async () => {
    const request = { model: "gpt-4o-mini", messages, max_tokens: 16, stream: true };
    let text = "";
    for await (const chunk of await client.chat.completions.create(request)) {
      if (text === "") await onBegun?.();
      text += chunk.choices[0]?.delta.content ?? "";
    }
    return text;
  });

/** Uses a tool while another call waits for the one slot, which this one holds. */
async function lookUp() {
  const other = ask("second");
  await sleep(50);
  console.log(`second: ${gate.explain("second")?.text}`);
  const text = await gate.tool("search", () => other, { yieldSlot: true });
  console.log(`the second answer came while the first was open: ${text}`);
}

console.log(`and the first is whole: ${await ask("first", lookUp)}`);
