"""The client middleware for the package `aiohttp`.

Each attempt runs the rest of aiohttp's client in an asyncio task. The caller's response reads its
body from the gate instead of from a connection.
"""

from __future__ import annotations

import asyncio
import copy
import http
import inspect
import io
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import TimerNoop, get_env_proxy_for_url
from aiohttp.http import HttpVersion11
from aiohttp.http_parser import RawResponseMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from tidegate._errors import Error
from tidegate._event_loop import cancel_call, current_port
from tidegate._native import Reply
from tidegate._transport.base import call_arguments
from tidegate._transport.custom_async import exchange_task_factory, raise_fatal
from tidegate._transport.custom_transport import ExchangeResponse
from tidegate._transport.httpx_family import is_refused
from tidegate._transport.uploads import MAX_BUFFERED_BODY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tidegate import _native
    from tidegate._native import Exchange, Port

    Handler = Callable[[Any], Awaitable[aiohttp.ClientResponse]]

if not hasattr(aiohttp.ClientRequest, "update_body"):
    raise ImportError(f"aiohttp {aiohttp.__version__} is too old for the gate: pip install 'aiohttp>=3.13'")

# The statuses of responses without a body.
_WITHOUT_BODY = (204, 304)

# The header by which requests of google-genai are recognised.
_GENAI_HEADER = "x-goog-api-client"

# Bytes. Limit of the part of a response that is read before the caller reads it.
_READ_AHEAD = 65536

# Seconds. The timeouts of a new session. httpx clients of the gate have the same read timeout.
_CONNECT_TIMEOUT, _READ_TIMEOUT = 30.0, 600.0

# Whether responses have the argument, which newer versions of aiohttp require.
_HAS_STREAM_WRITER = "stream_writer" in inspect.signature(aiohttp.ClientResponse).parameters

# The gate's failure kind for each exception, before and after the response began. The first match
# wins. Other exceptions are not retried.
_KINDS = (
    (aiohttp.ConnectionTimeoutError, "connect_timeout", "connect_timeout"),
    (asyncio.TimeoutError, "first_token_timeout", "idle_timeout"),
    (aiohttp.ClientConnectorError, "connect", "connect"),
    (aiohttp.ClientHttpProxyError, "connect", "connect"),
    (aiohttp.ClientPayloadError, "transport", "truncated"),
    ((aiohttp.ClientConnectionError, aiohttp.ClientResponseError, OSError), "transport", "transport"),
)

# The exception for each kind of failure of the gate. Other failures are raised unchanged, and
# rejections are responses.
_EXCEPTIONS = {
    "deadline": aiohttp.SocketTimeoutError,
    "first_token_timeout": aiohttp.SocketTimeoutError,
    "idle_timeout": aiohttp.SocketTimeoutError,
    "reader_stalled": aiohttp.ClientPayloadError,
    "connect": aiohttp.ClientConnectionError,
    "connect_timeout": aiohttp.ConnectionTimeoutError,
    "transport": aiohttp.ClientConnectionError,
    "truncated": aiohttp.ClientPayloadError,
    "request": aiohttp.ClientError,
}


