"""Sends through a client's own synchronous transport, in the thread that waits for the response."""

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
    """Runs the exchanges of a call until the call has a result.

    Returns:
        The reply or the error, and the runner that reads the rest of the response.

    """
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
    """Runs one exchange. It reads from the transport only when the caller waits for a chunk."""

    def __init__(self, exchange: Exchange, family: HttpxFamily) -> None:
        """Takes ownership of the exchange. Dropping the runner ends the exchange."""
        self.exchange = exchange
        self._family = family
        self._stream: Any = None
        self._chunks: Iterator[bytes] | None = None

    def send(self, call: KeptCall, custom: ClientTransports, request: Any) -> None:
        """Sends the attempt and passes the head of its response to the gate."""
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
        except Exception as error:  # noqa: BLE001 - the caller gets any exception of its transport
            self._close_quietly()
            call.fail(self.exchange, self._family.error_kind(error, begun=False), error)

    def forward_chunk(self) -> bool:
        """Passes the next chunk, or the end, to the gate. Returns `False` if the exchange is over."""
        # Reading for a cancelled exchange could block forever.
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
        """Ends the exchange in the transport, then reports its end. Idempotent."""
        try:
            self._close_stream()
        finally:
            self.exchange.close()

    def _close_quietly(self) -> None:
        # The caller gets the first failure.
        with contextlib.suppress(Exception):
            self._close_stream()

    def _close_stream(self) -> None:
        stream, self._stream, self._chunks = self._stream, None, None
        if stream is not None:
            stream.close()

    def __del__(self) -> None:
        """Ends an exchange that was not closed."""
        self.close()


class CustomByteStream:
    """The body of a response, read by the consuming thread.

    Closing or dropping it ends the exchange.
    """

    def __init__(self, reply: Reply, request: Any, family: HttpxFamily, runner: ExchangeRunner | None) -> None:
        """Takes ownership of the reply and of its runner."""
        self._reply = reply
        self._request = request
        self._family = family
        self._runner = runner

    def __iter__(self) -> CustomByteStream:
        """Returns the stream itself, because a response is read once."""
        return self

    def __next__(self) -> bytes:
        """Returns the next chunk of raw bytes."""
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
        # The gate may have ended the call while its transport is still open.
        self.close()
        raise self._family.exception(pulled, self._request)

    def close(self) -> None:
        """Ends the exchange now."""
        self._reply.close()
        if self._runner is not None:
            self._runner.close()


class UploadStream:
    """An upload that reports its end, and fails if its length differs from the declared one."""

    def __init__(self, request: Any, exchange: Exchange, family: HttpxFamily) -> None:
        """Wraps the stream of the request."""
        self._stream = request.stream
        self._declared_length = DeclaredLength(request, family)
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        """Yields the chunks of the stream."""
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
        """Closes the stream."""
        self._stream.close()
