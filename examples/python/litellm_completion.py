"""LiteLLM's OpenAI path, which is every provider that it calls by OpenAI's SDK.

Leave `num_retries` unset, and a Router's at 0: a loop of LiteLLM's own would run the gate's attempts again. Its
other providers (`anthropic/`, `gemini/`, `bedrock/`, ...) have clients that take no transport: they pass by the gate.
"""

import asyncio

import litellm

import tidegate

gate = tidegate.Gate()
litellm.client_session = gate.httpx_client(family="httpx")
litellm.aclient_session = gate.httpx_async_client(family="httpx")

question = [{"role": "user", "content": "What is a storm surge?"}]
answer = litellm.completion(model="openai/gpt-4o-mini", messages=question, max_tokens=16)
print(answer.choices[0].message.content)


async def main() -> None:
    """Stream one answer."""
    asked = [{"role": "user", "content": "And a meteotsunami?"}]
    stream = await litellm.acompletion(model="openai/gpt-4o-mini", messages=asked, max_tokens=16, stream=True)
    async for chunk in stream:
        print(chunk.choices[0].delta.content or "", end="")
    print()


asyncio.run(main())
