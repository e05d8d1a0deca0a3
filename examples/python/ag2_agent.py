"""AG2: an agent whose model configuration has the gate's httpx client."""

import asyncio

from ag2 import Agent
from ag2.config import OpenAIConfig

import tidegate

gate = tidegate.Gate()
config = OpenAIConfig("gpt-4o-mini", http_client=gate.httpx_async_client(), max_completion_tokens=16)
agent = Agent("pilot", "Answer briefly.", config=config)


async def main() -> None:
    """Asks two questions in a conversation, and prints the answers."""
    reply = await agent.ask("What is a pilot boat?")
    print(reply.body)
    reply = await reply.ask("And a tug?")
    print(reply.body)


asyncio.run(main())
