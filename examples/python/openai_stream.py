"""Streams: a call holds its slot until its stream ends or is closed.

A stream that ends without the provider's final event raises an error.
"""

import asyncio

from openai import AsyncOpenAI

import tidegate

gate = tidegate.Gate()
client = gate.wrap(AsyncOpenAI())


async def main() -> None:
    """Reads one stream to its end, and closes another after its first part."""
    question = {"role": "user", "content": "Tell me about the sea."}
    stream = await client.chat.completions.create(
        model="gpt-4o-mini", messages=[question], max_completion_tokens=16, stream=True
    )
    async for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="")
    print()

    async with client.chat.completions.stream(model="gpt-4o-mini", messages=[question]) as events:
        async for event in events:
            if event.type == "content.delta":
                break  # Leaving closes the stream, ends the generation and releases the slot.

    [target] = gate.snapshot()["targets"].values()
    print(f"in flight: {target['in_flight']}")


asyncio.run(main())
