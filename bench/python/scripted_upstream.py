"""A scripted upstream in its own process. The path of a request selects the answer.

    POST /slow/MS/...       answers after MS milliseconds
    POST /window/MS/...     answers 429 with Retry-After until MS milliseconds after the first
                            such request, and then answers at once
    POST /stall/head/...    never answers
    POST /stall/stream/...  streams its first text and then nothing
    POST /fail/STATUS/...   always answers that status; a 429 has Retry-After: 1
    POST /once/STATUS/...   answers that status to the first request of a path, then 200
    POST /cut/...           streams its first text and closes, without the API's end of a stream
    GET  /seen              returns the requests (path, x-id, times, status), and the peak and
                            current concurrency

The end of the path selects the API of answers and streams (`api_answers.py`). Times are in seconds
of the system's monotonic clock, which all processes share. The process prints its port, then serves
until standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

import api_answers
from fast_upstream import STREAM, chunked


@dataclass
class Seen:
    """One request as the upstream recorded it.

    `at` is its arrival and `closed_at` the client's close of a stalled request, both in seconds on
    the monotonic clock. `closed_at` is None while the client has not closed the request, and for
    requests that are not stalled. `id` is the header `x-id`. `status` is the HTTP status of the
    answer, or None without one.
    """

    path: str
    id: str
    at: float
    status: int | None = None
    closed_at: float | None = None


class Upstream:
    """The server: answers requests as their paths select, and records them.

    `seen` has the received requests. `now` and `most` are the current and the maximum number of
    concurrent ones.
    """

    def __init__(self) -> None:
        """Creates an upstream that has received no requests."""
        self.seen: list[Seen] = []
        self.now = self.most = 0
        self.window: float | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection until the client closes it."""
        try:
            while request := await read(reader):
                await self.answer(*request, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # The client has closed the connection, or this process is ending.
        finally:
            writer.close()

    async def answer(
        self, path: str, headers: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answers one request as its path selects, and records it. See the module for the paths."""
        _, kind, how, *_ = [*path.split("/"), "", ""]
        if kind == "seen":
            requests = [asdict(seen) for seen in self.seen]
            writer.write(whole("200 OK", {"most": self.most, "now": self.now, "requests": requests}))
            return
        api = api_answers.api_of(path)
        first = all(earlier.path != path for earlier in self.seen)
        seen = Seen(path, headers.get("x-id", ""), time.monotonic())
        self.seen.append(seen)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            if kind == "stall":
                if how == "stream":
                    writer.write(stream_head(api) + chunked(api_answers.opening(api)))
                await reader.read()
                seen.closed_at = time.monotonic()
                raise ConnectionResetError
            if kind == "cut":
                seen.status = 200
                writer.write(stream_head(api) + chunked(api_answers.opening(api)) + b"0\r\n\r\n")
                return
            wait = self.left(int(how) / 1000) if kind == "window" else 1
            if (kind == "window" and wait > 0) or kind == "fail" or (kind == "once" and first):
                seen.status = 429 if kind == "window" else int(how)
                again = f"retry-after: {math.ceil(wait)}\r\n" if seen.status == HTTPStatus.TOO_MANY_REQUESTS else ""
                reason = HTTPStatus(seen.status).phrase
                writer.write(whole(f"{seen.status} {reason}", api_answers.error(api, seen.status), again))
                return
            if kind == "slow":
                await asyncio.sleep(int(how) / 1000)
            seen.status = 200
            writer.write(whole("200 OK", api_answers.whole(api)))
        finally:
            self.now -= 1

    def left(self, window: float) -> float:
        """Returns the seconds until the window of rejections ends; 0 or less if it has ended.

        The window begins when this method is first called, and lasts `window` seconds.
        """
        now = time.monotonic()
        if self.window is None:
            self.window = now + window
        return self.window - now


def stream_head(api: str) -> bytes:
    """Returns the head of a streamed response."""
    return STREAM.replace(b"text/event-stream", api_answers.stream_type(api))


def whole(status: str, body: Any, headers: str = "") -> bytes:
    """Returns a whole HTTP response with a JSON body. `headers` are extra header lines."""
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {len(data)}\r\n\r\n"
    return head.encode() + data


async def read(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]] | None:
    """Reads one request and its body. Returns the path and the headers of the request.

    Raises `asyncio.IncompleteReadError` if the connection ends before a whole request.
    """
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    await reader.readexactly(int(headers.get("content-length", 0)))
    return first.split(" ")[1], headers


async def main() -> None:
    """Prints the port, and serves until standard input is closed."""
    server = await asyncio.start_server(Upstream().serve, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
