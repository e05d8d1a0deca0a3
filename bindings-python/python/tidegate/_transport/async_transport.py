"""The asynchronous transport. Everything here is on the hot path: one crossing a call, one a chunk."""

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
    """An `AsyncBaseTransport` whose calls go through a gate. Usable from any number of event loops and threads."""

    def __init__(
        self,
        gate: _native.Gate,
        family: HttpxFamily,
        wrapped: bool,
        custom: ClientTransports | None,
        proxies: _native.ProxyRules | None,
    ) -> None:
        """Build on the family's base class (see `Family`); `inner` are the transports to send by, if not the gate's.

        `proxies` are the rules of the gate's transport for this client; None: those of the gate.
        """
        self.custom = custom
        self.proxies = proxies
        self._gate = gate
        self._family = family
        self._wrapped = wrapped
        self._byte_stream = family.derive(AsyncByteStream, "AsyncByteStream")

    async def handle_async_request(self, request: Any) -> Any:
        """Send one request; return when the head is known."""
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
        """Enter the transports that are this client's alone."""
        if self.custom is not None and self.custom.owned:
            await self.custom.client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the transports that are this client's alone. Connections of the gate outlive any one client."""
        if self.custom is not None and self.custom.owned:
            await self.custom.client.aclose()


class AsyncByteStream:
    """A response's body: raw bytes, one chunk a pull. Closing it, or losing it, ends the exchange at once."""

    def __init__(
        self,
        reply: Reply,
        port: _native.Port,
        request: Any,
        family: HttpxFamily,
        feeding: asyncio.Future[None] | None,
    ) -> None:
        """Own the reply: when this goes, the reply goes."""
        self._feeding = feeding
        self._reply = reply
        self._port = port
        self._request = request
        self._family = family

    def __aiter__(self) -> AsyncByteStream:
        """Return itself: a response is read once."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next chunk."""
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
        """End the exchange now."""
        self._reply.close(self._port)
        if self._feeding is not None:
            self._feeding.cancel()
