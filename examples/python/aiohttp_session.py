"""A session of aiohttp whose calls go through the gate: concurrent calls, and a stream.

For a session with settings of your own: `aiohttp.ClientSession(middlewares=[gate.aiohttp_middleware()])`.
"""

import asyncio
import os

import aiohttp

import tidegate

gate = tidegate.Gate(defaults={"cap": 4})
url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions"
headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}


async def ask(http: aiohttp.ClientSession, number: int) -> str:
    """Makes one call, and returns the text of the answer."""
    messages = [{"role": "user", "content": f"When is high water number {number}?"}]
    body = {"model": "gpt-4o-mini", "messages": messages, "max_completion_tokens": 8}
    async with http.post(url, json=body) as response:
        return (await response.json())["choices"][0]["message"]["content"]


async def main() -> None:
    """Makes one call, then eight at once, and reads one stream."""
    async with gate.aiohttp_session(headers=headers, raise_for_status=True) as http:
        print(await ask(http, 0))
        answers = await asyncio.gather(*(ask(http, number) for number in range(1, 9)))
        print(len(answers), "answers")
        messages = [{"role": "user", "content": "And low water?"}]
        body = {"model": "gpt-4o-mini", "messages": messages, "max_completion_tokens": 8, "stream": True}
        async with http.post(url, json=body) as response:
            print(len([line async for line in response.content if line.startswith(b"data:")]), "events")


asyncio.run(main())
