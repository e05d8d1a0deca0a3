"""A client's own asynchronous transport, below the gate: each exchange is a task of the loop that made the call."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

from tidegate._event_loop import run_native
from tidegate._transport.custom_transport import DeclaredLength, attempt_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tidegate._native import Exchange
    from tidegate._transport.custom_transport import ClientTransports
    from tidegate._transport.family import HttpxFamily


def exchange_task_factory(
    custom: ClientTransports, request: Any, family: HttpxFamily
) -> Callable[[Exchange], asyncio.Task[None]]:
    """Return what makes a task of an exchange, in the caller's own context (tracing goes on working)."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()

    def serve(exchange: Exchange) -> asyncio.Task[None]:
        return context.run(loop.create_task, _run_exchange(custom, request, family, exchange))

    return serve


async def _run_exchange(custom: ClientTransports, request: Any, family: HttpxFamily, exchange: Exchange) -> None:
    """Send one attempt and hand its answer over. Cancelled when nobody waits any more."""
    made = attempt_request(request, exchange)
    if family.has_unread_body(request):
        made.stream = family.derive(AsyncUploadStream, "AsyncByteStream")(request, exchange, family)
    begun = False
    try:
        response = await custom.for_request(made).handle_async_request(made)
        begun = True
        try:
            whole = await _forward_response(response, exchange)
        finally:
            await response.stream.aclose()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
        exchange.fail(family.error_kind(error, begun=begun), error)
        return
    # Not before the transport is done with it: the slot may be free now.
    if whole:
        exchange.end()


async def _forward_response(response: Any, exchange: Exchange) -> bool:
    """Hand over the head, and chunks as there is room. False: nobody wants the rest."""
    if not exchange.answer(response.status_code, response.headers.raw, response.extensions):
        return False
    async for chunk in response.stream:
        room = exchange.chunk(chunk)
        if room is None or (room is False and not await run_native(exchange.room)):
            return False
    return True


class AsyncUploadStream:
    """An upload stream that reports its end, and fails if its length is not the declared one."""

    def __init__(self, request: Any, exchange: Exchange, family: HttpxFamily) -> None:
        """Read from the client's own stream."""
        self._stream = request.stream
        self._declared_length = DeclaredLength(request, family)
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield what the stream yields."""
        last = []
        async for chunk in self._stream:
            if self._declared_length.add(chunk):
                last.append(chunk)
            else:
                yield chunk
        self._declared_length.end()
        for chunk in last:
            yield chunk
        self._exchange.sent()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()
