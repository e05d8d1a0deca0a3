"""A batch in code: `Gate.map` over an endless source, with as many running rows as capacity allows.

The results of the first hundred rows are read in order.
"""

import asyncio
from collections.abc import AsyncIterator

from openai import AsyncOpenAI

import tidegate

gate = tidegate.Gate(defaults={"cap": 8})
client = gate.wrap(AsyncOpenAI())


async def rows() -> AsyncIterator[str]:
    """Yields rows without end. The map takes the next row only when it can start."""
    number = 0
    while True:
        yield f"row {number}"
        number += 1


async def summarise(row: str) -> str:
    """Makes the calls for one row, and returns its summary."""
    completion = await client.chat.completions.create(
        model="gpt-4o-mini", messages=[{"role": "user", "content": f"Summarise {row}"}], max_completion_tokens=8
    )
    return completion.choices[0].message.content or ""


async def main() -> None:
    """Summarises a hundred rows in order. Leaving the loop cancels the running ones."""
    async for result in gate.map(summarise, rows(), ordered=True, tenant="nightly"):
        result.get()  # Raises the error of the row, which is also in `result.error`.
        if result.index == 99:
            break
    [target] = gate.snapshot()["targets"].values()
    print(f"100 summaries, {target['peak_in_flight']} at once")


asyncio.run(main())
