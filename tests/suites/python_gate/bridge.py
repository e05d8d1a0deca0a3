"""A bridge from the gate's transport to the mocks of respx, or of a copy of it in a test suite.

The mocks patch httpcore, which the gate's own transport does not use. The bridge is a server on
loopback to which the transport sends each request. The server passes the request that arrived to
the suite's mock, and sends the mock's answer back. So the suite checks the requests that were
really sent, including retries, and responses pass through the whole transport.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import itertools
import os
import socket
import struct
import threading
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

try:  # openai-python has a copy of respx, for httpx2.
    from tests.respx2.mocks import HTTPCoreMocker
except ImportError:
    from respx.mocks import HTTPCoreMocker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator

    import httpx2

_Request: type[httpx2.Request] = importlib.import_module(os.environ["TIDEGATE_SUITE_PACKAGE"]).Request

_NUMBER = "x-suite-exchange"
_NO_BODY = (204, 304)


class Exchange:
    """One request of a client, as it was before it was redirected to the loopback server.

    `raised` is the exception that the mock raised for it, or None.
    """

    def __init__(self, request: httpx2.Request, *, asynchronous: bool) -> None:
        """Stores the request as the client made it."""
        self.request = request
        self.raised: BaseException | None = None
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop() if asynchronous else None

    def turned(self, number: int, port: int) -> httpx2.Request:
        """Returns a copy of the request that goes to the loopback server at `port`.

        The header `Host` is not changed. A header is added with the `number` of the exchange.
        """
        headers = self.request.headers.copy()
        headers[_NUMBER] = str(number)
        url = self.request.url.copy_with(scheme="http", host="127.0.0.1", port=port)
        # What is in memory must stay there: only such a body can be sent again.
        body: dict[str, Any] = {"stream": self.request.stream}
        if hasattr(self.request, "_content"):
            body = {"content": self.request.content}
        return _Request(self.request.method, url, headers=headers, extensions=self.request.extensions, **body)

    @contextmanager
    def answered(
        self, method: str, headers: list[tuple[str, str]], body: bytes
    ) -> Iterator[tuple[httpx2.Response, Iterator[bytes]]]:
        """Passes the request that arrived at the loopback server to the suite's mock.

        The arguments are the method, headers and body that arrived. Yields the mock's response, for
        use in a `with` block, and its chunks, which are read from the mock as they are needed.
        """
        arrived = _Request(
            method,
            self.request.url,
            headers=[(name, value) for name, value in headers if name.lower() != _NUMBER],
            content=body,
            extensions=self.request.extensions,
        )
        if self._loop is None:
            with closing(self._context.copy().run(HTTPCoreMocker.handler, arrived)) as response:
                yield response, iter(response.stream)
            return
        response = self._run(HTTPCoreMocker.async_handler(arrived))
        try:
            yield response, self._chunks(aiter(response.stream))
        finally:
            self._run(response.aclose())

    def _chunks(self, stream: AsyncIterator[bytes]) -> Iterator[bytes]:
        """Yields the chunks of an asynchronous stream."""
        with suppress(StopAsyncIteration):
            while True:
                yield self._run(anext(stream))

    def _run(self, coroutine: Awaitable[Any]) -> Any:
        """Runs a coroutine of the mock where the client is: on its event loop, in its context variables."""

        async def run() -> Any:
            # A future would not raise every exception as it is: asyncio's CancelledError.
            try:
                return await coroutine, None
            except BaseException as raised:  # noqa: BLE001 - raised below
                return None, raised

        result, raised = self._context.copy().run(asyncio.run_coroutine_threadsafe, run(), self._loop).result()
        if raised is not None:
            raise raised
        return result


class Bridge:
    """The loopback server, and the exchanges in progress."""

    def __init__(self) -> None:
        """Starts the server on a free port. It runs until the process ends."""
        self._numbers = itertools.count()
        self._exchanges: dict[int, Exchange] = {}
        bridge = self

        class Handler(_Handler):
            exchanges = bridge._exchanges

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def mocking(self) -> bool:
        """Whether a mock of the suite is active."""
        return bool(HTTPCoreMocker.routers)

    @contextmanager
    def turned(self, request: httpx2.Request, *, asynchronous: bool) -> Iterator[httpx2.Request]:
        """Yields a copy of `request` that goes to the loopback server, for use in a `with` block.

        If the mock raises an exception, the block raises this exception instead of the error of the
        broken connection. It also raises a fatal exception, such as `CancelledError`, instead of
        the response with which a gate reports that error.
        """
        number = next(self._numbers)
        exchange = Exchange(request, asynchronous=asynchronous)
        self._exchanges[number] = exchange
        try:
            yield exchange.turned(number, self._server.server_address[1])
        except Exception as failure:
            if exchange.raised is None:
                raise
            raise exchange.raised from failure
        else:
            if exchange.raised is not None and not isinstance(exchange.raised, Exception):
                raise exchange.raised
        finally:
            del self._exchanges[number]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    exchanges: dict[int, Exchange]

    def __getattr__(self, name: str) -> Any:
        """Returns the handler of requests for each name `do_METHOD`, so for every HTTP method."""
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        body = self._body()
        exchange = self.exchanges.get(int(self.headers[_NUMBER]))
        if exchange is None:  # The client has gone.
            self.close_connection = True
            return
        try:
            with exchange.answered(self.command, self.headers.items(), body) as (response, chunks):
                self._send(response, chunks)
        except BaseException as raised:  # noqa: BLE001 - pytest's own `fail` is none of Exception
            exchange.raised = raised
            self.close_connection = True
            if type(raised).__name__ == "ReadError":
                self._reset()

    def _reset(self) -> None:
        """Resets the connection, which a client sees as `ReadError`. An ordinary end would be `RemoteProtocolError`."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.close(self.connection.detach())

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _send(self, response: httpx2.Response, chunks: Iterator[bytes]) -> None:
        self.send_response_only(response.status_code)
        for name, value in response.headers.raw:
            if name.lower() not in (b"content-length", b"transfer-encoding"):
                self.send_header(name.decode("latin-1"), value.decode("latin-1"))
        if response.status_code in _NO_BODY or self.command == "HEAD":
            self.end_headers()
            return
        # As the mock framed it: a test may ask for the length. A body that is not in memory has none.
        if "transfer-encoding" in response.headers or not hasattr(response, "_content"):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in filter(None, chunks):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")
        else:
            body = b"".join(chunks)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Does nothing, so that requests are not logged."""
