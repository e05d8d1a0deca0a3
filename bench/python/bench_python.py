"""Experiment `python`: the CPU cost of the package, compared with the clients that it replaces.

Variants take turns against one upstream in a process of its own. CPU times are the least of the
rounds, and rates and latencies their medians. CPU is that of this process, including its threads
(`getrusage`), or that of the event loop's thread alone. "In memory" is a transport that answers
without a network, which shows the cost of the SDK's objects or of httpx's own objects. It suspends
each call once, as any network transport must, or never. Calls of a synchronous client run in
processes of their own, with this version of the package and with an earlier one. Prints progress to
stderr and, as its last line, one JSON object. Exits with 0 if it could measure.

    python bench_python.py --before PYTHON [--rounds 9] [--calls 4000] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import httpx
import httpx2
import openai

import fast_upstream
import tidegate
from experiment_support import MESSAGES, bar, note, report
from sync_calls import BODY, HEADERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

STREAMS, EVENTS, GAP_MS = 200, 100, 20
UNBOUNDED = {"timeout": None}

# The most CPU time above the HTTP client's own objects, as a share of aiohttp's whole time, by
# package and unit.
MOST_ABOVE = {
    ("httpx2", "call"): 0.4,
    ("httpx2", "chunk"): 0.75,
    ("httpx", "call"): 0.6,
}


def cpu() -> float:
    """Returns the CPU time that this process and its threads have used so far, in seconds."""
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def in_memory(family: Any, *, suspends: bool) -> Any:
    """Returns an httpx transport that answers like the upstream, without a network.

    `family` is the package whose classes it uses: `httpx` or `httpx2`. If `suspends`, each call
    yields to the event loop once.
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
            if suspends:
                await asyncio.sleep(0)
            path = request.url.path.split("/")
            if path[1] == "sse":
                chunks = [fast_upstream.EVENT] * (int(path[2]) - 1) + [fast_upstream.EVENT + fast_upstream.LAST]
                return family.Response(200, headers=events_head, stream=Stream(chunks))
            return family.Response(200, headers=json_head, stream=Stream([fast_upstream.COMPLETION]))

    return Transport()


class Flood(NamedTuple):
    """The cost of many calls of one variant."""

    rate: float
    """Calls per second."""

    cost: float
    """CPU microseconds of the process per call."""

    loop_cost: float
    """CPU microseconds of the event loop's thread per call."""


