"""Guidance: an OpenAI model with the gate's httpx client."""

from guidance import assistant, gen, user
from guidance.models import OpenAI

import tidegate

gate = tidegate.Gate()
model = OpenAI("gpt-4o-mini", http_client=gate.httpx_client(), echo=False)

with user():
    model += "What is a groyne?"
with assistant():
    model += gen("answer", max_tokens=16)
print(model["answer"])
