"""An asynchronous httpx2 client of the gate that reads a stream.

Leaving the `with` block of the stream closes it.
"""

import asyncio
import os

import tidegate

gate = tidegate.Gate(defaults={"cap": 4})
base_url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}


async def main() -> None:
    """Reads one stream, and prints the number of its events."""
    question = {"role": "user", "content": "When is low water?"}
    body = {"model": "gpt-4o-mini", "messages": [question], "max_completion_tokens": 8, "stream": True}
    events = 0
    async with (
        gate.httpx_async_client(family="httpx2", headers=headers) as http,
        http.stream("POST", f"{base_url}/chat/completions", json=body) as response,
    ):
        response.raise_for_status()
        async for line in response.aiter_lines():
            events += line.startswith("data: ")
    print(f"{events} events")


asyncio.run(main())
