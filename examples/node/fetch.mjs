// The standard fetch, through the gate.
import { Gate } from "tidegate";

const { OPENAI_BASE_URL, OPENAI_API_KEY } = process.env;
const { fetch } = new Gate();

const response = await fetch(`${OPENAI_BASE_URL}/chat/completions`, {
  method: "POST",
  headers: { "content-type": "application/json", authorization: `Bearer ${OPENAI_API_KEY}` },
  body: JSON.stringify({
    model: "gpt-4o-mini",
    messages: [{ role: "user", content: "What is a tide gate?" }],
    max_tokens: 32,
  }),
});
if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
console.log((await response.json()).choices[0].message.content);
