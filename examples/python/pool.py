"""A pool of vLLM replicas without a router. Calls succeed although one replica is down."""

import asyncio
import os

from openai import AsyncOpenAI

import tidegate

# Instead of a list: dns="http://vllm.svc:8000", file="replicas.toml", or gate.set_replicas(...).
up, down = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"), "http://127.0.0.1:9"
gate = tidegate.Gate(targets={"llama": {"ttft": "2s", "wait": "30s", "pool": {"replicas": [up, down]}}})
# The name of the pool is its address, which need not exist in DNS.
client = gate.wrap(AsyncOpenAI(base_url="http://llama/v1"))


async def ask(question: str) -> str:
    """Makes one call, and returns the text of its stream."""
    messages = [{"role": "user", "content": question}]
    stream = await client.chat.completions.create(
        model="gpt-4o-mini", messages=messages, max_completion_tokens=16, stream=True
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def main() -> None:
    """Makes a hundred calls at once and prints the state of the replicas."""
    answers = await asyncio.gather(*(ask(f"What is tide gate number {number}?") for number in range(100)))
    llama = gate.snapshot()["targets"]["llama"]
    hops = llama["retries"].get("elsewhere", 0)
    print(f"{len(answers)} answers; {hops} calls were moved from the replica that is down to the other one")
    for replica in llama["replicas"]:
        print(f"{replica['url']}: {replica['state']}, {replica['limit']} slots, {replica['in_flight']} in flight")


asyncio.run(main())
