"""The asynchronous httpx transport.

The code is on the hot path: it calls the native module once for each request, and once for each
chunk of the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate._errors import Error
from tidegate._event_loop import cancel_call, current_port, running_loop, wait_for_all
from tidegate._native import Reply, Upload
from tidegate._transport.base import TransportBase
from tidegate._transport.custom_async import AsyncHttpxSender, exchange_task_factory, raise_fatal
from tidegate._transport.response import AsyncGateResponse
from tidegate._transport.uploads import await_response, feed, fits_in_memory

if TYPE_CHECKING:
    import asyncio

    from tidegate import _native
    from tidegate._transport.httpx_family import HttpxFamily


class AsyncGateTransport(TransportBase):
    """An `httpx.AsyncBaseTransport` that sends requests through a gate.

    One instance may be used from any number of event loops and threads.
    """

    async def handle_async_request(self, request: Any) -> Any:
        """Sends a request, and returns its response when the head of the response has arrived."""
        family = self._family
        port = current_port()
        try:
            body, feeding = request.content, None
        except family.request_not_read:
            if fits_in_memory(request, family):
                body, feeding = await request.aread(), None
            elif self.custom is not None:
                body, feeding = None, None
            else:
                body = Upload()
                feeding = running_loop().create_task(feed(body, request.stream))
        sender = None if self.custom is None else AsyncHttpxSender(self.custom, request, family)
        fatal: list[BaseException] = []
        tasks: list[asyncio.Task[None]] = [] if feeding is None else [feeding]
        try:
            factory = None if sender is None else exchange_task_factory(sender, fatal, tasks)
            future, number = self._start(port, factory, request, body)
            try:
                reply = await future if feeding is None else await await_response(future, feeding)
            except BaseException:
                cancel_call(port, future, number)
                raise
            raise_fatal(fatal, reply)
            if type(reply) is not Reply:
                raise family.exception(reply, request)  # noqa: TRY301 - ends the upload, too
        except BaseException as error:
            if feeding is not None:
                feeding.cancel()
            # The caller may close its body next, which is an error while the body is read. The native
            # module cancels exchanges. A coroutine that is closed must not wait.
            is_reading = feeding is not None or (sender is not None and sender.is_reading)
            if is_reading and not isinstance(error, GeneratorExit):
                await wait_for_all(tasks)
            raise
        byte_stream = family.derive(AsyncByteStream, "AsyncByteStream")
        stream = byte_stream(reply, port, request, family, feeding, tasks)
        response = self._response(reply, stream, family.derive(AsyncGateResponse, "Response"))
        response.gate_stream = stream
        return response

    def _start(self, port: _native.Port, factory: Any, request: Any, body: Any) -> tuple[asyncio.Future[Any], int]:
        """Starts the call. Returns the future of its reply, and the number that cancels the call.

        `factory` starts the tasks of the exchanges. If it is None, the gate opens the connections.
        """
        arguments = self._arguments(request, body)
        try:
            if factory is None:
                return self._gate.send(port, *arguments)
            return self._gate.send_custom(port, factory, *arguments)
        except Error as error:
            raise self._family.exception(error, request)  # noqa: B904 - family.exception sets the cause

    async def __aenter__(self) -> AsyncGateTransport:
        """Opens the httpx client whose transports open the connections, if this object owns it.

        Does nothing if the gate opens the connections.
        """
        if self.custom is not None and self.custom.owned:
            await self.custom.client.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Exits the httpx client whose transports open the connections, if this object owns it."""
        if self.custom is not None and self.custom.owned:
            await self.custom.client.__aexit__(*raised)

    async def aclose(self) -> None:
        """Closes the httpx client whose transports open the connections, if this object owns it.

        Connections that the gate opened stay open for other clients of the gate.
        """
        if self.custom is not None and self.custom.owned:
            await self.custom.client.aclose()


class AsyncByteStream:
    """The body of a response.

    Closing or dropping the stream ends the exchange with the server at once.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - called by the transport only
        self,
        reply: Reply,
        port: _native.Port,
        request: Any,
        family: HttpxFamily,
        feeding: asyncio.Future[None] | None,
        tasks: list[asyncio.Task[None]],
    ) -> None:
        """Creates the body from a reply. Dropping the stream also drops the reply.

        Args:
            reply: The native response.
            port: The port of the event loop on which the request was sent.
            request: The httpx request, for exceptions.
            family: The package of the httpx client.
            feeding: The task that sends the request body, or None if the body was sent as a whole.
            tasks: The tasks of the exchanges with the client's own transport, and `feeding`.

        """
        self._feeding = feeding
        self._tasks = tasks
        self._reply = reply
        self._port = port
        self._request = request
        self._family = family

    def __aiter__(self) -> AsyncByteStream:
        return self

    async def __anext__(self) -> bytes:
        """Returns the next chunk as it was received, without decoding the content encoding."""
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

    def take_whole(self) -> bytes | None:
        """Returns the unread rest of the body if it has arrived completely, otherwise None."""
        return self._reply.take_whole()

    async def aclose(self) -> None:
        """Ends the exchange with the server and the upload of the request body at once.

        Waits until the request body is not read any more, and until the client's own transport, if
        there is one below the gate, has closed its response.
        """
        self._reply.close(self._port)
        if self._feeding is not None:
            self._feeding.cancel()
        running = [task for task in self._tasks if not task.done()]
        if running:
            await wait_for_all(running)
