// A wrapped client of openai: chat, streams and responses.
import OpenAI from "openai";
import { Gate } from "tidegate";

const gate = new Gate();
const client = gate.wrap(new OpenAI());
const model = "gpt-4o-mini";
const messages = [{ role: "user", content: "What is a tide gate?" }];

const answer = await client.chat.completions.create({ model, messages, max_tokens: 32 });
console.log(answer.choices[0].message.content);

let text = "";
for await (const chunk of await client.chat.completions.create({ model, messages, max_tokens: 32, stream: true })) {
  text += chunk.choices[0]?.delta.content ?? "";
}
console.log(text);

const response = await client.responses.create({ model, input: "What is a tide gate?", max_output_tokens: 32 });
console.log(response.output_text);
