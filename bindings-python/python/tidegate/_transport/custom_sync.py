"""A client's own synchronous transport, below the gate: the thread that waits for the answer serves its exchanges."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tidegate._native import Exchange
from tidegate._transport.custom_transport import Declared, attempt, limited

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate._native import KeptCall, Reply
    from tidegate._transport.custom_transport import Inner
    from tidegate._transport.family import Family


def served(call: KeptCall, inner: Inner, request: Any, family: Family) -> tuple[Any, Server | None]:
    """Serve a call's exchanges until it is answered. Return the reply, or error, and what brings the rest of it."""
    server: Server | None = None
    try:
        while True:
            event = call.wait(server.exchange if server else None)
            if type(event) is Exchange:
                if server:
                    server.close()
                server = Server(event, family)
                server.begin(call, inner, request)
            elif event is not None or server is None:
                return event, server
            else:
                server.step()
    except BaseException:
        call.cancel()
        if server:
            server.close()
        raise


class Server:
    """One exchange. Nothing is read from the transport but what somebody waits for."""

    def __init__(self, exchange: Exchange, family: Family) -> None:
        """Own the exchange: when this goes, it ends."""
        self.exchange = exchange
        self._family = family
        self._stream: Any = None
        self._chunks: Iterator[bytes] | None = None

    def begin(self, call: KeptCall, inner: Inner, request: Any) -> None:
        """Send the attempt and hand over its head."""
        made = attempt(request, self.exchange)
        made.extensions = limited(request.extensions, self.exchange.patience)
        if self._family.is_upload(request):
            sent = self._family.derive(Sent, "SyncByteStream")
            made.stream = sent(request, self.exchange, self._family)
        try:
            response = inner.of(made).handle_request(made)
            self._stream = response.stream
            if self.exchange.answer(response.status_code, response.headers.raw, response.extensions):
                self._chunks = iter(response.stream)
            else:
                self.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
            self._give_up()
            call.fail(self.exchange, self._family.kind(error, begun=False), error)

    def step(self) -> bool:
        """Hand over one chunk more, or the end. False: there is nothing more to come."""
        # What nobody waits for may never come.
        if self._chunks is None or self.exchange.cancelled:
            self.close()
            return False
        try:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._close_stream()
                self.exchange.end()
            elif self.exchange.chunk(chunk) is None:
                self.close()
        except Exception as error:  # noqa: BLE001
            self._give_up()
            self.exchange.fail(self._family.kind(error, begun=True), error)
        return True

    def close(self) -> None:
        """End the exchange in the transport, then say so. Idempotent."""
        try:
            self._close_stream()
        finally:
            self.exchange.close()

    def _give_up(self) -> None:
        # What failed first is what is told.
        with contextlib.suppress(Exception):
            self._close_stream()

    def _close_stream(self) -> None:
        stream, self._stream, self._chunks = self._stream, None, None
        if stream is not None:
            stream.close()

    def __del__(self) -> None:
        """End what nobody closed."""
        self.close()


class KeptByteStream:
    """A response's body, brought by the thread that reads it. Closing it, or losing it, ends the exchange at once."""

    def __init__(self, reply: Reply, request: Any, family: Family, server: Server | None) -> None:
        """Own the reply and what brings it."""
        self._reply = reply
        self._request = request
        self._family = family
        self._server = server

    def __iter__(self) -> KeptByteStream:
        """Return itself: a response is read once."""
        return self

    def __next__(self) -> bytes:
        """Return the next chunk."""
        try:
            pulled: Any = self._reply.pull_ready()
            while pulled is False:
                more = self._server is not None and self._server.step()
                pulled = self._reply.pull_ready() if more else self._reply.pull_blocking()
        except BaseException:
            self.close()
            raise
        if type(pulled) is bytes:
            return pulled
        if pulled is None:
            raise StopIteration
        # The gate may have given it up before its transport has.
        self.close()
        raise self._family.exception(pulled, self._request)

    def close(self) -> None:
        """End the exchange now."""
        self._reply.close()
        if self._server is not None:
            self._server.close()


class Sent:
    """An upload stream that reports its end, and fails if its length is not the declared one."""

    def __init__(self, request: Any, exchange: Exchange, family: Family) -> None:
        """Read from the client's own stream."""
        self._stream = request.stream
        self._declared = Declared(request, family)
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        """Yield what the stream yields."""
        last = []
        for chunk in self._stream:
            if self._declared.add(chunk):
                last.append(chunk)
            else:
                yield chunk
        self._declared.end()
        yield from last
        self._exchange.sent()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
