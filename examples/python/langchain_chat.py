"""LangChain: a wrapped chat model, with both of its clients.

For other classes, such as `OpenAIEmbeddings`, pass `http_client=gate.httpx_client()` and
`http_async_client=gate.httpx_async_client()`. With these arguments, a chat model does not request
`stream_usage` by itself.
"""

import asyncio

from langchain_openai import ChatOpenAI

import tidegate

gate = tidegate.Gate()
# LangChain requests the usage of streams by itself only from OpenAI's own address.
model = gate.wrap(ChatOpenAI(model="gpt-4o-mini", max_completion_tokens=16, stream_usage=True))

print(model.invoke("What is a slack tide?").text)


async def main() -> None:
    """Streams an answer, and prints it with the token usage that it ends with."""
    tokens = 0
    async for chunk in model.astream("And a rip tide?"):
        print(chunk.text, end="")
        tokens += chunk.usage_metadata["output_tokens"] if chunk.usage_metadata else 0
    print(f"\n{tokens} tokens")


asyncio.run(main())
