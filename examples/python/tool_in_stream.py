"""A tool in the middle of a stream: the model slot is handed back meanwhile, and whoever waits can be asked why."""

import asyncio

from openai import AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk

import tidegate

gate = tidegate.Gate(defaults={"cap": 1}, tools={"search": 4})
client = gate.wrap(AsyncOpenAI())


async def ask(name: str) -> AsyncStream[ChatCompletionChunk]:
    """Return an answer that has begun. It holds a slot until it is read to its end."""
    with tidegate.context(call=name):
        messages = [{"role": "user", "content": "What is a tide gate?"}]
        return await client.chat.completions.create(
            model="gpt-4o-mini", messages=messages, max_completion_tokens=16, stream=True
        )


async def read(stream: AsyncStream[ChatCompletionChunk]) -> str:
    """Read all of it."""
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def second() -> str:
    """Make another call, in a task of its own."""
    return await read(await ask("second"))


async def main() -> None:
    """Use a tool while a stream is open, and another call waits for the one slot."""
    stream = await ask("first")
    other = asyncio.create_task(second())
    await asyncio.sleep(0.05)
    print(gate.explain("second"))
    async with gate.tool("search", yield_slot=True):
        print(f"the second answer came while the first was open: {await other!r}")
    print(f"and the first is whole: {await read(stream)!r}")


asyncio.run(main())
