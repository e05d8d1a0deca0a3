"""A batch from code: a function over rows without end, as many at once as the gate has room for, errors row by row."""

import asyncio
from collections.abc import AsyncIterator

from openai import AsyncOpenAI

import tidegate

gate = tidegate.Gate(defaults={"cap": 8})
client = gate.wrap(AsyncOpenAI())


async def rows() -> AsyncIterator[str]:
    """Read a table that is larger than memory: no further than the answers are read."""
    number = 0
    while True:
        yield f"row {number}"
        number += 1


async def summarise(row: str) -> str:
    """Make one call, or several: whatever a row needs."""
    completion = await client.chat.completions.create(
        model="gpt-4o-mini", messages=[{"role": "user", "content": f"Summarise {row}"}], max_completion_tokens=8
    )
    return completion.choices[0].message.content or ""


async def main() -> None:
    """Summarise a hundred of them, in their order; leaving the loop ends what is still under way."""
    async for result in gate.map(summarise, rows(), ordered=True, tenant="nightly"):
        result.get()  # Raises what the row's call raised; `result.error` would keep it apart.
        if result.index == 99:
            break
    [target] = gate.snapshot()["targets"].values()
    print(f"100 summaries, {target['peak_in_flight']} at once")


asyncio.run(main())
