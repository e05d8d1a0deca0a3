"""Sends through the synchronous transport that a client had before it was wrapped.

An exchange is the HTTP request of one attempt with its response. It runs in the thread that waits
for the response.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from tidegate._native import Exchange
from tidegate._transport.custom_transport import (
    NOT_RETRIED,
    UploadStreamBase,
    attempt_request,
    cap_timeouts,
    raise_unretried,
    split_response,
)
from tidegate._transport.uploads import as_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate._errors import Error
    from tidegate._native import CustomCall, Reply
    from tidegate._transport.custom_transport import ClientTransports, ExchangeResponse
    from tidegate._transport.httpx_family import HttpxFamily


class Sender(Protocol):
    """Sends the attempts of one call through the connections of an HTTP library."""

    def send(self, exchange: Exchange) -> ExchangeResponse:
        """Sends one attempt, and returns its response when the head has arrived."""
        ...

    def error_kind(self, error: Exception, *, begun: bool, outer: BaseException | None) -> str:
        """Returns the gate's failure kind for an exception. See `HttpxFamily.error_kind`."""
        ...


class HttpxSender:
    """Sends the attempts of one call through the transports of an httpx client."""

    def __init__(self, custom: ClientTransports, request: Any, family: HttpxFamily) -> None:
        self._custom = custom
        self._request = request
        self._family = family

    def send(self, exchange: Exchange) -> ExchangeResponse:
        """Sends one attempt, and returns its response when the head has arrived."""
        request, family = self._request, self._family
        made = attempt_request(request, exchange)
        made.extensions = cap_timeouts(request.extensions, exchange.max_wait)
        if family.has_unread_body(request):
            made.stream = family.derive(UploadStream, "SyncByteStream")(request, exchange, family)
        response = self._custom.for_request(made).handle_request(made)
        return split_response(response, family)

    def error_kind(self, error: Exception, *, begun: bool, outer: BaseException | None) -> str:
        """Returns the gate's failure kind for an exception. See `HttpxFamily.error_kind`."""
        return self._family.error_kind(error, begun=begun, outer=outer)


def run_call(call: CustomCall, sender: Sender) -> tuple[Any, ExchangeRunner | None]:
    """Runs the exchanges of a call in the calling thread, until the call has a result.

    Returns:
        The reply or the error, and the runner that reads the rest of the response. The runner is
        None if no exchange was made.

    """
    runner: ExchangeRunner | None = None
    try:
        while True:
            event = call.wait(runner.exchange if runner else None)
            if type(event) is Exchange:
                if runner:
                    runner.close()
                runner = ExchangeRunner(event, sender)
                runner.send(call)
            elif event is not None or runner is None:
                raise_unretried(runner.unretried if runner else None, event)
                return event, runner
            else:
                runner.forward_chunk()
    except BaseException:
        call.cancel()
        if runner:
            runner.close()
        raise


class ExchangeRunner:
    """Sends one attempt through the client's own transport, and reads its response.

    The response is read only while the caller waits for a chunk.
    """

    def __init__(self, exchange: Exchange, sender: Sender) -> None:
        """Takes ownership of the exchange. Dropping the runner ends the exchange."""
        self.exchange = exchange
        self._sender = sender
        #: The exception after which the gate does not retry, or None.
        self.unretried: Exception | None = None
        self._stream: Any = None
        self._chunks: Iterator[bytes] | None = None
        lost_responses.start()

    def send(self, call: CustomCall) -> None:
        """Sends the attempt. Passes the head of its response, or the exception, to the gate."""
        outer = sys.exc_info()[1]
        try:
            response = self._sender.send(self.exchange)
            self._stream = response.stream
            if self.exchange.answer(response.status, response.headers, response.extensions):
                self._chunks = iter(response.stream)
            else:
                self.close()
        except Exception as error:  # noqa: BLE001 - the caller gets any exception of its transport
            call.fail(self.exchange, self._failed(error, begun=False, outer=outer), error)

    def forward_chunk(self) -> bool:
        """Reads the next chunk of the response, and passes it to the gate.

        At the end of the response, passes the end instead. If reading raises an exception, passes
        the exception. Returns `True` in these cases. If the exchange was cancelled or has ended,
        returns `False` without reading.
        """
        # Reading for a cancelled exchange could block forever.
        if self._chunks is None or self.exchange.cancelled:
            self.close()
            return False
        outer = sys.exc_info()[1]
        try:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._close_stream()
                self.exchange.end()
            elif self.exchange.chunk(as_bytes(chunk)) is None:
                self.close()
        except Exception as error:  # noqa: BLE001
            self.exchange.fail(self._failed(error, begun=True, outer=outer), error)
        return True

    def _failed(self, error: Exception, *, begun: bool, outer: BaseException | None) -> str:
        """Closes the response after an exception of the transport, and returns its failure kind.

        For the arguments, see `HttpxFamily.error_kind`.
        """
        self._close_quietly()
        kind = self._sender.error_kind(error, begun=begun, outer=outer)
        if kind == NOT_RETRIED:
            self.unretried = error
        return kind

    def close(self) -> None:
        """Closes the response in the client's own transport, then ends the exchange. Idempotent."""
        try:
            self._close_stream()
        finally:
            self.exchange.close()

    def _close_quietly(self) -> None:
        """Closes the response and suppresses exceptions, because the caller gets an earlier one."""
        with contextlib.suppress(Exception):
            self._close_stream()

    def _close_stream(self) -> None:
        """Closes the response in the client's own transport, if there is one. Idempotent."""
        stream, self._stream, self._chunks = self._stream, None, None
        if stream is not None:
            stream.close()

    def __del__(self) -> None:
        if self._stream is not None:
            lost_responses.add(self._stream, self._chunks)
        self.exchange.close()


