// A wrapped client of @anthropic-ai/sdk, with its stream helper.
import Anthropic from "@anthropic-ai/sdk";
import { Gate } from "tidegate";

const gate = new Gate();
const client = gate.wrap(new Anthropic());
const messages = [{ role: "user", content: "What is a tide gate?" }];

const stream = client.messages.stream({ model: "claude-haiku-4-5", max_tokens: 32, messages });
const message = await stream.finalMessage();
console.log(message.content[0].text);