def new_session(gate: _native.Gate, kwargs: dict[str, Any]) -> aiohttp.ClientSession:
    """Returns a session that sends through the gate. See `Gate.aiohttp_session`."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=_READ_TIMEOUT)
    kwargs.setdefault("timeout", timeout)
    if kwargs.get("connector") is None:
        # The gate limits the number of calls.
        kwargs["connector"] = aiohttp.TCPConnector(limit=0)
    middlewares = (*kwargs.pop("middlewares", ()), GateMiddleware(gate))
    return aiohttp.ClientSession(middlewares=middlewares, **kwargs)


class GateMiddleware:
    """A client middleware of aiohttp that sends requests through a gate.

    One instance may be used in any number of sessions and event loops.
    """

    def __init__(self, gate: _native.Gate) -> None:
        """Stores the gate."""
        self._gate = gate

    async def __call__(self, request: Any, handler: Handler) -> aiohttp.ClientResponse:
        """Sends a request, and returns its response when the head of the response has arrived."""
        # A connection that is upgraded (a websocket) carries no HTTP responses.
        if self._gate.can_bypass or "upgrade" in request.headers:
            return await handler(request)
        port, body = current_port(), await _buffered_body(request)
        headers = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in request.headers.items()]
        arguments = call_arguments(request.method, str(request.url), headers, body, read=None)
        fatal: list[BaseException] = []
        factory = exchange_task_factory(_Sender(handler, request, body), fatal, [])
        try:
            future, number = self._gate.send_custom(port, factory, *arguments)
        except Error as error:
            raise _exception(error)  # noqa: B904 - _exception sets the cause
        try:
            reply = await future
        except BaseException:
            cancel_call(port, future, number)
            raise
        raise_fatal(fatal, reply)
        if type(reply) is not Reply:
            raise self._not_repeated(_exception(reply), request)
        return await _response(reply, port, request)

    def _not_repeated(self, error: BaseException, request: Any) -> BaseException:
        """Returns an exception after which the caller of the middleware does not repeat the request.

        In mode `enforce`, only the gate retries. aiohttp's session repeats requests with idempotent
        methods once after some exceptions, and google-genai all requests.
        """
        if self._gate.mode != "enforce" or not isinstance(
            error, (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
        ):
            return error
        by_session = request.method != "POST" and not isinstance(error, aiohttp.ClientConnectorError)
        if not by_session and _GENAI_HEADER not in request.headers:
            return error
        made = aiohttp.ClientConnectionError(str(error))
        made.__cause__ = error
        return made


class _Sender:
    """Sends the attempts of one request through the rest of aiohttp's client."""

    def __init__(self, handler: Handler, request: Any, body: bytes | None) -> None:
        self._handler = handler
        self._request = request
        self._body = body

    async def send(self, exchange: Exchange) -> ExchangeResponse:
        """Sends one attempt, and returns its response when the head has arrived."""
        # An attempt may begin while an earlier one is still being cancelled.
        made = copy.copy(self._request)
        made.headers = self._request.headers.copy()
        for name, value in exchange.changed_headers():
            made.headers[name] = value
        if exchange.url is not None:
            made.url = URL(exchange.url, encoded=True)
            made.headers["Host"] = made.url.host_port_subcomponent
            if made.proxy is not None and made.proxy == _environment_proxy(self._request.url):
                # The session has chosen the proxy for the address of the pool.
                made.update_proxy(_environment_proxy(made.url), made.proxy_auth, made.proxy_headers)
        if self._body and not isinstance(made.body, aiohttp.BytesPayload):
            # Each attempt reads its own file. aiohttp warns about large bytes.
            await made.update_body(io.BytesIO(self._body))
        # The timer of the total timeout belongs to the caller's task, which must be the only one in it.
        made._timer = TimerNoop()  # noqa: SLF001
        response = await self._handler(made)
        response.content._timer = TimerNoop()  # noqa: SLF001
        extensions = {"version": response.version, "reason": response.reason, "headers": response.raw_headers}
        return ExchangeResponse(response.status, _decoded_headers(response, made), extensions, _Body(response))

    def error_kind(self, error: BaseException, *, begun: bool, outer: BaseException | None) -> str:
        """Returns the gate's failure kind for an exception. See `HttpxFamily.error_kind`."""
        if not begun and is_refused(error, outer):
            return "refused"
        matching = (kinds[begun] for classes, *kinds in _KINDS if isinstance(error, classes))
        return next(matching, "request")


def _environment_proxy(url: URL) -> URL | None:
    """Returns the proxy that the environment names for a URL, or None if it names none."""
    try:
        return get_env_proxy_for_url(url)[0]
    except LookupError:
        return None


class _Body:
    """The chunks of a response as they arrive."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()

    async def aclose(self) -> None:
        """Closes the connection, unless the body was read to the end."""
        self._response.close()


def _decoded_headers(response: aiohttp.ClientResponse, request: Any) -> list[tuple[bytes, bytes]]:
    """Returns the headers of a response for the gate.

    If aiohttp decodes the body, the headers of the encoded body are left out.
    """
    headers = list(response.raw_headers)
    if "content-encoding" not in response.headers or not request.session.auto_decompress:
        return headers
    return [(name, value) for name, value in headers if name.lower() not in {b"content-encoding", b"content-length"}]


async def _buffered_body(request: Any) -> bytes | None:
    """Returns the body of a request as bytes, or None if it is a stream that is not read into memory.

    A stream is read into memory if its length is known and at most 32 MiB.
    """
    payload = request.body
    if not payload:
        return b""
    if payload.size is None or payload.size > MAX_BUFFERED_BODY:
        return None
    body: bytes = await payload.as_bytes()
    return body


async def _response(reply: Reply, port: Port, request: Any) -> aiohttp.ClientResponse:
    """Returns aiohttp's response for a reply, as its client makes it from a connection."""
    extensions = reply.extensions or {}
    original = extensions.get("headers", ())
    names = {name.lower() for name, _ in original}
    raw_headers = (*original, *((name, value) for name, value in reply.headers() if name not in names))
    headers = CIMultiDict((name.decode(), value.decode("utf-8", "surrogateescape")) for name, value in raw_headers)
    message = RawResponseMessage(
        version=extensions.get("version") or HttpVersion11,
        code=reply.status,
        reason=extensions.get("reason", http.client.responses.get(reply.status, "")),
        headers=CIMultiDictProxy(headers),
        raw_headers=raw_headers,
        should_close=False,
        compression=None,
        upgrade=False,
        chunked=False,
    )
    connection = _Connection(reply, port, request.loop)
    content = _GateStreamReader(reply, port, connection.protocol, request)
    connection.protocol.feed_data((message, content), 0)
    cls = request.response_class
    settings = {
        "writer": None,
        "continue100": None,
        "timer": None,
        "request_info": request.request_info,
        "traces": getattr(request, "_traces", []),
        "loop": request.loop,
        "session": request.session,
    }
    if _HAS_STREAM_WRITER:
        settings["stream_writer"] = SimpleNamespace(output_size=0)
    response: aiohttp.ClientResponse = cls(request.method, request.original_url, **settings)
    await response.start(connection)  # type: ignore[arg-type]
    content.read_ahead()
    if request.method == "HEAD" or reply.status in _WITHOUT_BODY or response.content_length == 0:
        # The caller may not read a body that is empty.
        await content.readany()
    return response


