"""Experiment `python-cap`: 40 callers share 4 slots for calls of 1.5 s.

The experiment measures the number of calls that succeed, the time until the last one ends, and the
maximum number of calls in flight at the upstream. It compares the wrapped client with a semaphore
over the stock client, and with LiteLLM's Router with `max_parallel_requests`. Each has an upstream
of its own. Prints one JSON object as its last line.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import openai
from litellm import Router

import tidegate
from experiment_support import MESSAGES, bar, note, report, scripted, seen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CAP, CALLERS, MILLISECONDS = 4, 40, 1500
IDEAL = CALLERS / CAP * MILLISECONDS / 1000


def client(url: str) -> openai.AsyncOpenAI:
    """Returns a stock client of the upstream at `url`, which answers each call after 1.5 s."""
    return openai.AsyncOpenAI(base_url=f"{url}/slow/{MILLISECONDS}", api_key="k")


def wrapped(url: str) -> Callable[[], Awaitable[object]]:
    """Returns a function that makes one call through a gate with 4 slots."""
    gated = tidegate.Gate(defaults={"cap": CAP}).wrap(client(url))
    return lambda: gated.chat.completions.create(model="small", messages=MESSAGES)


def semaphore(url: str) -> Callable[[], Awaitable[object]]:
    """Returns a function that makes one call with a stock client under a semaphore of 4."""
    stock, slots = client(url), asyncio.Semaphore(CAP)

    async def call() -> None:
        async with slots:
            await stock.chat.completions.create(model="small", messages=MESSAGES)

    return call


def router(url: str) -> Callable[[], Awaitable[object]]:
    """Returns a function that makes one call through LiteLLM's Router with a cap of 4.

    The cap is LiteLLM's setting `max_parallel_requests`, as its documentation shows.
    """
    upstream = {"model": "openai/small", "api_base": f"{url}/slow/{MILLISECONDS}", "api_key": "k"}
    model = {"model_name": "small", "litellm_params": {**upstream, "max_parallel_requests": CAP}}
    through = Router(model_list=[model])
    return lambda: through.acompletion(model="small", messages=MESSAGES)


async def measure(make: Callable[[str], Callable[[], Awaitable[object]]]) -> dict[str, Any]:
    """Makes all 40 calls concurrently against a new upstream, with one of the limiters.

    `make` returns the function that makes one call, for the URL of the upstream. The result has the
    number of calls that succeeded; the duration of all calls, divided by the ideal duration of
    15 s; the maximum concurrency at the upstream; and the class names of the failures.
    """
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
    """Makes one call that is not measured, because the first call imports most of the client."""
    with scripted() as url:
        stock = openai.AsyncOpenAI(base_url=f"{url}/slow/0", api_key="k")
        await stock.chat.completions.create(model="small", messages=MESSAGES)


async def main() -> None:
    """Measures all three clients, and prints the result."""
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
