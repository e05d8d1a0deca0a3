"""Together's SDK: both clients wrapped."""

import asyncio

from together import AsyncTogether, Together

import tidegate

gate = tidegate.Gate()
client = gate.wrap(Together())
model = "gpt-4o-mini"  # one of Together's, such as openai/gpt-oss-20b

question = [{"role": "user", "content": "What is an estuary?"}]
answer = client.chat.completions.create(model=model, messages=question, max_tokens=16)
print(answer.choices[0].message.content)


async def main() -> None:
    """Streams one answer, and prints it."""
    asked = [{"role": "user", "content": "And a delta?"}]
    create = gate.wrap(AsyncTogether()).chat.completions.create
    async for chunk in await create(model=model, messages=asked, max_tokens=16, stream=True):
        print(chunk.choices[0].delta.content or "" if chunk.choices else "", end="")
    print()


asyncio.run(main())
