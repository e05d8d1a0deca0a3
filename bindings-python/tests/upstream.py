"""A scripted HTTP/1.1 server on loopback, in its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

WAIT = 30.0  # Seconds. Maximum wait of a test for an event. No result depends on it.


@dataclass
class Exchange:
    """A request that the server received, with its connection, on which the response is sent.

    `closed` is set when the client has closed the connection, which the server finds out in the
    method `gone` or by sending.
    """

    method: str
    path: str
    headers: dict[str, str]
    writer: asyncio.StreamWriter
    reader: asyncio.StreamReader
    body: bytes = b""
    closed: threading.Event = field(default_factory=threading.Event)

    def json(self) -> Any:
        """Returns the request body, decoded from JSON."""
        return json.loads(self.body)

    async def head(self, status: int = 200, **headers: str) -> None:
        """Sends the status line and the headers of the response."""
        lines = [f"HTTP/1.1 {status} Scripted"] + [f"{k.replace('_', '-')}: {v}" for k, v in headers.items()]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        """Sends one chunk of a chunked body. An empty chunk ends the body."""
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self.writer.drain()

    async def gone(self) -> None:
        """Waits until the client closes the connection, then sets `closed`."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass
        self.closed.set()


Handler = Callable[[Exchange], Awaitable[None]]


class Upstream:
    """A scripted server that records requests.

    `handler` answers requests. `early` answers requests whose path ends with `/early`, before their
    body is read. `exchanges` has the requests that `handler` got, in order of arrival.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.handler: Handler = answer({})
        self.early: Handler = answer({})
        self.exchanges: list[Exchange] = []
        self._seen = threading.Condition()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="upstream", daemon=True)

    def __enter__(self) -> Upstream:
        self._thread.start()
        assert self._ready.wait(WAIT)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def url(self) -> str:
        """URL of the server, without a trailing slash."""
        return f"http://127.0.0.1:{self._port}"

    def wait_for(self, count: int) -> Exchange:
        """Waits until `count` requests have arrived, for at most 30 s.

        Returns the request with the number `count`, counted from 1.
        """
        with self._seen:
            assert self._seen.wait_for(lambda: len(self.exchanges) >= count, WAIT)
            return self.exchanges[count - 1]

    def event(self) -> asyncio.Event:
        """Returns a new asyncio event, for use on the server's event loop."""
        return asyncio.Event()

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Schedules a function on the server's event loop, from another thread."""
        self._loop.call_soon_threadsafe(function, *args)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()
        writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._connection(reader, writer)

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(serve(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(lambda _: writer.close())
            writers.append(writer)

        server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=2048, ssl=self._tls)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        # `server.close()` would leak the sockets of connections that the loop is just accepting.
        for listener in server.sockets:
            self._loop.remove_reader(listener.fileno())
        # Some of them belong to the loop and accept the last connections.
        while pending := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(pending)
        server.close()
        # A loop that ends before its transports leaves their sockets open.
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first, *lines = head.decode("latin-1").split("\r\n")[:-2]
            method, path, _ = first.split(" ")
            headers = dict(line.split(": ", 1) for line in lines)
            exchange = Exchange(method, path, {k.lower(): v for k, v in headers.items()}, writer, reader)
            if path.endswith("/early"):
                await self.early(exchange)
                return
            if exchange.headers.get("expect") == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if exchange.headers.get("transfer-encoding") == "chunked":
                while size := int(await reader.readuntil(b"\r\n"), 16):
                    exchange.body += (await reader.readexactly(size + 2))[:-2]
                await reader.readexactly(2)
            else:
                exchange.body = await reader.readexactly(int(exchange.headers.get("content-length", 0)))
            with self._seen:
                self.exchanges.append(exchange)
                self._seen.notify_all()
            try:
                await self.handler(exchange)
            except ConnectionError:
                exchange.closed.set()
                raise
            if exchange.closed.is_set() or writer.is_closing():
                return


def answer(body: Any, status: int = 200, **headers: str) -> Handler:
    """Returns a handler that answers with `body` as JSON.

    Underscores in the names of `headers` stand for hyphens.
    """

    async def handler(exchange: Exchange) -> None:
        data = json.dumps(body).encode()
        await exchange.head(status, content_type="application/json", content_length=str(len(data)), **headers)
        exchange.writer.write(data)

    return handler


def events(*lines: Any, **headers: str) -> Handler:
    """Returns a handler that answers with a server-sent event for each of `lines`.

    Each event is one chunk of the body, which then ends. For `lines`, see `event`.
    """

    async def handler(exchange: Exchange) -> None:
        await exchange.head(content_type="text/event-stream", transfer_encoding="chunked", **headers)
        for line in lines:
            await exchange.chunk(event(line))
        await exchange.chunk(b"")

    return handler


def event(line: Any) -> bytes:
    """Returns one encoded server-sent event.

    `line` is a text, a pair of event name and JSON data, or JSON data.
    """
    if isinstance(line, tuple):
        name, data = line
        return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
    return f"data: {line if isinstance(line, str) else json.dumps(line)}\n\n".encode()


async def never(exchange: Exchange) -> None:
    """Handles a request by sending nothing until the client closes the connection."""
    await exchange.gone()


def stall_after(*lines: Any) -> Handler:
    """Returns a handler that sends an event for each of `lines`, and does not end the body.

    It then waits until the client closes the connection. For `lines`, see `event`.
    """

    async def handler(exchange: Exchange) -> None:
        await exchange.head(content_type="text/event-stream", transfer_encoding="chunked")
        for line in lines:
            await exchange.chunk(event(line))
        await exchange.gone()

    return handler


async def hang_up(exchange: Exchange) -> None:
    """Handles a request by closing the connection without a response."""
    exchange.writer.close()


def truncate(body: bytes, announced: int) -> Handler:
    """Returns a handler that sends `body`, then closes the connection.

    The content-length that it sends is `announced`, which should be more than the body has.
    """

    async def handler(exchange: Exchange) -> None:
        await exchange.head(content_type="application/json", content_length=str(announced))
        exchange.writer.write(body)
        await exchange.writer.drain()
        exchange.writer.close()

    return handler
