// Tests of an agent under overload, without a network and on virtual time.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import OpenAI from "openai";
import { Gate } from "tidegate";
import { FakeTarget, ok, rateLimited, stall, VirtualClock } from "tidegate/testing";

// The program under test: a gate, a client, and an agent that uses the client.
const gate = new Gate({ targets: { models: { cap: 8 } } });
const client = gate.wrap(new OpenAI({ baseURL: "https://models.example.com/v1", apiKey: "sk-none" }));

async function agent(number, signal) {
  const messages = [{ role: "user", content: `Summarise document ${number}.` }];
  const { choices } = await client.chat.completions.create({ model: "gpt-4o-mini", messages }, { signal });
  return choices[0].message.content;
}

const clock = new VirtualClock().start();
after(() => clock.stop());

test("a fan-out survives rate limits", async () => {
  const away = rateLimited(90, { after: 0.2 }).times(8);
  const target = new FakeTarget({ answers: [away], otherwise: ok("a summary", { after: 5 }), capacity: 8 });
  await target.during(async () => {
    const said = await clock.until(Promise.all(Array.from({ length: 200 }, (_, number) => agent(number))));
    assert.ok(said.every((text) => text === "a summary"));
  });
  assert.ok(target.maxInFlight <= 8);
  assert.ok(target.calls.every(({ attempts }) => attempts.length <= 2));
  target.assertNoCallInFlight();
});

test("a call of a stalled model is cancelled", async () => {
  const target = new FakeTarget({ answers: [stall()] });
  const control = new AbortController();
  await target.during(async () => {
    setTimeout(() => control.abort(), 30_000);
    await assert.rejects(clock.until(agent(0, control.signal)));
  });
  assert.equal(target.cancelled.length, 1);
  assert.equal(target.cancelled[0].ended - target.cancelled[0].arrived, 30);
});
