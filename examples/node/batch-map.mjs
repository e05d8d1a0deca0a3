// A batch in code: a function over an endless source, with as many rows at once as possible.
import OpenAI from "openai";
import { Gate } from "tidegate";

const gate = new Gate({ defaults: { cap: 8 } });
const client = gate.wrap(new OpenAI());

// Yields rows of a table that is larger than memory, only as fast as results are read.
async function* rows() {
  for (let number = 0; ; number++) yield `row ${number}`;
}

// Makes the calls for one row.
async function summarise(row) {
  const messages = [{ role: "user", content: `Summarise ${row}` }];
  const { choices } = await client.chat.completions.create({ model: "gpt-4o-mini", messages, max_tokens: 8 });
  return choices[0].message.content;
}

for await (const result of gate.map(rows(), summarise, { ordered: true, tenant: "nightly" })) {
  if ("error" in result) throw result.error;
  // Leaving the loop cancels the running rows.
  if (result.index === 99) break;
}
const [target] = Object.values(gate.snapshot().targets);
console.log(`100 summaries, ${target.peak_in_flight} at once`);
