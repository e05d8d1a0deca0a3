"""LangChain: both http clients, since `invoke` takes the one and `ainvoke` the other."""

import asyncio

from langchain_openai import ChatOpenAI

import tidegate

gate = tidegate.Gate()
model = ChatOpenAI(
    model="gpt-4o-mini",
    max_completion_tokens=16,
    http_client=gate.httpx_client(),
    http_async_client=gate.httpx_async_client(),
    stream_usage=True,  # What LangChain asks for by itself only while the http clients are its own.
)

print(model.invoke("What is a slack tide?").text)


async def main() -> None:
    """Stream an answer, which ends with its usage."""
    tokens = 0
    async for chunk in model.astream("And a rip tide?"):
        print(chunk.text, end="")
        tokens += chunk.usage_metadata["output_tokens"] if chunk.usage_metadata else 0
    print(f"\n{tokens} tokens")


asyncio.run(main())
