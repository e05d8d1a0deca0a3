// An objective without a cap: the gate adapts the limit and explains each change.
import OpenAI from "openai";
import { Gate } from "tidegate";

// Half of the objective is for the queue and half for the model. The simulated model is
// twenty times as fast as a real one, for which the objective would be 2 s. Without `wait`, calls
// that can no longer meet the objective are rejected.
const gate = new Gate({ defaults: { ttft: "100ms", wait: "60s" } });
const client = gate.wrap(new OpenAI());

/** Makes one call, and reads its stream to the end. */
async function ask(question) {
  const messages = [{ role: "user", content: question }];
  const stream = await client.chat.completions.create({ model: "gpt-4o-mini", messages, max_tokens: 32, stream: true });
  for await (const _ of stream);
}

await ask("What is a tide gate?");
// Far more calls at once than the model can serve.
await Promise.all(Array.from({ length: 300 }, (_, number) => ask(`What is tide gate number ${number}?`)));

const [{ adaptive, peak_in_flight, upstream_ttft }] = Object.values(gate.snapshot().targets);
console.log(`300 calls at once; at most ${peak_in_flight} in flight, where ${adaptive.ceiling} might have been`);
const runs = [];
for (const { ago, from, to, cause } of adaptive.decisions) {
  if (runs.at(-1)?.cause === cause) Object.assign(runs.at(-1), { ago, to });
  else runs.push({ ago, from, to, cause });
}
for (const { ago, from, to, cause } of runs) {
  console.log(`${ago.toFixed(2)} s ago: from ${from} to ${to} slots, ${cause}`);
}
const { limit, raises, cuts, late, objective } = adaptive;
console.log(`${limit} slots now, after ${raises} raises, ${cuts} cuts; the share of late calls is ${late}`);
const [median, p99] = [upstream_ttft.p50, upstream_ttft.p99].map((seconds) => seconds.toFixed(3));
console.log(`from sending to the first token: median ${median} s, p99 ${p99} s, of ${objective} s`);
