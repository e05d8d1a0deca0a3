"""What both kinds of kept transports need: a client's own transports, and its requests as the gate sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate._native import Exchange
    from tidegate._transport.family import HttpxFamily

_PHASES = ("connect", "write", "read", "pool")

# Seconds. The client's own transport has the first word about its own timeouts, and the gate about its deadlines.
_TRANSPORT_GRACE = 1.0
_DEADLINE_GRACE = 0.25


class ClientTransports:
    """The transports that a client has by itself, chosen among as it would."""

    def __init__(self, client: Any, *, owned: bool) -> None:
        """Keep the client, live: what is mounted later counts too.

        With `owned`, nobody else has it, and it is entered and closed with ours; else it stays its owner's to close.
        """
        self.client = client
        self.owned = owned

    def for_request(self, request: Any) -> Any:
        """Return the transport for a request."""
        return self.client._transport_for_url(request.url)  # noqa: SLF001 - httpx's own choice, mounts and all


def attempt_request(request: Any, exchange: Exchange) -> Any:
    """Return the request for one attempt: the client's own, but for what the gate changed in it."""
    # Not copy.copy: it is meant for pickling, and leaves the stream and the extensions behind.
    made = object.__new__(type(request))
    made.__dict__.update(request.__dict__)
    changes = exchange.changes()
    if changes or exchange.url is not None:
        made.headers = request.headers.copy()
        for name, value in changes:
            made.headers[name] = value
    if exchange.url is not None:
        # To a replica of its pool, and by the transport that the client has for that one.
        made.url = type(request.url)(exchange.url)
        made.headers["Host"] = made.url.netloc.decode("ascii")
    return made


class DeclaredLength:
    """Compares a streamed body with its content-length."""

    def __init__(self, request: Any, family: HttpxFamily) -> None:
        """Read the length that the request declares; the gate has checked that it is a number."""
        length = request.headers.get("content-length")
        self._left = None if length is None else int(length)
        self._request = request
        self._family = family

    def add(self, chunk: bytes) -> bool:
        """Count a chunk. Return `True` if it completes the declared length and must be withheld.

        Raises:
            LocalProtocolError: the client's own, for a body that is longer than declared.

        """
        if self._left is None:
            return False
        self._left -= len(chunk)
        if self._left < 0:
            raise self._mismatch("longer")
        return self._left == 0

    def end(self) -> None:
        """Raise the client's own `LocalProtocolError` for a body that is shorter than declared."""
        if self._left:
            raise self._mismatch("shorter")

    def _mismatch(self, which: str) -> Exception:
        message = f"the body is {which} than its content-length declares; correct or drop the header"
        error: Exception = self._family.module.LocalProtocolError(message, request=self._request)
        return error


def total_timeout(limits: Mapping[str, float | None]) -> float | None:
    """Return the seconds in which a transport that keeps its timeouts has answered or failed; None without a limit."""
    total = _TRANSPORT_GRACE
    for phase in _PHASES:
        limit = limits.get(phase)
        if limit is None:
            return None
        total += limit
    return total


def cap_timeouts(extensions: Mapping[str, Any], patience: float | None) -> Mapping[str, Any]:
    """Return a request's extensions with timeouts that end when nobody waits any more.

    A blocked thread cannot be told that the deadline has passed, so that its transport must know beforehand.
    """
    if patience is None:
        return extensions
    most = patience + _DEADLINE_GRACE
    limits = extensions.get("timeout", {})
    timeout = {phase: most if limits.get(phase) is None else min(limits[phase], most) for phase in _PHASES}
    return {**extensions, "timeout": timeout}
