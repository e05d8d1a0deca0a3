"""The packages of one environment, against a scripted upstream: prints a line of JSON for each.

    python framework_probe.py URL NAME ...     NAMEs of functions in `framework_clients.py`

    {"package", "stock": {SCENARIO: CELL}, "ours": {SCENARIO: CELL}, "in_flight"}

A CELL is one call: `attempts` (seen by the upstream), `ended` (`answered`, `quietly`, `cancelled`, or the class of what
was raised) and, where the call was cancelled, `closed`: whether the upstream saw it over `at once`, `when collected`
(garbage) or `never`. `in_flight` is the gate's count afterwards.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import framework_clients
import tidegate
from row import note, seen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from framework_clients import Held

#: What to do at which path.
ASK = {"429 once": "once/429", "429 for ever": "fail/429", "500 for ever": "fail/500"}
READ = {"truncated stream": "cut/stream"}
CANCEL = {"cancelled before headers": "stall/head", "cancelled mid-stream": "stall/stream"}
#: The distribution of each package, by how its functions' names begin.
PACKAGES = {
    "openai": "openai",
    "anthropic": "anthropic",
    "langchain_openai": "langchain-openai",
    "openai_agents": "openai-agents",
    "pydantic_ai": "pydantic-ai-slim",
    "google_genai": "google-genai",
    "litellm": "litellm",
    "llama_index": "llama-index-llms-openai",
    "httpx": "httpx",
    "httpx2": "httpx2",
}
#: Seconds. LlamaIndex gives up after 60 of its own.
LONGEST = 120
#: Seconds after which what the upstream has sent is surely here.
SETTLED = 0.3
#: Seconds in which an upstream hears of a cancelled call, or never.
PATIENCE = 2.0


async def ask(held: Held, _: str, __: Callable[[], Any]) -> str:
    """Make one call."""
    await held.ask()
    return "answered"


async def read(held: Held, _: str, __: Callable[[], Any]) -> str:
    """Read one stream to its end."""
    async for _part in held.stream():
        pass
    return "quietly"


async def cancel(held: Held, where: str, arrived: Callable[[], Any]) -> str:
    """Start one call or stream, and cancel it once the upstream has it, or has sent what it will."""
    if held.blocking:
        return await leave(held, where)
    text = asyncio.Event()
    task = asyncio.ensure_future(held.ask() if where == "head" else drain(held.stream(), text))
    if where == "stream":
        await text.wait()
    while not await asyncio.to_thread(arrived):
        await asyncio.sleep(0.05)
    # Some frameworks have events of their own to tell before the first of the model's.
    await asyncio.sleep(SETTLED)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return "cancelled"
    return "quietly"


async def leave(held: Held, where: str) -> str:
    """Close a synchronous stream after its first part. No thread that waits for headers can be told to stop."""
    if where == "head":
        return "no way to"
    stream: Any = held.stream()
    await anext(stream)
    await stream.aclose()
    return "cancelled"


async def drain(stream: AsyncIterator[object], text: asyncio.Event) -> None:
    """Read a stream, and say when something of it is here."""
    async for _ in stream:
        text.set()


async def still_open(requests: Callable[[], list[dict[str, Any]]]) -> bool:
    """Whether the upstream has not heard in time that all of these are over."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + PATIENCE
    while is_open := any(not request["closed_at"] for request in await asyncio.to_thread(requests)):
        if clock() >= deadline:
            break
        await asyncio.sleep(0.05)
    return is_open


async def measure(name: str, url: str, gate: tidegate.Gate | None) -> dict[str, Any]:
    """Play every scenario at once, each at a path and with a key of its own."""
    who = f"{name}-{'ours' if gate else 'stock'}"
    make = getattr(framework_clients, name)

    def of(path: str) -> list[dict[str, Any]]:
        return [request for request in seen(url)["requests"] if request["path"].startswith(f"/{path}/{who}/")]

    async def cell(path: str, play: Callable[..., Any]) -> dict[str, Any]:
        held = make(f"{url}/{path}/{who}", f"{who}-{path}", gate)
        try:
            ended = await asyncio.wait_for(play(held, path.partition("/")[2], lambda: of(path)), LONGEST)
        except Exception as error:  # noqa: BLE001 - which one is what we ask
            ended = type(error).__name__
        if play is not cancel:
            return {"attempts": len(of(path)), "ended": ended}
        del held
        told = "at once"
        if left_open := await still_open(lambda: of(path)):
            gc.collect()
            told = "when collected"
            left_open = await still_open(lambda: of(path))
        return {"attempts": len(of(path)), "ended": ended, "closed": "never" if left_open else told}

    plays = {**dict.fromkeys(ASK, ask), **dict.fromkeys(READ, read), **dict.fromkeys(CANCEL, cancel)}
    paths = {**ASK, **READ, **CANCEL}
    cells = await asyncio.gather(*(cell(path, plays[scenario]) for scenario, path in paths.items()))
    return dict(zip(paths, cells, strict=True))


def titled(name: str) -> str:
    """Return the package of that function with its version, and what is particular."""
    package = max((known for known in PACKAGES if name.startswith(known)), key=len)
    particular = name.removeprefix(package).strip("_").replace("_", " ")
    title = f"{package.replace('_', '-')} {version(PACKAGES[package])}"
    return f"{title}, {particular}" if particular else title


async def main() -> None:
    """Play all."""
    url, *names = sys.argv[1:]
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
    logging.disable(logging.CRITICAL)
    # LiteLLM prints advice where results go.
    results, sys.stdout = sys.stdout, sys.stderr
    for name in names:
        gate = tidegate.Gate()
        stock, ours = await measure(name, url, None), await measure(name, url, gate)
        in_flight = sum(target["in_flight"] for target in gate.snapshot()["targets"].values())
        line = {"package": titled(name), "stock": stock, "ours": ours, "in_flight": in_flight}
        note(json.dumps(line))
        print(json.dumps(line), file=results, flush=True)  # noqa: T201


asyncio.run(main())
