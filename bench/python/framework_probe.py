"""Runs the packages of one environment against a scripted upstream, and prints JSON for each.

    python framework_probe.py MODULE URL

MODULE is a Python module with the list `PACKAGES`. For each package, one line is printed:

    {"package", "loops", "stock": {SCENARIO: CELL}, "ours": {SCENARIO: CELL}, "in_flight"}

A CELL is one call, or three in the scenario of three event loops. It has the `attempts` seen by the
upstream, and `ended`: `answered`, `quietly` (a truncated stream or a cancelled call ended without
an error), `cancelled`, `no way to` (the call cannot be cancelled, or the package has no streams),
or the class of the exception. For a cancelled call, `closed` is when the upstream saw the close:
`at once`, `when collected` (after a garbage collection) or `never`. `in_flight` is the gate's
number of calls in flight afterwards. `loops` means that the framework's own retry loop was left on.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import tidegate
from experiment_support import note, seen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from client_interface import Package, TestedClient

#: Scenarios by how the call is made. Each value is the path at the scripted upstream.
ASK = {"429 once": "once/429", "429 always": "fail/429", "500 always": "fail/500"}
READ = {"truncated stream": "cut/stream"}
LOOPS = {"three event loops": "slow/0"}
CANCEL = {"cancelled before headers": "stall/head", "cancelled mid-stream": "stall/stream"}
#: The timeout in seconds. LlamaIndex gives up after 60 s by itself.
LONGEST = 120
#: Seconds after which everything that the upstream sent has certainly arrived.
SETTLED = 0.3
#: Seconds within which the upstream must see the close of a cancelled call.
PATIENCE = 2.0


async def ask(client: TestedClient, _: str, __: Callable[[], Any]) -> str:
    """Makes one call, and returns `answered`. Its errors are raised.

    The parameters are those of `cancel`; only `client` is used.
    """
    await client.ask()
    return "answered"


async def read(client: TestedClient, _: str, __: Callable[[], Any]) -> str:
    """Reads one stream to its end, and returns `quietly`. Errors of the stream are raised.

    Returns `no way to` if the package has no streams.

    The parameters are those of `cancel`; only `client` is used.
    """
    if not client.stream:
        return "no way to"
    async for _part in client.stream():
        pass
    return "quietly"


async def in_loops(client: TestedClient, _: str, __: Callable[[], Any]) -> str:
    """Makes one call in each of three new event loops in turn, and returns `answered`.

    Programs that call `asyncio.run` repeatedly do the same. Of the parameters, only `client` is
    used.
    """
    for _call in range(3):
        await asyncio.to_thread(lambda: asyncio.run(called(client)))
    return "answered"


async def called(client: TestedClient) -> None:
    """Makes one call. It is a coroutine function, because `asyncio.run` accepts only coroutines."""
    await client.ask()


async def cancel(client: TestedClient, where: str, arrived: Callable[[], Any]) -> str:
    """Starts a call or a stream, cancels it, and returns `cancelled`, `quietly` or `no way to`.

    `quietly` means that the call ended without an error despite the cancellation, and `no way to`
    that the call cannot be cancelled (see `leave`). Other errors of the call are raised.

    With `where` `head`, the call is cancelled when the upstream has received it; with `stream`,
    when the first part of the stream has also arrived. `arrived` returns the requests that the
    upstream received.
    """
    if client.blocking:
        return await leave(client, where)
    text = asyncio.Event()
    task = asyncio.ensure_future(client.ask() if where == "head" else drain(client.stream(), text))
    if where == "stream":
        await text.wait()
    while not await asyncio.to_thread(arrived):  # noqa: ASYNC110 - the event is in another process
        await asyncio.sleep(0.05)
    # Some frameworks emit events of their own before the model's first event.
    await asyncio.sleep(SETTLED)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return "cancelled"
    return "quietly"


async def leave(client: TestedClient, where: str) -> str:
    """Closes a synchronous stream after its first part, and returns `cancelled`.

    With `where` `head`, returns `no way to`: a thread that waits for headers cannot be stopped. The
    same applies to packages without streams.
    """
    if where == "head" or not client.stream:
        return "no way to"
    stream: Any = client.stream()
    await anext(stream)
    await stream.aclose()
    return "cancelled"


async def drain(stream: AsyncIterator[object], text: asyncio.Event) -> None:
    """Reads a stream to its end, and sets the event `text` when the first part arrives."""
    async for _ in stream:
        text.set()


async def still_open(requests: Callable[[], list[dict[str, Any]]]) -> bool:
    """Polls the upstream for at most `PATIENCE` seconds until the client has closed all requests.

    `requests` returns the requests as the upstream recorded them. Returns `True` if one of them is
    still open, and `False` if all are closed.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + PATIENCE
    while is_open := any(not request["closed_at"] for request in await asyncio.to_thread(requests)):
        if clock() >= deadline:
            break
        await asyncio.sleep(0.05)
    return is_open


async def measure(package: Package, url: str, gate: tidegate.Gate | None) -> dict[str, Any]:
    """Runs all scenarios of one package concurrently, each with its own path and key.

    Returns the cell of each scenario (see the module). Without a gate, the stock package is
    measured.
    """
    who = f"{package.make.__name__}-{'ours' if gate else 'stock'}"

    def of(path: str) -> list[dict[str, Any]]:
        return [request for request in seen(url)["requests"] if request["path"].startswith(f"/{path}/{who}/")]

    async def cell(path: str, play: Callable[..., Any]) -> dict[str, Any]:
        client = package.make(f"{url}/{path}/{who}", f"{who}-{path}", gate)
        try:
            ended = await asyncio.wait_for(play(client, path.partition("/")[2], lambda: of(path)), LONGEST)
        except Exception as error:  # noqa: BLE001 - its type is the result
            ended = type(error).__name__
        if play is not cancel:
            return {"attempts": len(of(path)), "ended": ended}
        del client
        closed = "at once"
        if left_open := await still_open(lambda: of(path)):
            gc.collect()
            closed = "when collected"
            left_open = await still_open(lambda: of(path))
        return {"attempts": len(of(path)), "ended": ended, "closed": "never" if left_open else closed}

    plays = ((ask, ASK), (read, READ if package.has_stream_end else {}), (cancel, CANCEL), (in_loops, LOOPS))
    cells = {scenario: cell(path, play) for play, paths in plays for scenario, path in paths.items()}
    return dict(zip(cells, await asyncio.gather(*cells.values()), strict=True))


async def main() -> None:
    """Runs the scenarios of each package, stock and with a gate, and prints its line of JSON."""
    module, url = sys.argv[1:]
    packages: list[Package] = importlib.import_module(module).PACKAGES
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
    logging.disable(logging.CRITICAL)
    # LiteLLM prints advice on stdout, where results are printed.
    results, sys.stdout = sys.stdout, sys.stderr
    for package in packages:
        gate = tidegate.Gate()
        stock, ours = await measure(package, url, None), await measure(package, url, gate)
        in_flight = sum(target["in_flight"] for target in gate.snapshot()["targets"].values())
        line = {"package": package.title, "loops": package.loops, "stock": stock, "ours": ours, "in_flight": in_flight}
        note(json.dumps(line))
        print(json.dumps(line), file=results, flush=True)


asyncio.run(main())
