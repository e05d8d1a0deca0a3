"""A wrapped synchronous Anthropic client."""

from anthropic import Anthropic

import tidegate

gate = tidegate.Gate()
client = gate.wrap(Anthropic())

message = client.messages.create(
    model="claude-haiku-4-5",
    max_tokens=16,
    messages=[{"role": "user", "content": "What does a tide gate do?"}],
)
print("".join(block.text for block in message.content if block.type == "text"))
