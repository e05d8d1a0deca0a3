"""Semantic Kernel: a chat service with a wrapped client."""

import asyncio

from openai import AsyncOpenAI
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory

import tidegate

gate = tidegate.Gate()
service = OpenAIChatCompletion(ai_model_id="gpt-4o-mini", async_client=gate.wrap(AsyncOpenAI()))
settings = OpenAIChatPromptExecutionSettings(max_completion_tokens=16)


async def main() -> None:
    """Asks one question, streams the answer to a second one, and prints both."""
    chat = ChatHistory()
    chat.add_user_message("What is a fjord?")
    print(await service.get_chat_message_content(chat, settings))
    chat.add_user_message("And a ria?")
    async for part in service.get_streaming_chat_message_content(chat, settings):
        print(part, end="")
    print()


asyncio.run(main())
