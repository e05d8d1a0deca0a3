"""A latency objective instead of a cap: the gate adapts the limit, and explains each change."""

import asyncio
from itertools import groupby

from openai import AsyncOpenAI

import tidegate

# Half of the objective is for the queue and half for the model. The simulated model is twenty times
# as fast as a real one, for which the objective would be 2 s. Without `wait`, calls that can no
# longer meet the objective are rejected.
gate = tidegate.Gate(defaults={"ttft": "100ms", "wait": "60s"})
client = gate.wrap(AsyncOpenAI())


async def ask(question: str) -> None:
    """Makes one call, and reads its stream to the end."""
    messages = [{"role": "user", "content": question}]
    stream = await client.chat.completions.create(
        model="gpt-4o-mini", messages=messages, max_completion_tokens=32, stream=True
    )
    async for _ in stream:
        pass


async def main() -> None:
    """Makes one call, then far more calls at once than the model can serve."""
    await ask("What is a tide gate?")
    await asyncio.gather(*(ask(f"What is tide gate number {number}?") for number in range(300)))

    [target] = gate.snapshot()["targets"].values()
    limit, ttft = target["adaptive"], target["upstream_ttft"]
    if limit is None:
        raise SystemExit("the limit is fixed")
    print(f"300 calls at once; at most {target['peak_in_flight']} in flight, where {limit['ceiling']} might have been")
    for cause, alike in groupby(limit["decisions"], key=lambda move: move["cause"]):
        moves = list(alike)
        print(f"{moves[-1]['ago']:.2f} s ago: from {moves[0]['from']} to {moves[-1]['to']} slots, {cause}")
    moves = f"{limit['raises']} raises, {limit['cuts']} cuts"
    print(f"{limit['limit']} slots now, after {moves}; the share of late calls is {limit['late']}")
    median, p99 = ttft["p50"] or 0, ttft["p99"] or 0
    print(f"from sending to the first token: median {median:.3f} s, p99 {p99:.3f} s, of {limit['objective']} s")


asyncio.run(main())
