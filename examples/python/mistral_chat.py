"""Mistral's SDK with both httpx clients of the gate.

The SDK makes no retries unless you pass `retry_config`, which would repeat the gate's attempts.
"""

import asyncio
import os

from mistralai.client import Mistral

import tidegate

gate = tidegate.Gate()
client = Mistral(
    api_key=os.environ["MISTRAL_API_KEY"],
    server_url=os.environ.get("MISTRAL_BASE_URL"),  # for a simulator; without it, Mistral's own server
    client=gate.httpx_client(),
    async_client=gate.httpx_async_client(),
)
model = "gpt-4o-mini"  # one of Mistral's, such as mistral-small-latest

question = [{"role": "user", "content": "What is a tidal bore?"}]
print(client.chat.complete(model=model, messages=question, max_tokens=16).choices[0].message.content)


async def main() -> None:
    """Streams one answer, and prints it."""
    asked = [{"role": "user", "content": "And a whirlpool?"}]
    async for event in await client.chat.stream_async(model=model, messages=asked, max_tokens=16):
        print(event.data.choices[0].delta.content or "", end="")
    print()


asyncio.run(main())
