"""Shared parts of sending through the connections of an HTTP library, below the gate."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate._native import Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate._native import Exchange
    from tidegate._transport.httpx_family import HttpxFamily

# The headers that describe a body as it was sent, and not the decoded one.
_HEADERS_OF_ENCODED = frozenset((b"content-encoding", b"content-length", b"transfer-encoding"))

_PHASES = ("connect", "write", "read", "pool")

# Seconds that the gate waits beyond the timeouts of a transport, so that the transport reports them
# first; and seconds that a transport waits beyond a deadline, so that the gate reports it first.
_TRANSPORT_GRACE = 1.0
_DEADLINE_GRACE = 0.25


class ExchangeResponse(NamedTuple):
    """The response of one attempt: its head, and the stream of its body.

    Attributes:
        status: The HTTP status.
        headers: The headers, `[(name, value), ...]`.
        extensions: What the library adds to the head. `Reply.extensions` returns it.
        stream: An iterable of the chunks of the body, with a method `close` or `aclose`.

    """

    status: int
    headers: list[tuple[bytes, bytes]]
    extensions: dict[str, Any]
    stream: Any


def split_response(response: Any, family: HttpxFamily) -> ExchangeResponse:
    """Returns the parts of a response that a transport has returned.

    A transport may have read the body itself, for example to log it. Then only the decoded body is left.
    """
    headers, stream = response.headers.raw, response.stream
    if response.is_stream_consumed and not isinstance(stream, family.module.ByteStream):
        with contextlib.suppress(family.module.ResponseNotRead):
            stream = family.module.ByteStream(response.content)
            if "content-encoding" in response.headers:
                headers = [(name, value) for name, value in headers if name.lower() not in _HEADERS_OF_ENCODED]
    return ExchangeResponse(response.status_code, headers, response.extensions, stream)


class ClientTransports:
    """The transports of an existing httpx client, through which the gate sends."""

    def __init__(self, client: Any, *, owned: bool) -> None:
        """Stores the client itself, so that mounts that are added to it later are used too.

        Args:
            client: The httpx client.
            owned: Whether only the gate transport uses the client, and therefore opens and closes
                it.

        """
        self.client = client
        self.owned = owned

    def for_request(self, request: Any) -> Any:
        """Returns the transport that the client chooses for the URL of a request."""
        return self.client._transport_for_url(request.url)  # noqa: SLF001 - httpx's choice, with mounts


def attempt_request(request: Any, exchange: Exchange) -> Any:
    """Returns a copy of the caller's httpx request for one attempt.

    The copy has the headers that the gate changed and, for a pool, the URL of the replica.
    """
    # copy.copy would use the pickling methods, which drop the stream and the extensions.
    made = object.__new__(type(request))
    made.__dict__.update(request.__dict__)
    changes = exchange.changed_headers()
    if changes or exchange.url is not None:
        made.headers = request.headers.copy()
        for name, value in changes:
            made.headers[name] = value
    if exchange.url is not None:
        # The attempt goes to a replica of the pool, by the transport for that URL.
        made.url = type(request.url)(exchange.url)
        made.headers["Host"] = made.url.netloc.decode("ascii")
    return made


class DeclaredLength:
    """Checks that a streamed body has the length that its content-length header declares."""

    def __init__(self, request: Any, family: HttpxFamily) -> None:
        """Reads the declared length from the content-length header of a request.

        The gate has checked that the value is a number. Without the header, any length is valid.
        """
        length = request.headers.get("content-length")
        self._left = None if length is None else int(length)
        self._request = request
        self._family = family

    def add(self, chunk: bytes) -> bool:
        """Counts the length of a chunk, and returns `True` if it completes the declared length.

        The caller must withhold such a chunk until the end of the body, because the server would
        accept the request before a mismatch is found. Returns `False` if more is to come, or if no
        length is declared.

        Raises:
            LocalProtocolError: The class of the client's package, if the body is longer than
                declared.

        """
        if self._left is None:
            return False
        self._left -= len(chunk)
        if self._left < 0:
            raise self._mismatch("longer")
        return self._left == 0

    def end(self) -> None:
        """Checks, after the last chunk, that the body has its declared length.

        Raises:
            LocalProtocolError: The class of the client's package, if the body is shorter than
                declared.

        """
        if self._left:
            raise self._mismatch("shorter")

    def _mismatch(self, which: str) -> Exception:
        """Returns the error for a body that is `longer` or `shorter` (`which`) than declared."""
        message = f"the body is {which} than its content-length declares; correct or drop the header"
        error: Exception = self._family.module.LocalProtocolError(message, request=self._request)
        return error


class UploadStreamBase:
    """The body of a streamed upload, as the client's own transport reads it.

    Reading raises an exception if the length differs from the declared one. The end of the body is
    reported to the gate.
    """

    def __init__(self, request: Any, exchange: Exchange, family: HttpxFamily) -> None:
        self._stream = request.stream
        self._declared_length = DeclaredLength(request, family)
        self._exchange = exchange


#: The failure kind of exceptions after which the gate does not retry: they are no failures of the network.
NOT_RETRIED = "request"


def raise_unretried(error: Exception | None, reply: Any) -> None:
    """Raises the exception of a client's own transport after which the gate does not retry.

    Below an SDK, the gate turns failures into responses, so that the SDK does not retry what the
    gate has retried. Such a response would only hide an exception that the gate has not retried.

    Args:
        error: The exception. None does nothing.
        reply: The result of the call. An error of the gate is not hidden: it has `error` as its
            cause. A response that the transport returned is one of another attempt.

    """
    if error is not None and isinstance(reply, Reply) and reply.extensions is None:
        reply.close()
        raise error


def total_timeout(limits: Mapping[str, float | None], phases: tuple[str, ...] = _PHASES) -> float | None:
    """Returns the seconds after which a transport must have answered or timed out.

    This is the sum of the timeouts in `limits` and a grace period of 1 s. Returns None if the
    timeout of one of the `phases` is not set. Default: the phases of httpx.
    """
    total = _TRANSPORT_GRACE
    for phase in phases:
        limit = limits.get(phase)
        if limit is None:
            return None
        total += limit
    return total


def cap_timeouts(extensions: Mapping[str, Any], max_wait: float | None) -> Mapping[str, Any]:
    """Returns httpx's request extensions with each timeout limited by `capped`.

    `max_wait` is the time that the call may still take, in seconds; None changes nothing.
    """
    if max_wait is None:
        return extensions
    limits = extensions.get("timeout", {})
    timeout = {phase: capped(limits.get(phase), max_wait) for phase in _PHASES}
    return {**extensions, "timeout": timeout}


def capped(timeout: float | None, max_wait: float | None) -> float | None:
    """Returns a timeout limited to `max_wait` plus 0.25 s. None means no limit in both.

    A blocked thread cannot be interrupted when a deadline passes, so its transport must know the
    limit in advance.
    """
    if max_wait is None:
        return timeout
    limit = max_wait + _DEADLINE_GRACE
    return limit if timeout is None else min(timeout, limit)
