"""A wrapped asynchronous Anthropic client with a stream."""

import asyncio

from anthropic import AsyncAnthropic

import tidegate

gate = tidegate.Gate(defaults={"cap": 16, "wait": "30s"})
client = gate.wrap(AsyncAnthropic())


async def main() -> None:
    """Streams one answer, and prints it."""
    async with client.messages.stream(
        model="claude-haiku-4-5",
        max_tokens=16,
        messages=[{"role": "user", "content": "What is a slack tide?"}],
    ) as stream:
        async for text in stream.text_stream:
            print(text, end="")
    print()


asyncio.run(main())
