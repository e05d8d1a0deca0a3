// A batch from code: a function over rows without end, as many at once as the gate has room for, errors row by row.
import OpenAI from "openai";
import { Gate } from "tidegate";

const gate = new Gate({ defaults: { cap: 8 } });
const client = gate.wrap(new OpenAI());

// A table that is larger than memory: read no further than the answers are.
async function* rows() {
  for (let number = 0; ; number++) yield `row ${number}`;
}

// One call, or several: whatever a row needs.
async function summarise(row) {
  const messages = [{ role: "user", content: `Summarise ${row}` }];
  const { choices } = await client.chat.completions.create({ model: "gpt-4o-mini", messages, max_tokens: 8 });
  return choices[0].message.content;
}

for await (const result of gate.map(rows(), summarise, { ordered: true, tenant: "nightly" })) {
  if ("error" in result) throw result.error;
  // Leaving the loop ends what is still under way.
  if (result.index === 99) break;
}
const [target] = Object.values(gate.snapshot().targets);
console.log(`100 summaries, ${target.peak_in_flight} at once`);
