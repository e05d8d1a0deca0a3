"""A client's own synchronous transport, below the gate: the thread that waits for the answer serves its exchanges."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tidegate._native import Exchange
from tidegate._transport.custom_transport import DeclaredLength, attempt_request, cap_timeouts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate._native import KeptCall, Reply
    from tidegate._transport.custom_transport import ClientTransports
    from tidegate._transport.family import HttpxFamily


def run_call(
    call: KeptCall, custom: ClientTransports, request: Any, family: HttpxFamily
) -> tuple[Any, ExchangeRunner | None]:
    """Serve a call's exchanges until it is answered. Return the reply, or error, and what brings the rest of it."""
    runner: ExchangeRunner | None = None
    try:
        while True:
            event = call.wait(runner.exchange if runner else None)
            if type(event) is Exchange:
                if runner:
                    runner.close()
                runner = ExchangeRunner(event, family)
                runner.send(call, custom, request)
            elif event is not None or runner is None:
                return event, runner
            else:
                runner.forward_chunk()
    except BaseException:
        call.cancel()
        if runner:
            runner.close()
        raise


class ExchangeRunner:
    """One exchange. Nothing is read from the transport but what somebody waits for."""

    def __init__(self, exchange: Exchange, family: HttpxFamily) -> None:
        """Own the exchange: when this goes, it ends."""
        self.exchange = exchange
        self._family = family
        self._stream: Any = None
        self._chunks: Iterator[bytes] | None = None

    def send(self, call: KeptCall, custom: ClientTransports, request: Any) -> None:
        """Send the attempt and hand over its head."""
        made = attempt_request(request, self.exchange)
        made.extensions = cap_timeouts(request.extensions, self.exchange.patience)
        if self._family.has_unread_body(request):
            upload_stream = self._family.derive(UploadStream, "SyncByteStream")
            made.stream = upload_stream(request, self.exchange, self._family)
        try:
            response = custom.for_request(made).handle_request(made)
            self._stream = response.stream
            if self.exchange.answer(response.status_code, response.headers.raw, response.extensions):
                self._chunks = iter(response.stream)
            else:
                self.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
            self._close_quietly()
            call.fail(self.exchange, self._family.error_kind(error, begun=False), error)

    def forward_chunk(self) -> bool:
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
            self._close_quietly()
            self.exchange.fail(self._family.error_kind(error, begun=True), error)
        return True

    def close(self) -> None:
        """End the exchange in the transport, then say so. Idempotent."""
        try:
            self._close_stream()
        finally:
            self.exchange.close()

    def _close_quietly(self) -> None:
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


class CustomByteStream:
    """A response's body, brought by the thread that reads it. Closing it, or losing it, ends the exchange at once."""

    def __init__(self, reply: Reply, request: Any, family: HttpxFamily, runner: ExchangeRunner | None) -> None:
        """Own the reply and what brings it."""
        self._reply = reply
        self._request = request
        self._family = family
        self._runner = runner

    def __iter__(self) -> CustomByteStream:
        """Return itself: a response is read once."""
        return self

    def __next__(self) -> bytes:
        """Return the next chunk."""
        try:
            pulled: Any = self._reply.pull_ready()
            while pulled is False:
                more = self._runner is not None and self._runner.forward_chunk()
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
        if self._runner is not None:
            self._runner.close()


class UploadStream:
    """An upload stream that reports its end, and fails if its length is not the declared one."""

    def __init__(self, request: Any, exchange: Exchange, family: HttpxFamily) -> None:
        """Read from the client's own stream."""
        self._stream = request.stream
        self._declared_length = DeclaredLength(request, family)
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        """Yield what the stream yields."""
        last = []
        for chunk in self._stream:
            if self._declared_length.add(chunk):
                last.append(chunk)
            else:
                yield chunk
        self._declared_length.end()
        yield from last
        self._exchange.sent()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