class LostResponses:
    """Closes responses that the garbage collector found, in a thread of its own.

    The collector may run inside the transport while that holds its locks, so a finalizer must not call
    into the transport.
    """

    def __init__(self) -> None:
        """Creates the object without a thread."""
        self._found: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        # The process that has the thread. A forked child has no thread of its parent.
        self._process: int | None = None

    def start(self) -> None:
        """Starts the thread, unless it runs or no thread can be started, for example at exit.

        In a forked child, also forgets the responses of the parent.
        """
        process = os.getpid()
        if self._process == process:
            return
        # If two threads start at once, each queue has a thread that reads it.
        found: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self._found = found
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=_close_all, args=(found,), name="tidegate-lost", daemon=True).start()
            self._process = process

    def add(self, stream: Any, chunks: Any) -> None:
        """Lets the thread close a response. May be called by a finalizer.

        Args:
            stream: The response's stream.
            chunks: The iterator that reads the stream, which must not end in the finalizer either. None
                if there is none.

        """
        self._found.put((stream, chunks))


def _close_all(found: queue.SimpleQueue[tuple[Any, Any]]) -> None:
    """Closes responses as they are found."""
    while True:
        stream, chunks = found.get()
        with contextlib.suppress(Exception):
            # The iterator ends before its stream.
            del chunks
            stream.close()
        del stream


#: The only instance, which closes the lost responses of all calls.
lost_responses = LostResponses()


class CustomByteStream:
    """The body of a response that the consuming thread reads from the client's own transport.

    Closing or dropping the stream ends the exchange.
    """

    def __init__(self, reply: Reply, runner: ExchangeRunner | None, exception: Callable[[Error], Exception]) -> None:
        """Creates the body from a reply and the runner of its exchange, which the body then owns.

        `runner` is None if the gate itself made the response. `exception` returns the library's
        exception for an error of the gate.
        """
        self._reply = reply
        self._runner = runner
        self._exception = exception

    def __iter__(self) -> CustomByteStream:
        return self

    def __next__(self) -> bytes:
        """Returns the next chunk as it was received, without decoding the content encoding."""
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
        raise self._exception(pulled)

    def close(self) -> None:
        """Ends the exchange of this response at once, and releases its slot."""
        self._reply.close()
        if self._runner is not None:
            self._runner.close()


class UploadStream(UploadStreamBase):
    """The body of a streamed upload, as the client's own transport reads it.

    See `UploadStreamBase`.
    """

    def __iter__(self) -> Iterator[bytes]:
        """Yields the chunks of the body.

        The chunk that completes the declared length is held back until the body has ended, because
        the server would accept the request with it.
        """
        last = []
        for chunk in self._stream:
            if self._declared_length.add(chunk):
                last.append(chunk)
            else:
                yield chunk
        self._declared_length.end()
        yield from last
        self._exchange.body_sent()

    def close(self) -> None:
        self._stream.close()
