"""OpenAI's Responses API through a wrapped client: a complete answer, then a stream."""

from openai import OpenAI

import tidegate

gate = tidegate.Gate()
client = gate.wrap(OpenAI())

response = client.responses.create(model="gpt-4o-mini", input="What is a spring tide?", max_output_tokens=16)
print(response.output_text)

for event in client.responses.create(model="gpt-4o-mini", input="And a neap tide?", max_output_tokens=16, stream=True):
    if event.type == "response.output_text.delta":
        print(event.delta, end="")
print()
