"""Haystack: a chat generator whose clients are replaced by wrapped ones.

For synchronous calls only, `http_client_kwargs={"transport": gate.httpx_transport(family="httpx"),
"timeout": 600}` suffices. Haystack passes the same transport to its asynchronous client, which
cannot use it.
"""

import asyncio
import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from openai import AsyncOpenAI, OpenAI

import tidegate

gate = tidegate.Gate()
generator = OpenAIChatGenerator(model="gpt-4o-mini", generation_kwargs={"max_completion_tokens": 16})
# The generator creates these clients in `warm_up` unless they are set. Its settings `api_key`,
# `api_base_url`, `timeout` and `max_retries` apply only to clients that it creates.
generator.client = gate.wrap(OpenAI())
generator.async_client = gate.wrap(AsyncOpenAI())

print(generator.run([ChatMessage.from_user("What is a sandbar?")])["replies"][0].text)


async def main() -> None:
    """Asks one question asynchronously, and prints the answer."""
    result = await generator.run_async([ChatMessage.from_user("And a spit?")])
    print(result["replies"][0].text)


asyncio.run(main())
