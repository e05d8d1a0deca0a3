// Tenants share one model: by weight while all want it, a floor for one that comes seldom, a budget for one that takes much.
import OpenAI from "openai";
import { Gate } from "tidegate";

const gate = new Gate({
  defaults: { cap: 4 },
  tenants: { gold: { weight: 2 }, silver: { weight: 1 }, support: { floor: 0.25 }, trial: { tpm: 600 } },
});
const client = gate.wrap(new OpenAI());
const messages = [{ role: "user", content: "What is a tide gate?" }];

const ask = (tenant, max_tokens = 4) =>
  gate.run({ tenant }, () => client.chat.completions.create({ model: "gpt-4o-mini", messages, max_tokens }));

await ask("trial", 1000);
let waiting = 60;
const crowd = Array.from({ length: waiting }, async (_, number) => {
  await ask(number % 2 ? "silver" : "gold");
  waiting--;
});
while (gate.snapshot().active < crowd.length) await new Promise(setImmediate);
await ask("support");
console.log(`support was served while ${waiting} calls of the others waited, by a slot of its own`);
await Promise.all(crowd);

const admittedAt = ({ queued_at, attempts }) => queued_at + attempts.at(-1).admitted_at;
const calls = gate.calls().filter(({ tenant }) => tenant === "gold" || tenant === "silver");
const first = calls.sort((a, b) => admittedAt(a) - admittedAt(b)).slice(0, 30);
const gold = first.filter(({ tenant }) => tenant === "gold").length;
console.log(`of the first 30 slots: gold ${gold}, silver ${30 - gold}`);
const [target] = Object.values(gate.snapshot().targets);
console.log(`trial owes ${target.tenants.trial.debt} tokens, and nobody else waits for them`);
