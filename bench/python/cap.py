"""Experiment `python-cap`: 40 callers, 4 slots, calls of 1.5 s; the calls served, and the time of the last.

The wrapped client runs beside a semaphore over the stock client, and LiteLLM's Router with `max_parallel_requests`.
Each has an upstream of its own. Prints one JSON object as its last line.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import openai
from litellm import Router

import tidegate
from experiment import MESSAGES, bar, note, report, scripted, seen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CAP, CALLERS, MILLISECONDS = 4, 40, 1500
IDEAL = CALLERS / CAP * MILLISECONDS / 1000


def client(url: str) -> openai.AsyncOpenAI:
    """Return a stock client of the slow upstream."""
    return openai.AsyncOpenAI(base_url=f"{url}/slow/{MILLISECONDS}", api_key="k")


def wrapped(url: str) -> Callable[[], Awaitable[object]]:
    """Return a call through a gate."""
    gated = tidegate.Gate(defaults={"cap": CAP}).wrap(client(url))
    return lambda: gated.chat.completions.create(model="small", messages=MESSAGES)


def semaphore(url: str) -> Callable[[], Awaitable[object]]:
    """Return a call through a semaphore, the usual home-made limiter."""
    stock, slots = client(url), asyncio.Semaphore(CAP)

    async def call() -> None:
        async with slots:
            await stock.chat.completions.create(model="small", messages=MESSAGES)

    return call


def router(url: str) -> Callable[[], Awaitable[object]]:
    """Return a call through LiteLLM's Router with a cap as in its documentation."""
    upstream = {"model": "openai/small", "api_base": f"{url}/slow/{MILLISECONDS}", "api_key": "k"}
    model = {"model_name": "small", "litellm_params": {**upstream, "max_parallel_requests": CAP}}
    through = Router(model_list=[model])
    return lambda: through.acompletion(model="small", messages=MESSAGES)


async def measure(make: Callable[[str], Callable[[], Awaitable[object]]]) -> dict[str, Any]:
    """Make all calls at once; return the number served, the time, and the upstream's peak concurrency."""
    with scripted() as url:
        call = make(url)
        began = time.perf_counter()
        outcomes = await asyncio.gather(*(call() for _ in range(CALLERS)), return_exceptions=True)
        seconds = time.perf_counter() - began
        failures = [type(outcome).__name__ for outcome in outcomes if isinstance(outcome, BaseException)]
        return {
            "served": CALLERS - len(failures),
            "wall / ideal": round(seconds / IDEAL, 3),
            "most in flight": seen(url)["most"],
            "failures": sorted(set(failures)),
        }


async def warm() -> None:
    """Make one unmeasured call, because the first call imports half of the client."""
    with scripted() as url:
        stock = openai.AsyncOpenAI(base_url=f"{url}/slow/0", api_key="k")
        await stock.chat.completions.create(model="small", messages=MESSAGES)


async def main() -> None:
    """Measure all three, and print the result."""
    await warm()
    results = {}
    for make in (wrapped, semaphore, router):
        results[make.__name__] = await measure(make)
        note(f"{make.__name__}: {results[make.__name__]}")
    ours = results.pop("wrapped")
    bars = [
        bar("of 40 callers served", ours["served"], ">=", CALLERS),
        bar("most in flight upstream", ours["most in flight"], "<=", CAP),
        bar("wall / ideal", ours["wall / ideal"], "<=", 1.1),
    ]
    report("python-cap", ours, results, bars)


asyncio.run(main())
