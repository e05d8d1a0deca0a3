"""The asynchronous httpx transport.

The code is on the hot path: it calls the native module once for each request, and once for each
chunk of the response.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidegate._context import current
from tidegate._errors import Error
from tidegate._event_loop import cancel_call, current_port
from tidegate._native import Reply, Upload
from tidegate._task_id import task_id
from tidegate._transport.custom_async import exchange_task_factory
from tidegate._transport.custom_transport import total_timeout
from tidegate._transport.uploads import await_response, feed, fits_in_memory

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._transport.custom_transport import ClientTransports
    from tidegate._transport.family import HttpxFamily

_NO_LIMITS: dict[str, float | None] = {}


class AsyncGateTransport:
    """An `AsyncBaseTransport` that sends requests through a gate.

    It may be used from any number of event loops and threads.
    """

    def __init__(
        self,
        gate: _native.Gate,
        family: HttpxFamily,
        wrapped: bool,
        custom: ClientTransports | None,
        proxies: _native.ProxyRules | None,
    ) -> None:
        """Creates the transport. `HttpxFamily.derive` adds the base class of the package.

        Args:
            gate: The gate.
            family: The package of the client.
            wrapped: Whether the client belongs to an SDK whose retries are disabled.
            custom: The client's own transports, or None if the gate opens the connections.
            proxies: Proxy rules of this client, or None for those of the gate.

        """
        self.custom = custom
        self.proxies = proxies
        self._gate = gate
        self._family = family
        self._wrapped = wrapped
        self._byte_stream = family.derive(AsyncByteStream, "AsyncByteStream")

    async def handle_async_request(self, request: Any) -> Any:
        """Sends a request. Returns when the head of the response has arrived."""
        family = self._family
        port = current_port()
        try:
            body, feeding = request.content, None
        except family.request_not_read:
            if fits_in_memory(request):
                body, feeding = await request.aread(), None
            elif self.custom is not None:
                body, feeding = None, None
            else:
                body = Upload()
                feeding = asyncio.ensure_future(feed(body, request.stream))
        limits = request.extensions.get("timeout", _NO_LIMITS)
        try:
            if self.custom is None:
                future, number = self._gate.send(
                    port,
                    request.method,
                    str(request.url),
                    request.headers.raw,
                    body,
                    limits.get("read"),
                    limits.get("pool"),
                    current.get(),
                    self._wrapped,
                    task_id(),
                    self.proxies,
                )
            else:
                future, number = self._gate.send_kept(
                    port,
                    exchange_task_factory(self.custom, request, family),
                    request.method,
                    str(request.url),
                    request.headers.raw,
                    body,
                    total_timeout(limits),
                    limits.get("pool"),
                    current.get(),
                    self._wrapped,
                    task_id(),
                    None,
                )
        except Error as error:
            raise family.exception(error, request) from error
        try:
            reply = await future if feeding is None else await await_response(future, feeding)
        except BaseException:
            cancel_call(port, future, number)
            raise
        if type(reply) is not Reply:
            if feeding is not None:
                feeding.cancel()
            raise family.exception(reply, request)
        return family.response(
            status_code=reply.status,
            headers=reply.headers(),
            stream=self._byte_stream(reply, port, request, family, feeding),
            extensions=reply.extensions or {"http_version": reply.http_version},
        )

    async def __aenter__(self) -> AsyncGateTransport:
        """Enters the custom transports if only this client uses them."""
        if self.custom is not None and self.custom.owned:
            await self.custom.client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the transport."""
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the custom transports if only this client uses them.

        Connections of the gate stay open.
        """
        if self.custom is not None and self.custom.owned:
            await self.custom.client.aclose()


class AsyncByteStream:
    """The body of a response. Closing or dropping the stream ends the exchange at once."""

    def __init__(
        self,
        reply: Reply,
        port: _native.Port,
        request: Any,
        family: HttpxFamily,
        feeding: asyncio.Future[None] | None,
    ) -> None:
        """Takes ownership of the reply. Dropping the stream drops the reply."""
        self._feeding = feeding
        self._reply = reply
        self._port = port
        self._request = request
        self._family = family

    def __aiter__(self) -> AsyncByteStream:
        """Returns the stream itself, because a response is read once."""
        return self

    async def __anext__(self) -> bytes:
        """Returns the next chunk of raw bytes."""
        pulled: Any = self._reply.pull(self._port)
        if type(pulled) is bytes:
            return pulled
        if pulled is None:
            raise StopAsyncIteration
        if not isinstance(pulled, Error):
            try:
                pulled = await pulled
            except BaseException:
                self._reply.close(self._port)
                raise
            if type(pulled) is bytes:
                return pulled
            if pulled is None:
                raise StopAsyncIteration
        raise self._family.exception(pulled, self._request)

    async def aclose(self) -> None:
        """Ends the exchange now."""
        self._reply.close(self._port)
        if self._feeding is not None:
            self._feeding.cancel()
