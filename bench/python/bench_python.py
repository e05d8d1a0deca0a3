"""Experiment `python`: the CPU cost of the package, compared with the clients that it replaces.

Each figure is a median over interleaved rounds against one upstream in a process of its own. CPU is
that of this process, including its threads (`getrusage`). "In memory" is a transport that answers
without a network, which shows the cost of the SDK's objects or of httpx's own objects. Prints
progress to stderr and, as its last line, one JSON object. Exits with 0 if it could measure.

    python bench_python.py [--rounds 5] [--calls 4000] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import httpx2
import openai

import fast_upstream
import tidegate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

BODY = json.dumps({"model": "small", "messages": [{"role": "user", "content": "x" * 220}]}).encode()
HEADERS = {"content-type": "application/json"}
MESSAGES: Any = [{"role": "user", "content": "x" * 220}]
STREAMS, EVENTS, GAP_MS = 200, 100, 20
UNBOUNDED = {"timeout": None}


def note(text: str) -> None:
    """Prints `text`, which reports progress, to stderr. Standard output is for the result."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def cpu() -> float:
    """Returns the CPU time that this process and its threads have used so far, in seconds."""
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def in_memory(family: Any) -> Any:
    """Returns an httpx transport that answers like the upstream, without a network.

    `family` is the package whose classes it uses: `httpx` or `httpx2`.
    """

    class Stream(family.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, chunks: list[bytes]) -> None:
            self.chunks = chunks

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in self.chunks:
                yield chunk

    json_head = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(fast_upstream.COMPLETION)),
    ]
    events_head = [(b"content-type", b"text/event-stream")]

    class Transport(family.AsyncBaseTransport):  # type: ignore[misc]
        async def handle_async_request(self, request: Any) -> Any:
            path = request.url.path.split("/")
            if path[1] == "sse":
                chunks = [fast_upstream.EVENT] * (int(path[2]) - 1) + [fast_upstream.EVENT + fast_upstream.LAST]
                return family.Response(200, headers=events_head, stream=Stream(chunks))
            return family.Response(200, headers=json_head, stream=Stream([fast_upstream.COMPLETION]))

    return Transport()


