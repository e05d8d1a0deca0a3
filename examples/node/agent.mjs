// An agent: tenants and lanes for all calls of a function, tools with caps, and the snapshot.
import OpenAI from "openai";
import { Gate } from "tidegate";

const gate = new Gate({
  defaults: { cap: 4 },
  tools: { search: 2 },
  tenants: { chat: { weight: 2 }, nightly: { cap: 2 } },
});
const client = gate.wrap(new OpenAI());

async function answer(question) {
  const found = await gate.tool("search", async () => `something about ${question}`);
  const messages = [{ role: "user", content: `${question}? We know ${found}.` }];
  const { choices } = await client.chat.completions.create({ model: "gpt-4o-mini", messages, max_tokens: 16 });
  return choices[0].message.content;
}

const asks = (questions) => Promise.all(questions.map(answer));
await Promise.all([
  gate.run({ tenant: "chat", lane: "interactive", deadline: 60 }, () => asks(["tides", "gates"])),
  gate.run({ tenant: "nightly", lane: "batch" }, () => asks(["rivers", "locks", "weirs", "dams"])),
]);

for (const [name, { peak_in_flight, tenants }] of Object.entries(gate.snapshot().targets)) {
  const admitted = Object.entries(tenants).map(([tenant, seen]) => `${tenant} ${seen.admitted}`);
  console.log(`${name}: at most ${peak_in_flight} at once; admitted ${admitted.join(", ")}`);
}
