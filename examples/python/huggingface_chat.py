"""Hugging Face's InferenceClient and AsyncInferenceClient with httpx clients of the gate.

Both factories are global: all requests of `huggingface_hub` then go through the gate.
A stream that is left early holds its slot until the inference client is closed, so use `with`.
"""

import asyncio
import os

from huggingface_hub import AsyncInferenceClient, InferenceClient, set_async_client_factory, set_client_factory

import tidegate

gate = tidegate.Gate()
set_client_factory(lambda: gate.httpx_client(family="httpx", follow_redirects=True))
set_async_client_factory(lambda: gate.httpx_async_client(family="httpx", follow_redirects=True))

base_url = os.environ.get("HF_BASE_URL")  # your endpoint; without it, Hugging Face chooses a provider
model = "gpt-4o-mini"  # one that the endpoint or the provider serves, such as openai/gpt-oss-20b

question = [{"role": "user", "content": "What is a lagoon?"}]
client = InferenceClient(base_url=base_url, timeout=600)
print(client.chat_completion(question, model=model, max_tokens=16).choices[0].message.content)


async def main() -> None:
    """Streams one answer, and prints it."""
    asked = [{"role": "user", "content": "And an atoll?"}]
    async with AsyncInferenceClient(base_url=base_url, timeout=600) as client:
        async for chunk in await client.chat_completion(asked, model=model, max_tokens=16, stream=True):
            print(chunk.choices[0].delta.content or "", end="")
    print()


asyncio.run(main())
