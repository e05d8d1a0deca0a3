"""Set one objective and walk away: the gate finds how many calls the model takes at once, and says why it moved."""

import asyncio

from openai import AsyncOpenAI

import tidegate

gate = tidegate.Gate(defaults={"ttft": "1s"})  # no cap: half of a second for the queue, half of it for the model
client = gate.wrap(AsyncOpenAI())


async def ask(question: str) -> None:
    """Make one call, and read its answer as it comes."""
    messages = [{"role": "user", "content": question}]
    stream = await client.chat.completions.create(
        model="gpt-4o-mini", messages=messages, max_completion_tokens=32, stream=True
    )
    async for _ in stream:
        pass


async def main() -> None:
    """Ask once, then far more at once than anybody should let through unasked."""
    await ask("What is a tide gate?")
    await asyncio.gather(*(ask(f"What is tide gate number {number}?") for number in range(400)))

    [target] = gate.snapshot()["targets"].values()
    limit, ttft = target["adaptive"], target["upstream_ttft"]
    if limit is None:
        raise SystemExit("the limit is fixed")
    print(f"400 calls at once; at most {target['peak_in_flight']} in flight, where {limit['ceiling']} might have been")
    for move in limit["decisions"]:
        print(f"{move['ago']:.2f} s ago from {move['from']} to {move['to']} slots: {move['cause']}")
    moves = f"{limit['raises']} raises, {limit['cuts']} cuts"
    print(f"{limit['limit']} slots now, after {moves}; the share of late calls is {limit['late']}")
    median, p99 = ttft["p50"] or 0, ttft["p99"] or 0
    print(f"from sending to the first token: median {median:.3f} s, p99 {p99:.3f} s, of {limit['objective']} s")


asyncio.run(main())
