"""A wrapped synchronous OpenAI client."""

from openai import OpenAI

import tidegate

gate = tidegate.Gate()
client = gate.wrap(OpenAI())

completion = client.chat.completions.create(
    model="gpt-4o-mini",
    messages=[{"role": "user", "content": "What does a tide gate do?"}],
    max_completion_tokens=16,
)
print(completion.choices[0].message.content)
