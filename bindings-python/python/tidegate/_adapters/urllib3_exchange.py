"""Parts that requests and botocore share, because both send through urllib3."""

from __future__ import annotations

import http.client
import io
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, ReadTimeoutError

from tidegate._errors import Error
from tidegate._native import Reply
from tidegate._transport.custom_sync import CustomByteStream, lost_responses, run_call
from tidegate._transport.custom_transport import ExchangeResponse
from tidegate._transport.httpx_family import is_refused
from tidegate._transport.uploads import MAX_BUFFERED_BODY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate import _native
    from tidegate._native import Exchange
    from tidegate._transport.custom_sync import Sender

if not hasattr(urllib3.HTTPResponse, "read1"):
    raise ImportError("this version of urllib3 is too old for the gate: pip install 'urllib3>=2.2'")

# Bytes. Maximum length of the chunks in which a body is read.
_CHUNK = 65536

# Kinds of failures of the gate that are timeouts.
TIMEOUTS = ("deadline", "first_token_timeout", "idle_timeout")

# The kind of failure for each exception of urllib3 while a body is read.
_KINDS_OF_BODY = {"ReadTimeoutError": "idle_timeout", "ProtocolError": "truncated", "SSLError": "transport"}

# Maximum length of a chain of causes. Those of requests have four errors.
_MAX_CAUSE_DEPTH = 8


def send_call(
    gate: _native.Gate, sender: Sender, arguments: Any, exception: Callable[[Error], Exception], method: str
) -> GateResponse:
    """Makes a call in the calling thread, and returns its response when the head has arrived.

    Args:
        gate: The native gate.
        sender: Sends the attempts.
        arguments: The result of `call_arguments`.
        exception: Returns the library's exception for an error of the gate.
        method: The HTTP method.

    """
    try:
        call = gate.start_custom(*arguments)
    except Error as error:
        raise exception(error) from error
    reply, runner = run_call(call, sender)
    if type(reply) is not Reply:
        raise exception(reply)
    return GateResponse(reply, CustomByteStream(reply, runner, _body_exception), method)


class GateResponse(urllib3.HTTPResponse):
    """The response of a call, whose body is read as it arrives.

    Closing or dropping the response ends the exchange with the server and releases the slot.

    Attributes:
        is_from_gate: Whether the gate made the response itself, because it rejected the call.

    """

    def __init__(self, reply: Reply, stream: CustomByteStream, method: str) -> None:
        """Creates the response from a reply and the stream of its body."""
        headers = urllib3.HTTPHeaderDict(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in reply.headers()
        )
        self.is_from_gate = reply.extensions is None
        extensions = reply.extensions or {"reason": http.client.responses.get(reply.status, ""), "version": 11}
        body = io.BufferedReader(_Body(stream), _CHUNK)
        super().__init__(
            body=body,
            headers=headers,
            status=reply.status,
            version=extensions["version"],
            reason=extensions["reason"],
            preload_content=False,
            decode_content=False,
            # requests reads the cookies from this object.
            original_response=_OriginalResponse(headers, body),  # type: ignore[arg-type]
            enforce_content_length=False,
            request_method=method,
        )
        if self.length_remaining == 0:
            # The caller may not read a body that is empty.
            self.read1()
        # Otherwise urllib3 closes the body with its last byte, and the gate would count a call that was left.
        self.length_remaining = None

    def stream(self, amt: int | None = _CHUNK, decode_content: bool | None = None) -> Iterator[bytes]:  # type: ignore[override]
        """Yields the body in parts of at most `amt` bytes, each as soon as it arrives."""
        while part := self.read1(amt, decode_content=decode_content):
            yield part


class _Body(io.RawIOBase):
    """The body of a response as a file."""

    def __init__(self, stream: CustomByteStream) -> None:
        self._stream = stream
        self._unread = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._unread:
            self._unread = memoryview(next(filter(None, self._stream), b""))
        size = min(len(buffer), len(self._unread))
        buffer[:size], self._unread = self._unread[:size], self._unread[size:]
        return size

    def close(self) -> None:
        """Ends the exchange with the server at once, and releases its slot. Idempotent."""
        if not self.closed:
            self._stream.close()
        super().close()


class _OriginalResponse:
    """The part of an `http.client.HTTPResponse` that requests and urllib3 read."""

    def __init__(self, headers: urllib3.HTTPHeaderDict, body: io.BufferedReader) -> None:
        self.msg = headers
        self._body = body

    def isclosed(self) -> bool:
        return self._body.closed

    def close(self) -> None:
        self._body.close()


def exchange_response(raw: urllib3.HTTPResponse) -> ExchangeResponse:
    """Returns the response of one attempt, from a response of urllib3 that was not read."""
    raw.enforce_content_length = True
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in raw.headers.items()]
    return ExchangeResponse(raw.status, headers, {"reason": raw.reason, "version": raw.version}, _RawStream(raw))


