"""Sends through the asynchronous transport that a client had before it was wrapped.

An exchange is the HTTP request of one attempt with its response. Each exchange is a task on the
caller's event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from tidegate._event_loop import run_native, running_loop
from tidegate._native import Reply
from tidegate._transport.custom_transport import (
    NOT_RETRIED,
    UploadStreamBase,
    attempt_request,
    raise_unretried,
    split_response,
)
from tidegate._transport.uploads import as_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tidegate._native import Exchange
    from tidegate._transport.custom_transport import ClientTransports, ExchangeResponse
    from tidegate._transport.httpx_family import HttpxFamily


class AsyncSender(Protocol):
    """Sends the attempts of one call through the connections of an HTTP library."""

    async def send(self, exchange: Exchange) -> ExchangeResponse:
        """Sends one attempt, and returns its response when the head has arrived."""
        ...

    def error_kind(self, error: BaseException, *, begun: bool, outer: BaseException | None) -> str:
        """Returns the gate's failure kind for an exception. See `HttpxFamily.error_kind`."""
        ...


class AsyncHttpxSender:
    """Sends the attempts of one call through the transports of an httpx client."""

    def __init__(self, custom: ClientTransports, request: Any, family: HttpxFamily) -> None:
        self._custom = custom
        self._request = request
        self._family = family
        self._upload: AsyncUploadStream | None = None

    @property
    def is_reading(self) -> bool:
        """Whether the transport has begun to read a streamed body, and has not read it to its end."""
        return self._upload is not None and self._upload.is_reading

    async def send(self, exchange: Exchange) -> ExchangeResponse:
        """Sends one attempt, and returns its response when the head has arrived."""
        request, family = self._request, self._family
        made = attempt_request(request, exchange)
        if family.has_unread_body(request):
            made.stream = self._upload = family.derive(AsyncUploadStream, "AsyncByteStream")(request, exchange, family)
        response = await self._custom.for_request(made).handle_async_request(made)
        return split_response(response, family)

    def error_kind(self, error: BaseException, *, begun: bool, outer: BaseException | None) -> str:
        """Returns the gate's failure kind for an exception. See `HttpxFamily.error_kind`."""
        return self._family.error_kind(error, begun=begun, outer=outer)


def exchange_task_factory(
    sender: AsyncSender, fatal: list[BaseException], tasks: list[asyncio.Task[None]]
) -> Callable[[Exchange], asyncio.Task[None]]:
    """Returns a function that starts the task of one exchange, and appends the task to `tasks`.

    The task runs on the current event loop and in the caller's contextvars context, which tracing
    libraries need. If the transport raises a fatal exception, such as `KeyboardInterrupt`, or is
    cancelled by itself, the task appends the exception to `fatal`, and the caller raises it. The
    task also appends an exception after which the gate does not retry.
    """
    loop, context = running_loop(), contextvars.copy_context()

    def serve(exchange: Exchange) -> asyncio.Task[None]:
        task = context.run(loop.create_task, _run_exchange(sender, exchange, fatal))
        tasks.append(task)
        return task

    return serve


async def _run_exchange(sender: AsyncSender, exchange: Exchange, fatal: list[BaseException]) -> None:
    """Sends one attempt, and passes its response to the gate.

    The gate cancels the task if the attempt is no longer needed.
    """
    begun = False
    # The event loop itself may run in a handler of the program.
    outer = sys.exc_info()[1]
    try:
        response = await sender.send(exchange)
        begun = True
        try:
            whole = await _forward_response(response, exchange)
        finally:
            await response.stream.aclose()
    except BaseException as error:
        if not isinstance(error, Exception):
            # Without the gate, a cancellation is the transport's own.
            if _is_cancellation(error) and (exchange.cancelled or not isinstance(error, asyncio.CancelledError)):
                raise
            # Raised here, it would end the event loop before the caller could handle it.
            fatal.append(error)
        kind = sender.error_kind(error, begun=begun, outer=outer)
        if isinstance(error, Exception) and kind == NOT_RETRIED:
            fatal.append(error)
        exchange.fail(kind, error)
        return
    # The end releases the slot, so the transport must have finished.
    if whole:
        exchange.end()


def _is_cancellation(error: BaseException) -> bool:
    """Returns `True` if an exception ends a cancelled task, or is a group of only such exceptions."""
    # Nurseries of trio raise groups, which Python 3.10 does not have.
    members = getattr(error, "exceptions", None)
    if isinstance(members, tuple) and members:
        return all(map(_is_cancellation, members))
    # trio.Cancelled is recognised by name, so that trio is not imported.
    return isinstance(error, (asyncio.CancelledError, GeneratorExit)) or type(error).__name__ == "Cancelled"


def raise_fatal(fatal: list[BaseException], reply: Any) -> None:
    """Raises the fatal exception of an exchange, if there is one, instead of returning its reply.

    Below an SDK, the gate turns failures into responses, which would hide the exception. For an
    exception after which the gate does not retry, see `raise_unretried`.
    """
    for error in fatal:
        if isinstance(error, Exception):
            raise_unretried(error, reply)
            continue
        if isinstance(reply, Reply):
            reply.close()
        raise error


async def _forward_response(response: ExchangeResponse, exchange: Exchange) -> bool:
    """Passes the head and the chunks of a response to the gate.

    Returns `True` at the end of the body, and `False` if the gate needs no more chunks.
    """
    if not exchange.answer(response.status, response.headers, response.extensions):
        return False
    chunks = aiter(response.stream)
    try:
        async for chunk in chunks:
            room = exchange.chunk(as_bytes(chunk))
            if room is None or (room is False and not await run_native(exchange.ready)):
                return False
    finally:
        # A generator that is not closed is closed by the garbage collector, of which trio warns.
        if isinstance(chunks, AsyncGeneratorType):
            await chunks.aclose()
    return True


class AsyncUploadStream(UploadStreamBase):
    """The body of a streamed upload, as the client's own transport reads it.

    See `UploadStreamBase`.
    """

    is_reading = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields the chunks of the body.

        The chunk that completes the declared length is held back until the body has ended, because
        the server would accept the request with it.
        """
        last = []
        self.is_reading = True
        try:
            async for chunk in self._stream:
                if self._declared_length.add(chunk):
                    last.append(chunk)
                else:
                    yield chunk
        finally:
            self.is_reading = False
        self._declared_length.end()
        for chunk in last:
            yield chunk
        self._exchange.body_sent()

    async def aclose(self) -> None:
        await self._stream.aclose()
