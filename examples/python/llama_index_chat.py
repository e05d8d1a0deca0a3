"""LlamaIndex with wrapped openai clients.

`max_retries=0` switches off LlamaIndex's own retries, because they ignore Retry-After.
"""

import asyncio

import openai
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAI

import tidegate

gate = tidegate.Gate()
llm = OpenAI(
    model="gpt-4o-mini",
    max_tokens=16,
    openai_client=gate.wrap(openai.OpenAI()),
    async_openai_client=gate.wrap(openai.AsyncOpenAI()),
    max_retries=0,
)

print(llm.chat([ChatMessage("What is a tide pool?")]).message.content)


async def main() -> None:
    """Streams one answer, and prints it."""
    async for part in await llm.astream_chat([ChatMessage("And a tide table?")]):
        print(part.delta or "", end="")
    print()


asyncio.run(main())
