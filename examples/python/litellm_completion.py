"""LiteLLM with every provider that it calls through OpenAI's SDK.

Do not set `num_retries`, and set it to 0 for a Router, because LiteLLM would repeat the gate's
attempts. LiteLLM's clients of other providers (`anthropic/`, `gemini/`, `bedrock/`) accept no
transport and bypass the gate.
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
    """Streams one answer, and prints it."""
    asked = [{"role": "user", "content": "And a meteotsunami?"}]
    stream = await litellm.acompletion(model="openai/gpt-4o-mini", messages=asked, max_tokens=16, stream=True)
    async for chunk in stream:
        print(chunk.choices[0].delta.content or "", end="")
    print()


asyncio.run(main())
