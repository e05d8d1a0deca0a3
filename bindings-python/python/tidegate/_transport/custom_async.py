"""Sends through the asynchronous transport that a client had before it was wrapped.

An exchange is the HTTP request of one attempt with its response. Each exchange is a task on the
caller's event loop.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from tidegate._event_loop import run_native, running_loop
from tidegate._transport.custom_transport import UploadStreamBase, attempt_request

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

    from tidegate._native import Exchange
    from tidegate._transport.custom_transport import ClientTransports
    from tidegate._transport.httpx_family import HttpxFamily


def exchange_task_factory(
    custom: ClientTransports, request: Any, family: HttpxFamily
) -> Callable[[Exchange], asyncio.Task[None]]:
    """Returns a function that starts the task of one exchange.

    The task runs on the current event loop and in the caller's contextvars context, which tracing
    libraries need.
    """
    loop, context = running_loop(), contextvars.copy_context()

    def serve(exchange: Exchange) -> asyncio.Task[None]:
        return context.run(loop.create_task, _run_exchange(custom, request, family, exchange))

    return serve


async def _run_exchange(custom: ClientTransports, request: Any, family: HttpxFamily, exchange: Exchange) -> None:
    """Sends one attempt through the client's own transport, and passes its response to the gate.

    The gate cancels the task if the attempt is no longer needed.
    """
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
    except Exception as error:  # noqa: BLE001 - the caller gets any exception of its transport
        exchange.fail(family.error_kind(error, begun=begun), error)
        return
    # The end releases the slot, so the transport must have finished.
    if whole:
        exchange.end()


async def _forward_response(response: Any, exchange: Exchange) -> bool:
    """Passes the head and the chunks of a response to the gate.

    Returns `True` at the end of the body, and `False` if the gate needs no more chunks.
    """
    if not exchange.answer(response.status_code, response.headers.raw, response.extensions):
        return False
    async for chunk in response.stream:
        room = exchange.chunk(chunk)
        if room is None or (room is False and not await run_native(exchange.ready)):
            return False
    return True


class AsyncUploadStream(UploadStreamBase):
    """The body of a streamed upload, as the client's own transport reads it.

    See `UploadStreamBase`.
    """

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields the chunks of the body.

        The chunk that completes the declared length is held back until the body has ended, because
        the server would accept the request with it.
        """
        last = []
        async for chunk in self._stream:
            if self._declared_length.add(chunk):
                last.append(chunk)
            else:
                yield chunk
        self._declared_length.end()
        for chunk in last:
            yield chunk
        self._exchange.body_sent()

    async def aclose(self) -> None:
        await self._stream.aclose()
