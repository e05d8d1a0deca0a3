"""Shared parts of sending through a client's own transports, below the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate._native import Exchange
    from tidegate._transport.family import HttpxFamily

_PHASES = ("connect", "write", "read", "pool")

# Seconds. The transport reports its own timeouts first, and the gate reports its deadlines first.
_TRANSPORT_GRACE = 1.0
_DEADLINE_GRACE = 0.25


class ClientTransports:
    """The transports of an existing client."""

    def __init__(self, client: Any, *, owned: bool) -> None:
        """Stores the client itself, so that later mounts are used too.

        Args:
            client: The client.
            owned: Whether only the gate transport uses the client, and therefore enters and closes
                it.

        """
        self.client = client
        self.owned = owned

    def for_request(self, request: Any) -> Any:
        """Returns the transport that the client chooses for a request."""
        return self.client._transport_for_url(request.url)  # noqa: SLF001 - httpx's choice, with mounts


def attempt_request(request: Any, exchange: Exchange) -> Any:
    """Returns the request of one attempt: the client's request with the changes of the gate."""
    # copy.copy would use the pickling methods, which drop the stream and the extensions.
    made = object.__new__(type(request))
    made.__dict__.update(request.__dict__)
    changes = exchange.changes()
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
    """Compares the length of a streamed body with its content-length."""

    def __init__(self, request: Any, family: HttpxFamily) -> None:
        """Reads the declared length. The gate has checked that it is a number."""
        length = request.headers.get("content-length")
        self._left = None if length is None else int(length)
        self._request = request
        self._family = family

    def add(self, chunk: bytes) -> bool:
        """Counts a chunk.

        Returns `True` if the chunk completes the declared length and must be withheld.

        Raises:
            LocalProtocolError: The client's own class, if the body is longer than declared.

        """
        if self._left is None:
            return False
        self._left -= len(chunk)
        if self._left < 0:
            raise self._mismatch("longer")
        return self._left == 0

    def end(self) -> None:
        """Checks that the body is complete.

        Raises:
            LocalProtocolError: The client's own class, if the body is shorter than declared.

        """
        if self._left:
            raise self._mismatch("shorter")

    def _mismatch(self, which: str) -> Exception:
        message = f"the body is {which} than its content-length declares; correct or drop the header"
        error: Exception = self._family.module.LocalProtocolError(message, request=self._request)
        return error


def total_timeout(limits: Mapping[str, float | None]) -> float | None:
    """Returns the seconds after which a transport has answered or timed out.

    Returns None if one of its timeouts has no limit.
    """
    total = _TRANSPORT_GRACE
    for phase in _PHASES:
        limit = limits.get(phase)
        if limit is None:
            return None
        total += limit
    return total


def cap_timeouts(extensions: Mapping[str, Any], patience: float | None) -> Mapping[str, Any]:
    """Returns the request extensions with timeouts of at most `patience` seconds plus a grace period.

    A blocked thread cannot be told that a deadline has passed, so its transport must know it in
    advance.
    """
    if patience is None:
        return extensions
    most = patience + _DEADLINE_GRACE
    limits = extensions.get("timeout", {})
    timeout = {phase: most if limits.get(phase) is None else min(limits[phase], most) for phase in _PHASES}
    return {**extensions, "timeout": timeout}
