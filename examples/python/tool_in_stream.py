"""A tool that is used while a stream is open: the stream's slot is released meanwhile.

The example also prints why another call waits.
"""

import asyncio

from openai import AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk

import tidegate

gate = tidegate.Gate(defaults={"cap": 1}, tools={"search": 4})
client = gate.wrap(AsyncOpenAI())


async def ask(name: str) -> AsyncStream[ChatCompletionChunk]:
    """Starts a call with the label `name`. Returns its stream, which holds a slot until its end."""
    with tidegate.context(call=name):
        messages = [{"role": "user", "content": "What is a tide gate?"}]
        return await client.chat.completions.create(
            model="gpt-4o-mini", messages=messages, max_completion_tokens=16, stream=True
        )


async def read(stream: AsyncStream[ChatCompletionChunk]) -> str:
    """Reads a stream to its end, and returns its text."""
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def second() -> str:
    """Makes the call `second`, which waits for the slot of the call `first`. Returns its text."""
    return await read(await ask("second"))


async def main() -> None:
    """Uses a tool while a stream is open and another call waits for the only slot."""
    stream = await ask("first")
    other = asyncio.create_task(second())
    await asyncio.sleep(0.05)
    print(gate.explain("second"))
    async with gate.tool("search", yield_slot=True):
        print(f"the second answer arrived while the first was open: {await other!r}")
    print(f"the first answer is complete: {await read(stream)!r}")


asyncio.run(main())
