"""Experiment `share-peers`: one limit per minute for all processes, beside the limiters that share it over Redis.

A provider counts what it is sent and refuses nothing. 16 processes with 64 callers in all overload it with calls of
one second, with a limit of requests and with a limit of tokens. One limiter runs after the other, each with a provider
and a Redis server of its own:

- Tidegate, which lets a call wait until it is within the limit, and the same without a share;
- LiteLLM's Router with `enforce_model_rate_limits`, whose refused calls are tried again after a second. It counts by
  the minutes of the clock, so each run begins in the middle of one;
- token-throttle, which lets a call wait for its reservation, and refills continuously. It begins with the limit of a
  minute. It is left out below Python 3.12, which it needs.

The provider counts a request when it arrives, and its tokens, input and actual output, when it is answered. The
figures are the largest sum of any minute from the start on, and the sum of the last minute, both divided by the limit.
Prints one JSON object as its last line.

    python share_peers.py
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiment_support import bar, note, report
from scripted_upstream import read, whole
from share_peers_process import INPUT_TOKENS, MAX_OUTPUT_TOKENS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

LIMITERS = ("tidegate", "tidegate, not shared", "litellm", "token-throttle")
#: The least length of an answer.
MIN_OUTPUT_TOKENS = MAX_OUTPUT_TOKENS // 4
#: The limit of each kind per minute. Without it, the callers would make about 3,800 calls of 350 tokens.
LIMITS = {"requests": 600, "tokens": 210_000}
PROCESSES, CALLERS = 16, 64
#: Seconds that the provider needs for a call.
SERVICE = 1.0
#: Seconds until all processes are ready, at most, and seconds of calls.
STARTS_WITHIN, SECONDS = 120, 130
#: Seconds in which a process ends, at most.
ENDS_WITHIN = 30


@dataclass
class Provider:
    """A server of chat completions that counts requests and tokens, with the times of both."""

    arrivals: list[float] = field(default_factory=list)
    answers: list[tuple[float, int]] = field(default_factory=list)
    #: Calls in flight now, and the maximum so far.
    now: int = 0
    most: int = 0
    #: The lengths of answers, the same for each provider.
    lengths: random.Random = field(default_factory=lambda: random.Random(1))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the calls of one connection, one after the other."""
        try:
            while await read(reader):
                self.arrivals.append(time.monotonic())
                self.now += 1
                self.most = max(self.most, self.now)
                output = self.lengths.randint(MIN_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS)
                await asyncio.sleep(SERVICE)
                self.now -= 1
                self.answers.append((time.monotonic(), INPUT_TOKENS + output))
                writer.write(whole("200 OK", completion(output)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The process has ended.
        finally:
            writer.close()

    def charges(self, limit: str) -> list[tuple[float, int]]:
        """Returns what the provider counts against a limit: times and amounts."""
        return [(at, 1) for at in self.arrivals] if limit == "requests" else self.answers


def completion(output: int) -> dict[str, Any]:
    """Returns a chat completion of `output` tokens."""
    usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": output, "total_tokens": INPUT_TOKENS + output}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def most_in_a_minute(charges: list[tuple[float, int]]) -> int:
    """Returns the largest sum of charges within any 60 seconds."""
    most = total = first = 0
    for at, amount in charges:
        total += amount
        while charges[first][0] <= at - 60:
            total -= charges[first][1]
            first += 1
        most = max(most, total)
    return most


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """Runs a Redis server on a free port, and yields its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"]
    server = subprocess.Popen(command, stdout=sys.stderr)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        else:
            raise SystemExit("redis-server does not answer")
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@contextlib.asynccontextmanager
async def provider() -> AsyncIterator[tuple[Provider, str]]:
    """Runs a provider on a free port, and yields it and its base URL."""
    counts = Provider()
    server = await asyncio.start_server(counts.serve, "127.0.0.1", 0)
    try:
        yield counts, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def start(limiter: str, limit: str, url: str, redis_url: str) -> list[asyncio.subprocess.Process]:
    """Starts the processes of one limiter, and waits until all are ready."""
    script = Path(__file__).with_name("share_peers_process.py")
    arguments = [limiter, limit, str(LIMITS[limit]), url, redis_url, str(CALLERS // PROCESSES)]
    pipe = asyncio.subprocess.PIPE
    started = [
        await asyncio.create_subprocess_exec(sys.executable, script, *arguments, stdin=pipe, stdout=pipe)
        for _ in range(PROCESSES)
    ]
    for process in started:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), STARTS_WITHIN)
        if line.strip() != b"ready":
            raise SystemExit(f"a process with {limiter} did not start")
    return started


async def stop(processes: list[asyncio.subprocess.Process]) -> dict[str, Any]:
    """Ends the processes of one limiter. Returns how many calls were served and refused, and the errors."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    errors: Counter[str] = Counter()
    counts = {"served": 0, "refused": 0}
    for process in processes:
        output, _ = await asyncio.wait_for(process.communicate(), ENDS_WITHIN)
        end = json.loads(output.splitlines()[-1])
        errors.update(end["errors"])
        counts = {key: count + end[key] for key, count in counts.items()}
    for error, times in errors.items():
        note(f"{times} times: {error}")
    return counts | {"errors": errors.total()}


async def measure(limiter: str, limit: str) -> dict[str, Any]:
    """Runs a limiter with a limit. Returns its figures."""
    with redis_server() as redis_url:
        async with provider() as (counts, url):
            started = await start(limiter, limit, url, redis_url)
            await asyncio.sleep((30 - time.time()) % 60)
            begin = time.monotonic()
            for process in started:
                assert process.stdin is not None
                process.stdin.write(b"begin\n")
            await asyncio.sleep(SECONDS)
            charges = [(at - begin, amount) for at, amount in counts.charges(limit) if at >= begin]
            result = await stop(started)
    of_last_minute = sum(amount for at, amount in charges if at > SECONDS - 60)
    # The limiter knows the tokens of a call only when it has ended.
    error = counts.most * (MAX_OUTPUT_TOKENS - MIN_OUTPUT_TOKENS) if limit == "tokens" else 0
    result |= {
        "most in a minute / limit": round(most_in_a_minute(charges) / LIMITS[limit], 3),
        "used / limit": round(of_last_minute / LIMITS[limit], 3),
        "calls in flight": counts.most,
        "error of the calls in flight / limit": round(error / LIMITS[limit], 3),
    }
    note(f"{limit}, {limiter}: {result}")
    return result


async def main() -> None:
    """Runs the experiment, and prints the result."""
    has_token_throttle = importlib.util.find_spec("token_throttle") is not None
    limiters = [limiter for limiter in LIMITERS if has_token_throttle or limiter != "token-throttle"]
    figures: dict[str, Any] = {}
    peers: dict[str, dict[str, Any]] = {limiter: {} for limiter in limiters if limiter != "tidegate"}
    bars = []
    for limit in LIMITS:
        for limiter in limiters:
            result = await measure(limiter, limit)
            (figures if limiter == "tidegate" else peers[limiter])[limit] = result
        ours = figures[limit]
        most = 1 + ours["error of the calls in flight / limit"]
        bars.append(bar(f"{limit}: most in a minute / limit", ours["most in a minute / limit"], "<=", most))
        bars.append(bar(f"{limit}: used / limit", ours["used / limit"], ">=", 0.95))
        bars.append(bar(f"{limit}: refused calls and errors", ours["refused"] + ours["errors"], "<=", 0))
    report("share-peers", figures, peers, bars)


if __name__ == "__main__":
    asyncio.run(main())
