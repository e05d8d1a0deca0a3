"""Experiment `python-cooldown`: the 429s that calls get while an upstream asks for a pause of 3 s.

100 callers start within 2 s, and the upstream answers 429 with `Retry-After` until 3 s after the
first call. The wrapped client runs beside the stock client. Each has an upstream of its own. Prints
one JSON object as its last line.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import openai

import tidegate
from experiment_support import MESSAGES, bar, note, report, scripted, seen

CALLERS, OVER, WINDOW_MS = 100, 2.0, 3000


async def measure(*, wrapped: bool) -> dict[str, Any]:
    """Sends 100 calls, one every 20 ms, through a wrapped or a stock openai client.

    Returns the number of requests that the upstream got, the number that it answered with 429, the
    number of calls that failed, and the seconds until the last call ended.
    """
    with scripted() as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/window/{WINDOW_MS}", api_key="k")
        if wrapped:
            client = tidegate.Gate().wrap(client)
        began = time.perf_counter()

        async def call(number: int) -> None:
            await asyncio.sleep(OVER * number / CALLERS)
            await client.chat.completions.create(model="small", messages=MESSAGES)

        outcomes = await asyncio.gather(*(call(n) for n in range(CALLERS)), return_exceptions=True)
        statuses = [request["status"] for request in seen(url)["requests"]]
        return {
            "upstream 429s": statuses.count(429),
            "upstream requests": len(statuses),
            "failures": sum(isinstance(outcome, BaseException) for outcome in outcomes),
            "seconds to the last answer": round(time.perf_counter() - began, 2),
        }


async def main() -> None:
    """Measures both clients, and prints the result."""
    ours, stock = await measure(wrapped=True), await measure(wrapped=False)
    note(f"wrapped: {ours}\nstock: {stock}")
    bars = [
        bar("upstream 429s", ours["upstream 429s"], "<=", 5),
        bar("failures", ours["failures"], "<=", 0),
    ]
    report("python-cooldown", ours, {"openai": stock}, bars)


asyncio.run(main())
