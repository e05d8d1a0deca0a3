"""Groq's SDK: both clients wrapped."""

import asyncio

from groq import AsyncGroq, Groq

import tidegate

gate = tidegate.Gate()
client = gate.wrap(Groq())
model = "gpt-4o-mini"  # one of Groq's, such as openai/gpt-oss-20b

question = [{"role": "user", "content": "What is a neap tide?"}]
answer = client.chat.completions.create(model=model, messages=question, max_completion_tokens=16)
print(answer.choices[0].message.content)


async def main() -> None:
    """Streams one answer, and prints it."""
    asked = [{"role": "user", "content": "And a spring tide?"}]
    create = gate.wrap(AsyncGroq()).chat.completions.create
    async for chunk in await create(model=model, messages=asked, max_completion_tokens=16, stream=True):
        print(chunk.choices[0].delta.content or "", end="")
    print()


asyncio.run(main())
