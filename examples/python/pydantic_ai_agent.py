"""Pydantic AI: a provider with a wrapped client."""

import asyncio

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import tidegate

gate = tidegate.Gate()
provider = OpenAIProvider(openai_client=gate.wrap(AsyncOpenAI()))
agent = Agent(OpenAIChatModel("gpt-4o-mini", provider=provider), model_settings={"max_tokens": 16})


async def main() -> None:
    """Makes one call and reads one stream."""
    print((await agent.run("What is a tidal bore?")).output)
    async with agent.run_stream("And an ebb tide?") as answer:
        async for text in answer.stream_text(delta=True):
            print(text, end="")
    print()


asyncio.run(main())