async def flood(calls: int, in_flight: int, call: Callable[[], Awaitable[object]]) -> Flood:
    """Makes `calls` calls with the function `call`, at most `in_flight` at a time."""
    left = iter(range(calls))

    async def work() -> None:
        for _ in left:
            await call()

    gc.collect()
    used, used_by_loop, began = cpu(), time.thread_time(), time.perf_counter()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    seconds = time.perf_counter() - began
    return Flood(
        calls / seconds,
        (cpu() - used) / calls * 1e6,
        (time.thread_time() - used_by_loop) / calls * 1e6,
    )


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

    def __init__(self, url: str, before: Path, rounds: int, calls: int) -> None:
        """Creates a benchmark without samples.

        `url` is the base URL of the upstream. `before` is the Python of an environment with the
        earlier version. `rounds` is how often each variant is measured, and `calls` the number of
        calls in each round.
        """
        self.url, self.before, self.rounds, self.calls = url, before, rounds, calls
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.gate = tidegate.Gate(defaults={"cap": 1024})

    def least(self, name: str) -> float:
        """Returns the least of the samples with the given name."""
        return min(self.samples[name])

    def median(self, name: str) -> float:
        """Returns the median of the samples with the given name."""
        return statistics.median(self.samples[name])

    async def sdk(self) -> None:
        """Measures calls through the openai client, and stores their rates and CPU times.

        The variants are a wrapped client, a stock client, and clients that are answered in memory.
        """

        def client(**kwargs: Any) -> openai.AsyncOpenAI:
            return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="k", max_retries=0, timeout=120, **kwargs)

        def floor(*, suspends: bool) -> openai.AsyncOpenAI:
            return client(http_client=httpx2.AsyncClient(transport=in_memory(httpx2, suspends=suspends), timeout=120))

        variants = {
            "wrapped": (self.gate.wrap(client()), self.calls),
            "in memory": (floor(suspends=True), self.calls),
            "in memory, never suspended": (floor(suspends=False), self.calls),
            # Slow enough that a tenth of the calls suffices.
            "stock": (client(), max(self.calls // 8, 600)),
        }
        for turn in range(self.rounds):
            for in_flight in (64, 512):
                for name, (sdk, calls) in variants.items():
                    flooded = await flood(
                        calls,
                        in_flight,
                        lambda sdk=sdk: sdk.chat.completions.create(model="small", messages=MESSAGES),  # type: ignore[misc]
                    )
                    self.samples[f"openai {name} {in_flight}: calls/s"].append(flooded.rate)
                    self.samples[f"openai {name} {in_flight}: us/call"].append(flooded.cost)
                    self.samples[f"openai {name} {in_flight}: us of the event loop/call"].append(flooded.loop_cost)
            note(f"openai: round {turn + 1}/{self.rounds}")

    async def transport(self) -> None:
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
            "memory httpx2": httpx2.AsyncClient(transport=in_memory(httpx2, suspends=False), **UNBOUNDED),
            "memory httpx": httpx.AsyncClient(transport=in_memory(httpx, suspends=False), **UNBOUNDED),
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
                    await self.transport_variant(name, *variants[name], turn)
                note(f"transport: round {turn + 1}/{self.rounds}")

    async def transport_variant(self, name: str, call: Any, stream: Any, turn: int) -> None:
        """Measures one variant of `transport` in one round."""
        slow = name in {"httpx", "httpx2"}
        flooded = await flood(self.calls // 8 if slow else self.calls, 64, call)
        self.samples[f"{name}: us/call"].append(flooded.cost)
        if slow and turn >= 2:  # noqa: PLR2004 - they take half a minute each, and are not close
            return
        gc.collect()
        cost, firsts = await streams(stream)
        self.samples[f"{name}: us/chunk"].append(cost)
        centiles = statistics.quantiles(firsts, n=100)
        self.samples[f"{name}: first chunk p50 ms"].append(centiles[49])
        self.samples[f"{name}: first chunk p99 ms"].append(centiles[98])

    def sync(self) -> None:
        """Measures calls of a synchronous client, and stores their CPU times.

        The variants are this version of the package and the earlier one.
        """
        script = Path(__file__).with_name("sync_calls.py")
        for _ in range(self.rounds):
            for name, python in (("tidegate", sys.executable), ("earlier version", self.before)):
                command = [python, script, self.url, str(self.calls // 2)]
                run = subprocess.run(command, check=True, capture_output=True, text=True)
                self.samples[f"{name}, synchronous httpx2: us/call"].append(float(run.stdout))
        note("synchronous calls: done")

    def report(self) -> None:
        """Prints the result of the experiment: the figures, and their comparisons with the bars."""

        def is_cpu_time(name: str) -> bool:
            return name.rsplit(": ", 1)[-1].startswith("us")

        figures = {
            name: round(self.least(name) if is_cpu_time(name) else self.median(name), 2)
            for name in sorted(self.samples)
        }
        bars = []
        for in_flight, times in ((64, 3), (512, 4.5)):
            wrapped, floor, stock = (
                self.median(f"openai {name} {in_flight}: calls/s")
                for name in ("wrapped", "in memory, never suspended", "stock")
            )
            bars.append(bar(f"wrapped / in-memory throughput at {in_flight}", wrapped / floor, ">=", 0.85))
            bars.append(bar(f"wrapped / stock throughput at {in_flight}", wrapped / stock, ">=", times))
        for (family, unit), most in MOST_ABOVE.items():
            above = self.least(f"tidegate {family}: us/{unit}") - self.least(f"memory {family}: us/{unit}")
            share = above / self.least(f"aiohttp: us/{unit}")
            bars.append(bar(f"CPU a {unit} above {family}'s own objects / aiohttp's whole {unit}", share, "<=", most))
        for in_flight in (64, 512):
            ours, floor = (
                self.least(f"openai {name} {in_flight}: us of the event loop/call") for name in ("wrapped", "in memory")
            )
            bars.append(bar(f"CPU of the event loop in memory / wrapped at {in_flight}", floor / ours, ">=", 0.97))
        for centile in ("p50", "p99"):
            first, peer = (self.median(f"{name}: first chunk {centile} ms") for name in ("tidegate httpx2", "aiohttp"))
            bars.append(bar(f"first SSE chunk {centile} / aiohttp's", first / peer, "<=", 1))
        ours, before = (self.least(f"{name}, synchronous httpx2: us/call") for name in ("tidegate", "earlier version"))
        bars.append(bar("CPU a synchronous call / the earlier version's", ours / before, "<=", 0.7))
        report("python", figures, {}, bars)


async def main() -> None:
    """Reads the command line, starts the upstream, measures, and prints the result."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--before", type=Path, required=True, help="the Python of the earlier version's environment")
    arguments.add_argument("--rounds", type=int, default=9)
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
        bench = Bench(f"http://127.0.0.1:{int(server.stdout.readline())}", given.before, rounds, calls)
        await bench.sdk()
        await bench.transport()
        bench.sync()
        bench.report()
    finally:
        server.stdin.close()
        server.wait()


if __name__ == "__main__":
    asyncio.run(main())