async def flood(calls: int, in_flight: int, call: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Makes `calls` calls with the function `call`, at most `in_flight` at a time.

    Returns calls per second and CPU microseconds per call.
    """
    left = iter(range(calls))

    async def work() -> None:
        for _ in left:
            await call()

    used, began = cpu(), time.perf_counter()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    return calls / (time.perf_counter() - began), (cpu() - used) / calls * 1e6


async def streams(one: Callable[[], AsyncIterator[bytes]]) -> tuple[float, list[float]]:
    """Opens `STREAMS` streams with `one`, and reads them concurrently.

    Returns CPU microseconds per chunk, and for each stream the milliseconds until its first chunk.
    """
    firsts: list[float] = []
    chunks = 0

    async def read() -> None:
        nonlocal chunks
        began, first = time.perf_counter(), True
        async for _ in one():
            if first:
                firsts.append((time.perf_counter() - began) * 1e3)
                first = False
            chunks += 1

    used = cpu()
    await asyncio.gather(*(read() for _ in range(STREAMS)))
    return (cpu() - used) / chunks * 1e6, firsts


class Bench:
    """The measurements of this experiment. Their samples are collected in `samples` by name."""

    def __init__(self, url: str, rounds: int, calls: int) -> None:
        """Creates a benchmark without samples.

        `url` is the base URL of the upstream. `rounds` is how often each variant is measured, and
        `calls` the number of calls in each round.
        """
        self.url, self.rounds, self.calls = url, rounds, calls
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.gate = tidegate.Gate(defaults={"cap": 1024})

    def median(self, name: str) -> float:
        """Returns the median of the samples with the given name."""
        return round(statistics.median(self.samples[name]), 2)

    async def sdk(self) -> None:
        """Measures calls through the openai client, and stores their rates and CPU times.

        The variants are a wrapped client, a stock client, and a client that is answered in memory.
        """

        def client(**kwargs: Any) -> openai.AsyncOpenAI:
            return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="k", max_retries=0, timeout=120, **kwargs)

        floor = httpx2.AsyncClient(transport=in_memory(httpx2), timeout=120)
        variants = {
            "wrapped": (self.gate.wrap(client()), self.calls),
            "floor": (client(http_client=floor), self.calls),
            # Slow enough that a tenth of the calls suffices.
            "stock": (client(), max(self.calls // 8, 600)),
        }
        for turn in range(self.rounds):
            for in_flight in (64, 512):
                for name, (sdk, calls) in variants.items():
                    rate, cost = await flood(
                        calls,
                        in_flight,
                        lambda sdk=sdk: sdk.chat.completions.create(model="small", messages=MESSAGES),  # type: ignore[misc]
                    )
                    self.samples[f"sdk {name} {in_flight}: calls/s"].append(rate)
                    self.samples[f"sdk {name} {in_flight}: us/call"].append(cost)
            note(f"sdk round {turn + 1}/{self.rounds}")

    async def transport(self) -> None:  # noqa: C901 - one measurement after the other
        """Measures calls and streams without an SDK, and stores their CPU times and latencies.

        The variants are `httpx`, `httpx2` and aiohttp, and for both httpx packages also the gate's
        client and a client that is answered in memory.
        """
        url = f"{self.url}/v1/chat/completions"
        sse = f"{self.url}/sse/{EVENTS}/{GAP_MS}"
        limits = {"limits": httpx.Limits(max_connections=None), **UNBOUNDED}
        limits2 = {"limits": httpx2.Limits(max_connections=None), **UNBOUNDED}
        clients: dict[str, Any] = {
            "tidegate httpx2": self.gate.httpx_async_client(family="httpx2", **UNBOUNDED),
            "tidegate httpx": self.gate.httpx_async_client(family="httpx", **UNBOUNDED),
            "memory httpx2": httpx2.AsyncClient(transport=in_memory(httpx2), **UNBOUNDED),
            "memory httpx": httpx.AsyncClient(transport=in_memory(httpx), **UNBOUNDED),
            "httpx2": httpx2.AsyncClient(**limits2),
            "httpx": httpx.AsyncClient(**limits),
        }
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def aiohttp_call() -> None:
                async with session.post(url, data=BODY, headers=HEADERS) as response:
                    await response.read()

            async def aiohttp_stream() -> AsyncIterator[bytes]:
                async with session.post(sse, data=BODY, headers=HEADERS) as response:
                    async for chunk in response.content.iter_any():
                        yield chunk

            def of(client: Any) -> tuple[Any, Any]:
                async def call() -> None:
                    await client.post(url, content=BODY, headers=HEADERS)

                async def stream() -> AsyncIterator[bytes]:
                    async with client.stream("POST", sse, content=BODY, headers=HEADERS) as response:
                        async for chunk in response.aiter_raw():
                            yield chunk

                return call, stream

            variants = {name: of(client) for name, client in clients.items()}
            variants["aiohttp"] = (aiohttp_call, aiohttp_stream)
            for turn in range(self.rounds):
                # The order rotates, because a variant after a heavy one pays for what that one left behind.
                names = list(variants)
                shift = turn % len(names)
                for name in names[shift:] + names[:shift]:
                    call, stream = variants[name]
                    gc.collect()
                    slow = name in ("httpx", "httpx2")
                    _, cost = await flood(self.calls // 8 if slow else self.calls, 64, call)
                    self.samples[f"{name}: us/call"].append(cost)
                    if slow and turn >= 2:  # noqa: PLR2004 - they take half a minute each, and are not close
                        continue
                    cost, firsts = await streams(stream)
                    self.samples[f"{name}: us/chunk"].append(cost)
                    centiles = statistics.quantiles(firsts, n=100)
                    self.samples[f"{name}: first chunk p50 ms"].append(centiles[49])
                    self.samples[f"{name}: first chunk p99 ms"].append(centiles[98])
                note(f"transport round {turn + 1}/{self.rounds}")

    def report(self) -> dict[str, Any]:
        """Returns the result of the experiment as JSON data.

        The result has the medians of all samples (`figures`), and comparisons of some of them with
        the limits that they must keep (`bars`).
        """
        figures = {name: self.median(name) for name in sorted(self.samples)}
        bars = []

        def bar(what: str, value: float, op: str, limit: float) -> None:
            ok = value >= limit if op == ">=" else value <= limit
            bars.append({"what": what, "value": round(value, 3), "op": op, "bar": limit, "ok": ok})

        for in_flight, times in ((64, 3), (512, 4.5)):
            wrapped, floor, stock = (
                self.median(f"sdk {name} {in_flight}: calls/s") for name in ("wrapped", "floor", "stock")
            )
            bar(f"wrapped / in-memory throughput at {in_flight}", wrapped / floor, ">=", 0.85)
            bar(f"wrapped / stock throughput at {in_flight}", wrapped / stock, ">=", times)
        for family in ("httpx2", "httpx"):
            for unit, limit in (("call", 30), ("chunk", 15)):
                over = self.median(f"tidegate {family}: us/{unit}") - self.median(f"memory {family}: us/{unit}")
                bar(f"us CPU a {unit} above {family}'s own objects", over, "<=", limit)
            for centile in ("p50", "p99"):
                ratio = self.median(f"tidegate {family}: first chunk {centile} ms") / self.median(
                    f"aiohttp: first chunk {centile} ms"
                )
                bar(f"first SSE chunk {centile} over {family} / aiohttp", ratio, "<=", 1)
        return {"name": "python", "seeds": [], "figures": figures, "peers": {}, "bars": bars}


async def main() -> None:
    """Reads the command line, starts the upstream, measures, and prints the result."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--calls", type=int, default=4000)
    arguments.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    given = arguments.parse_args()
    rounds, calls = (1, 800) if given.quick else (given.rounds, given.calls)
    server = subprocess.Popen(  # noqa: ASYNC220 - before anything is measured
        [sys.executable, Path(__file__).with_name("fast_upstream.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        bench = Bench(f"http://127.0.0.1:{int(server.stdout.readline())}", rounds, calls)
        await bench.sdk()
        await bench.transport()
        print(json.dumps(bench.report()))  # noqa: T201
    finally:
        server.stdin.close()
        server.wait()


if __name__ == "__main__":
    asyncio.run(main())
