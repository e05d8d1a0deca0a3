"""LangChain: wrap the chat model, which holds a client for `invoke` and one for `ainvoke`.

What has no `gate.wrap`, such as `OpenAIEmbeddings`, takes both `http_client=gate.httpx_client()` and
`http_async_client=gate.httpx_async_client()`; a chat model so given no longer asks for `stream_usage` by itself.
"""

import asyncio

from langchain_openai import ChatOpenAI

import tidegate

gate = tidegate.Gate()
# LangChain asks for the usage of streams by itself only at OpenAI's own address.
model = gate.wrap(ChatOpenAI(model="gpt-4o-mini", max_completion_tokens=16, stream_usage=True))

print(model.invoke("What is a slack tide?").text)


async def main() -> None:
    """Stream an answer, which ends with its usage."""
    tokens = 0
    async for chunk in model.astream("And a rip tide?"):
        print(chunk.text, end="")
        tokens += chunk.usage_metadata["output_tokens"] if chunk.usage_metadata else 0
    print(f"\n{tokens} tokens")


asyncio.run(main())
