// The gate learns a provider's rates from response headers and shows them in the snapshot.
import OpenAI from "openai";
import { Gate } from "tidegate";

const gate = new Gate();
const client = gate.wrap(new OpenAI());
for (const number of [1, 2, 3]) {
  const messages = [{ role: "user", content: `What is tide gate number ${number}?` }];
  await client.chat.completions.create({ model: "gpt-4o-mini", messages, max_tokens: 8 });
}

const [target] = Object.values(gate.snapshot().targets);
for (const [kind, { limit, window, level, source }] of Object.entries(target.budgets)) {
  console.log(`${kind}: ${limit} every ${window} s, by ${source}; ${level} of them may go at once`);
}
for (const call of gate.calls()) {
  const expected = `input ${call.estimated_input_tokens}, output ${call.estimated_output_tokens}`;
  console.log(`expected ${expected}; was ${call.input_tokens} and ${call.output_tokens}`);
}