class _Protocol(ResponseHandler):
    """The protocol of a response that no socket feeds.

    The body is pulled from the gate when a caller reads, so that there is nothing to pause. aiohttp
    would pause its parser, which this protocol lacks.
    """

    def pause_reading(self) -> None:
        """Does nothing."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Does nothing."""


class _Connection:
    """The connection of a response, which is an exchange with the gate."""

    transport = None

    def __init__(self, reply: Reply, port: Port, loop: asyncio.AbstractEventLoop) -> None:
        self.protocol = _Protocol(loop)
        self._reply = reply
        self._port = port
        self._callbacks: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Registers a function that is called when the connection is closed."""
        self._callbacks.append(callback)

    def close(self) -> None:
        """Ends the exchange at once, and releases its slot. Idempotent."""
        self._reply.close(self._port)
        while self._callbacks:
            self._callbacks.pop()()

    def release(self) -> None:
        """Closes the connection."""
        self.close()


class _GateStreamReader(aiohttp.StreamReader):
    """The body of a response, which is read from the gate."""

    __slots__ = ("_pending", "_port", "_reply", "_wait_future")

    def __init__(self, reply: Reply, port: Port, protocol: Any, request: Any) -> None:
        super().__init__(protocol, _READ_AHEAD, timer=request._timer, loop=request.loop)  # noqa: SLF001
        self._reply = reply
        self._port = port
        self._pending: asyncio.Future[Any] | None = None
        # What a coroutine waits for. A cancelled coroutine waits no more, but has yet to clear it.
        self._wait_future: asyncio.Future[Any] | None = None

    def read_ahead(self) -> None:
        """Reads what has already arrived, so that the end of a short body releases the slot."""
        while not self._eof and self._exception is None and self._size < _READ_AHEAD:
            pulled: Any = self._reply.pull(self._port)
            if asyncio.isfuture(pulled):
                self._pending = pulled
                return
            self._feed(pulled)

    async def _wait(self, func_name: str) -> None:
        """Waits until a chunk, the end or an error has arrived. aiohttp calls it if it has no data.

        Raises:
            RuntimeError: If another coroutine is waiting, as in aiohttp.

        """
        if self._wait_future is not None and not self._wait_future.cancelled():
            raise RuntimeError(f"{func_name}() called while another coroutine is already waiting for incoming data")
        pulled: Any = self._pending
        if pulled is None:
            pulled = self._reply.pull(self._port)
        if asyncio.isfuture(pulled):
            # The chunk is kept if the read is cancelled.
            self._pending = pulled
            waiting = self._wait_future = asyncio.shield(pulled)
            try:
                with self._timer:
                    pulled = await waiting
            finally:
                if self._wait_future is waiting:
                    self._wait_future = None
            self._pending = None
        self._feed(pulled)
        if self._exception is not None:
            raise self._exception

    def _feed(self, pulled: bytes | Error | None) -> None:
        if pulled is None:
            self.feed_eof()
        elif isinstance(pulled, bytes):
            self.feed_data(pulled)
        elif self._exception is None:
            self.set_exception(_exception(pulled))


def _exception(error: Error) -> BaseException:
    """Returns the exception that users of aiohttp expect for an error of the gate.

    The error becomes the cause of the exception. An exception of aiohttp is returned unchanged, and
    so is an error without a counterpart.
    """
    original = error.__cause__
    if original is not None:
        return original
    cls = _EXCEPTIONS.get(error.kind)
    if cls is None:
        return error
    raised = cls(str(error))
    raised.__cause__ = error
    return raised
