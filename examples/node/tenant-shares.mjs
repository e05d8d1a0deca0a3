// Tenants that share a model: by weight, with reserved slots, and with a token rate.
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { Gate } from "tidegate";

const gate = new Gate({
  defaults: { cap: 4 },
  tenants: { gold: { weight: 2 }, silver: { weight: 1 }, support: { floor: 0.25 }, trial: { tpm: 600 } },
});
const client = gate.wrap(new OpenAI());

const ask = (tenant, content, max_tokens = 24) =>
  gate.run({ tenant }, () => {
    const messages = [{ role: "user", content }];
    return client.chat.completions.create({ model: "gpt-4o-mini", messages, max_tokens });
  });

const crowd = Array.from({ length: 60 }, (_, number) => ask(number % 2 ? "silver" : "gold", `Question ${number}`));
await sleep(50);
await ask("support", "Does it work?");
const seen = () => Object.values(gate.snapshot().targets)[0];
console.log(`support was served by its reserved slot, while ${seen().queue_depth} calls of others waited`);
await Promise.all(crowd);

const admittedAt = ({ queued_at, attempts }) => queued_at + attempts.at(-1).admitted_at;
const calls = gate.calls().filter(({ tenant }) => tenant === "gold" || tenant === "silver");
const first = calls.sort((a, b) => admittedAt(a) - admittedAt(b)).slice(0, 30);
const gold = first.filter(({ tenant }) => tenant === "gold").length;
console.log(`of the first 30 slots: gold ${gold}, silver ${30 - gold}`);

await ask("trial", "All about tide gates", 1000);
console.log(`trial has a debt of ${seen().tenants.trial.debt} tokens, which delays only its own calls`);
