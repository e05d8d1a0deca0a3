"""ollama's clients on the gate's transports.

The clients have no timeout by default, so the deadline of the target applies.
"""

import asyncio

import ollama

import tidegate

gate = tidegate.Gate()
client = ollama.Client(transport=gate.httpx_transport(family="httpx"))
question = [{"role": "user", "content": "What is a storm surge?"}]
print(client.chat("llama3.2", question).message.content)


async def stream() -> None:
    """Streams one answer, and prints it."""
    asynchronous = ollama.AsyncClient(transport=gate.httpx_async_transport(family="httpx"))
    async for part in await asynchronous.chat("llama3.2", question, stream=True):
        print(part.message.content, end="")
    print()


asyncio.run(stream())
