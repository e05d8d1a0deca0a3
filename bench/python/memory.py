"""Experiment `python-memory`: the memory of an open event stream, at 1,000 and 5,000 streams.

The gate's httpx client on asyncio runs beside stock httpx2 (1,000 streams only, because more take
minutes to open). Each figure has a fresh process, which opens a few streams, closes them, and reads
its resident size. Then the process opens all streams, each with a task that has read the first
chunk and waits for the next, and reads its resident size again. Prints one JSON object as its last
line.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2

import tidegate
from experiment_support import bar, note, report, scripted

WARM_UP, AT_ONCE, SETTLE = 16, 64, 1.0
MOST = 5_000
PLANS = {"tidegate": (1_000, MOST), "httpx2": (1_000,)}
BODY = {"model": "small", "messages": [{"role": "user", "content": "hello"}], "stream": True}


def resident() -> int:
    """Returns the resident memory of this process, in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:", 1)[1].split(maxsplit=1)[0])


def client_of(who: str) -> httpx2.AsyncClient:
    """Returns an HTTP client whose limits allow all streams of the experiment to be open together.

    `who` is `tidegate` for the gate's client, or `httpx2` for the stock one.
    """
    if who == "tidegate":
        gate = tidegate.Gate(defaults={"cap": MOST + WARM_UP})
        client: httpx2.AsyncClient = gate.httpx_async_client()
        return client
    return httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None), timeout=600)


async def read(client: httpx2.AsyncClient, url: str, gate: asyncio.Semaphore, begun: asyncio.Queue[None]) -> None:
    """Opens a stream, reads its first chunk, and waits for more until the task is cancelled.

    `gate` is a semaphore that limits how many streams are being opened at the same time. `begun`
    gets an item when the first chunk has arrived.
    """
    async with gate:
        opened = client.stream("POST", f"{url}/stall/stream/v1/chat/completions", json=BODY)
        response = await opened.__aenter__()
        chunks = response.aiter_raw()
        await anext(chunks)
    begun.put_nowait(None)
    try:
        async for _ in chunks:
            pass
    finally:
        await opened.__aexit__(None, None, None)


async def opened(client: httpx2.AsyncClient, url: str, streams: int) -> list[asyncio.Task[None]]:
    """Opens `streams` streams, and returns the tasks that keep them open, one for each stream.

    Returns after each stream has received its first chunk. Cancelling a task closes its stream.
    """
    gate, begun = asyncio.Semaphore(AT_ONCE), asyncio.Queue[None]()
    tasks = [asyncio.create_task(read(client, url, gate, begun)) for _ in range(streams)]
    for _ in tasks:
        await begun.get()
    return tasks


async def hold(who: str, url: str, streams: int) -> None:
    """Opens `streams` streams with the client `who`, and prints the memory that they take.

    The printed number is the growth of the process's resident memory, in KiB per stream.
    """
    client = client_of(who)
    for task in (warm := await opened(client, url, WARM_UP)):
        task.cancel()
    await asyncio.gather(*warm, return_exceptions=True)
    await asyncio.sleep(SETTLE)
    before = resident()
    held = await opened(client, url, streams)
    await asyncio.sleep(SETTLE)
    print((resident() - before) / streams, flush=True)  # noqa: T201
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)


def main() -> None:
    """Measures each figure in a process of its own, and prints the result."""
    figures: dict[str, dict[str, Any]] = {who: {} for who in PLANS}
    for who, plan in PLANS.items():
        for streams in plan:
            with scripted() as url:
                command = [sys.executable, __file__, who, url, str(streams)]
                kib = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0])
            figures[who][f"{streams} streams, KiB each"] = round(kib, 1)
            note(f"{who}, {streams} streams: {kib:.1f} KiB each")
    ours = figures.pop("tidegate")
    common = "1000 streams, KiB each"
    bars = [bar("memory of a stream / httpx2's", ours[common] / figures["httpx2"][common], "<=", 1)]
    report("python-memory", ours, figures, bars)


if __name__ == "__main__":
    # The limit is inherited by the server, which this process starts.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if len(sys.argv) > 1:
        asyncio.run(hold(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    else:
        main()
