// A pool of vLLM replicas without a router. Calls succeed although one replica is down.
import OpenAI from "openai";
import { Gate } from "tidegate";

// Instead of a list: dns: "http://vllm.svc:8000", file: "replicas.toml", or gate.setReplicas(...).
const up = process.env.OPENAI_BASE_URL ?? "http://127.0.0.1:8000/v1";
const down = "http://127.0.0.1:9";
const gate = new Gate({ targets: { llama: { ttft: "2s", wait: "30s", pool: { replicas: [up, down] } } } });
// The name of the pool is its address, which need not exist in DNS.
const client = gate.wrap(new OpenAI({ baseURL: "http://llama/v1" }));

async function ask(question) {
  const messages = [{ role: "user", content: question }];
  const stream = await client.chat.completions.create({
    model: "gpt-4o-mini",
    messages,
    max_completion_tokens: 16,
    stream: true,
  });
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
  return text;
}

const answers = await Promise.all(
  Array.from({ length: 100 }, (_, number) => ask(`What is tide gate number ${number}?`)),
);
const { llama } = gate.snapshot().targets;
console.log(
  `${answers.length} answers; ${llama.retries.elsewhere ?? 0} calls were moved from the replica that is down to the other one`,
);
for (const replica of llama.replicas) {
  console.log(`${replica.url}: ${replica.state}, ${replica.limit} slots, ${replica.in_flight} in flight`);
}