class _RawStream:
    """The chunks of a response of urllib3 as they arrive, without decoding the content encoding."""

    def __init__(self, raw: urllib3.HTTPResponse) -> None:
        self._raw = raw
        # Whether nothing is left to read, or the connection is closed.
        self._can_release = False

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._raw.read1(_CHUNK, decode_content=False):
            yield chunk
        self._can_release = True

    def close(self) -> None:
        """Closes the connection unless the body was read to the end, and returns it to its pool.

        The thread of `lost_responses` returns a closed connection, because a finalizer may call this
        method and must not wait for the lock of the pool.
        """
        if self._can_release:
            self._raw.release_conn()
        else:
            self._raw.close()
            self._can_release = True
            lost_responses.add(self, None)


def request_headers(headers: Any) -> list[tuple[bytes, bytes]]:
    """Returns the headers of a request for the native functions. Names and values are text or bytes."""
    return [(_to_bytes(name), _to_bytes(value)) for name, value in headers.items() if value is not None]


def _to_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1")


def buffered_body(body: Any, headers: Any) -> Any:
    """Returns a request body as bytes, or `body` itself if it is a stream that does not fit in memory.

    A stream fits in memory if its content-length is known and at most 32 MiB.
    """
    if body is None or isinstance(body, (bytes, bytearray, str)):
        return body.encode() if isinstance(body, str) else bytes(body or b"")
    length = headers.get("Content-Length") or ""
    length = length.decode("latin-1") if isinstance(length, bytes) else length
    if not (length.isdecimal() and int(length) <= MAX_BUFFERED_BODY):
        return body
    return b"".join(_parts(body))


def streamed_body(body: Any, exchange: Exchange) -> Iterator[bytes]:
    """Yields the parts of a request body, and reports the end of the body to the gate."""
    yield from _parts(body)
    exchange.body_sent()


def _parts(body: Any) -> Iterable[bytes]:
    """Yields the parts of a file or of an iterable of bytes or text."""
    # Some readers read everything if asked for nothing.
    parts: Iterable[Any] = iter(lambda: body.read(_CHUNK) or None, None) if hasattr(body, "read") else body
    for part in parts:
        yield part.encode() if isinstance(part, str) else part


def _is_connect_error(error: BaseException, outer: BaseException | None) -> bool:
    """Returns `True` if `error`, or an error that caused it, is a failure to open a connection.

    `outer` is the exception that the program was handling before the attempt, which is no cause.
    """
    seen: BaseException | None = error
    for _ in range(_MAX_CAUSE_DEPTH):
        if seen is None or seen is outer:
            break
        if isinstance(seen, NewConnectionError):
            return True
        reason = getattr(seen, "reason", None) if isinstance(seen, HTTPError) else None
        seen = reason if isinstance(reason, Exception) else seen.__cause__ or seen.__context__
    return False


def failure_kind(
    error: Exception,
    kinds: tuple[tuple[type[Exception], str], ...],
    connection_error: type[Exception],
    *,
    begun: bool,
    outer: BaseException | None,
) -> str:
    """Returns the gate's failure kind for an exception of a library that is built on urllib3.

    Args:
        error: The exception.
        kinds: The kind for each of the library's exceptions before the response began. The first
            match wins.
        connection_error: The library's class of other failures of the connection.
        begun: Whether the head of the response had arrived before the exception.
        outer: The exception that the program was handling before the attempt, or None. Python
            appends it to the context of `error`, but it did not cause the error.

    Returns:
        The kind; `request` for an exception after which the gate does not retry.

    """
    if begun:
        return _body_kind(error)
    kind = next((kind for cls, kind in kinds if isinstance(error, cls)), None)
    if kind is not None:
        return kind
    if not isinstance(error, connection_error):
        return "request"
    if is_refused(error, outer):
        return "refused"
    return "connect" if _is_connect_error(error, outer) else "transport"


def _body_kind(error: Exception) -> str:
    """Returns the gate's failure kind for an exception that was raised while a body was read."""
    names = (cls.__name__ for cls in type(error).__mro__)
    kind = next((_KINDS_OF_BODY[name] for name in names if name in _KINDS_OF_BODY), None)
    return kind or ("transport" if isinstance(error, OSError) else "request")


def _body_exception(error: Error) -> Exception:
    """Returns urllib3's exception for an error of the gate while a body is read.

    The libraries translate the exceptions of urllib3 into their own.
    """
    original = error.__cause__
    if isinstance(original, Exception):
        return original
    is_timeout = error.kind in TIMEOUTS
    made: Any = ReadTimeoutError(None, None, str(error)) if is_timeout else ProtocolError(str(error), error)  # type: ignore[arg-type]
    made.__cause__ = error
    return made  # type: ignore[no-any-return]
