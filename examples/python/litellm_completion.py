"""LiteLLM with several providers: one line sends all its HTTP requests through the gate.

Do not set `num_retries`, and set it to 0 for a Router, because LiteLLM would repeat the gate's
attempts. For `hosted_vllm/`, set `HOSTED_VLLM_API_BASE` to the URL of the server.
"""

import asyncio

import litellm

import tidegate

gate = tidegate.Gate()
gate.litellm()

MODELS = [
    "openai/gpt-4o-mini",
    "hosted_vllm/gpt-4o-mini",
    "anthropic/claude-haiku-4-5",
    "gemini/gemini-2.5-flash",
]


def ask(model: str) -> None:
    """Asks one question, and prints the answer."""
    question = [{"role": "user", "content": "What is a storm surge?"}]
    answer = litellm.completion(model=model, messages=question, max_tokens=16)
    print(f"{model}: {answer.choices[0].message.content}")


async def stream(model: str) -> None:
    """Streams one answer, and prints its number of chunks."""
    question = [{"role": "user", "content": "And a meteotsunami?"}]
    chunks = await litellm.acompletion(model=model, messages=question, max_tokens=16, stream=True)
    print(f"{model}: {len([chunk async for chunk in chunks])} chunks")


async def stream_all() -> None:
    """Streams one answer of each model, all at once."""
    await asyncio.gather(*map(stream, MODELS))


for model in MODELS:
    ask(model)
asyncio.run(stream_all())
print(f"{len(gate.calls())} calls went through the gate")
