"""Google's Gen AI SDK with both httpx clients of the gate.

The example makes a synchronous and an asynchronous call. Each uses the client of its kind.
"""

import asyncio

from google import genai
from google.genai import types

import tidegate

gate = tidegate.Gate()
client = genai.Client(
    http_options=types.HttpOptions(
        httpx_client=gate.httpx_client(),
        httpx_async_client=gate.httpx_async_client(),
    )
)
brief = types.GenerateContentConfig(max_output_tokens=16)

answer = client.models.generate_content(model="gemini-2.5-flash", contents="What is a slack tide?", config=brief)
print(answer.text)


async def main() -> None:
    """Streams one answer, and prints it."""
    stream = await client.aio.models.generate_content_stream(
        model="gemini-2.5-flash", contents="And a king tide?", config=brief
    )
    async for chunk in stream:
        print(chunk.text or "", end="")
    print()


asyncio.run(main())
