"""Experiment `python-cancel`: the time from cancelling a task until the upstream sees the close.

Tasks are cancelled before headers; while they await a chunk; between chunks, while the reader of a
stream is busy; twenty at once in one task group; and before they begin, in which case no call may
arrive. The comparisons are the stock openai client and httpx2. Prints one JSON object as its last
line.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from typing import TYPE_CHECKING, Any

import httpx2
import openai

import tidegate
from experiment_support import MESSAGES, bar, note, report, scripted, seen

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    #: Makes a call with a stage, an id, and a function to call when the call can be cancelled.
    Call = Callable[[str, str, Callable[[], None]], Coroutine[Any, Any, None]]

CALLS, TOGETHER = 400, 20
#: Seconds until a call without headers has certainly reached the upstream.
UNDER_WAY = 0.1
#: The stages in which calls are cancelled: `head` (before headers), `stream` (while the next chunk
#: is awaited), `between chunks` (while the reader of the stream is busy), and `group` (like
#: `stream`, with several calls in one task group).
STAGES = ("head", "stream", "between chunks", "group")
#: The upstream's behaviour in each stage.
PATHS = {"head": "head"}


def through_sdk(client: openai.AsyncOpenAI) -> Call:
    """Returns a function that makes one call through an SDK client, and waits in a given stage.

    The stage is one of `STAGES`. It selects the end of the base URL, and so how far the upstream
    answers.
    """

    async def call(stage: str, name: str, ready: Callable[[], None]) -> None:
        path = PATHS.get(stage, "stream")
        stream = await client.with_options(base_url=f"{client.base_url}{path}").chat.completions.create(
            model="small", messages=MESSAGES, stream=True, extra_headers={"x-id": name}
        )
        async for _ in stream:
            ready()
            if stage == "between chunks":
                await asyncio.Event().wait()

    return call


def through_httpx(client: httpx2.AsyncClient, url: str) -> Call:
    """Returns a function that makes one call without an SDK, and waits in one of the `STAGES`."""

    async def call(stage: str, name: str, ready: Callable[[], None]) -> None:
        body = {"model": "small", "messages": MESSAGES, "stream": True}
        path = PATHS.get(stage, "stream")
        async with client.stream("POST", f"{url}/stall/{path}", json=body, headers={"x-id": name}) as response:
            async for _ in response.aiter_raw():
                ready()
                if stage == "between chunks":
                    await asyncio.Event().wait()

    return call


async def cancelled(call: Call, stage: str, name: str) -> float:
    """Cancels a call in the given stage, and returns the time of the cancellation.

    The time is in seconds on the monotonic clock. The call is started here, with the id `name`.
    `stage` is one of `STAGES` other than `group`.
    """
    reached = asyncio.Event()
    task = asyncio.create_task(call(stage, name, reached.set))
    await (asyncio.sleep(UNDER_WAY) if stage == "head" else reached.wait())
    at = time.monotonic()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return at


async def cancelled_as_group(call: Call, stage: str, names: list[str]) -> list[float]:
    """Starts a call for each of `names` in one task group, and cancels the group mid-stream.

    Returns the time of the cancellation, once for each call, on the monotonic clock in seconds.
    """
    reached = {name: asyncio.Event() for name in names}

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(call(stage, name, reached[name].set))

    task = asyncio.create_task(group())
    for event in reached.values():
        await event.wait()
    at = time.monotonic()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return [at] * len(names)


async def never_begun(call: Call, url: str) -> int:
    """Cancels the tasks of `CALLS` calls before they run.

    Returns the number of calls that arrived at the upstream nevertheless.
    """
    names = [f"{id(call)}-early-{n}" for n in range(CALLS)]
    tasks = [asyncio.create_task(call("stream", name, lambda: None)) for name in names]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await asyncio.sleep(UNDER_WAY)
    return len({request["id"] for request in seen(url)["requests"]} & set(names))


async def measure(call: Call, url: str, stage: str) -> dict[str, Any]:
    """Cancels `CALLS` calls in the given stage, and returns how fast the upstream saw the closes.

    Returns the quantiles of the milliseconds from a cancellation until the upstream saw the close
    of the call, and the number of calls whose close it did not see. `stage` is one of `STAGES`.
    """
    when: dict[str, float] = {}
    for batch in batches():
        names = [f"{id(call)}-{stage}-{n}" for n in batch]
        if stage == "group":
            times = await cancelled_as_group(call, stage, names)
        else:
            times = await asyncio.gather(*(cancelled(call, stage, name) for name in names))
        when.update(zip(names, times, strict=True))
    await asyncio.sleep(1)
    closed = {request["id"]: request["closed_at"] for request in seen(url)["requests"]}
    took = [(closed[name] - at) * 1e3 for name, at in when.items() if closed.get(name) is not None]
    centiles = statistics.quantiles(took, n=100) if len(took) > 1 else [float("inf")] * 99
    return {"p50 ms": round(centiles[49], 2), "p99 ms": round(centiles[98], 2), "never seen": CALLS - len(took)}


def batches() -> list[range]:
    """Returns the numbers 0 to `CALLS` - 1 in batches of `TOGETHER` numbers.

    The calls of a batch are made and cancelled concurrently.
    """
    return [range(first, first + TOGETHER) for first in range(0, CALLS, TOGETHER)]


async def main() -> None:
    """Measures all clients in all stages, and prints the result."""
    with scripted() as url:
        # An adaptive limit would begin below the calls of a batch, and the others would never arrive.
        gate = tidegate.Gate(defaults={"cap": CALLS})
        stock = openai.AsyncOpenAI(base_url=f"{url}/stall", api_key="k", timeout=60)
        async with httpx2.AsyncClient(timeout=60) as plain:
            variants = {
                "wrapped": through_sdk(gate.wrap(stock)),
                "openai": through_sdk(stock),
                "httpx2": through_httpx(plain, url),
            }
            results: dict[str, dict[str, Any]] = {name: {} for name in variants}
            for name, call in variants.items():
                for stage in STAGES:
                    results[name][stage] = await measure(call, url, stage)
                results[name]["sent though cancelled before"] = await never_begun(call, url)
                note(f"{name}: {results[name]}")
        ours = results.pop("wrapped")
        ours["in flight afterwards"] = sum(t["in_flight"] for t in gate.snapshot()["targets"].values())
    bars = [bar(f"p99 ms until the upstream sees it, {s}", ours[s]["p99 ms"], "<=", 50) for s in STAGES]
    bars += [bar(f"never seen, {s}", ours[s]["never seen"], "<=", 0) for s in STAGES]
    bars.append(bar("sent though cancelled before", ours["sent though cancelled before"], "<=", 0))
    bars.append(bar("in flight afterwards", ours["in flight afterwards"], "<=", 0))
    report("python-cancel", ours, results, bars)


asyncio.run(main())
