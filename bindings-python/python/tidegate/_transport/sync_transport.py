"""The synchronous httpx transport.

The calling thread waits without the GIL and remains interruptible by signals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate._context import current
from tidegate._errors import Error
from tidegate._native import Reply, Upload
from tidegate._task_id import task_id
from tidegate._transport.custom_sync import CustomByteStream, run_call
from tidegate._transport.custom_transport import total_timeout
from tidegate._transport.uploads import fits_in_memory, send_upload

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._transport.custom_transport import ClientTransports
    from tidegate._transport.family import HttpxFamily

_NO_LIMITS: dict[str, float | None] = {}


class GateTransport:
    """A `BaseTransport` that sends requests through a gate.

    It may be used from any number of threads.
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
        self._byte_stream = family.derive(ByteStream, "SyncByteStream")
        self._custom_byte_stream = family.derive(CustomByteStream, "SyncByteStream")

    def handle_request(self, request: Any) -> Any:
        """Sends a request. Returns when the head of the response has arrived."""
        family = self._family
        if self.custom is not None:
            return self._send_by_custom_transport(self.custom, request)
        try:
            body, feeding = request.content, False
        except family.request_not_read:
            feeding = not fits_in_memory(request)
            body = Upload() if feeding else request.read()
        limits = request.extensions.get("timeout", _NO_LIMITS)
        make = self._gate.start if feeding else self._gate.send_blocking
        try:
            reply: Any = make(
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
        except Error as error:
            raise family.exception(error, request) from error
        if feeding:
            reply = send_upload(reply, body, request.stream)
        if type(reply) is not Reply:
            raise family.exception(reply, request)
        return family.response(
            status_code=reply.status,
            headers=reply.headers(),
            stream=self._byte_stream(reply, request, family, body if feeding else None),
            extensions={"http_version": reply.http_version},
        )

    def _send_by_custom_transport(self, custom: ClientTransports, request: Any) -> Any:
        family = self._family
        body = None if family.has_unread_body(request) and not fits_in_memory(request) else request.read()
        limits = request.extensions.get("timeout", _NO_LIMITS)
        try:
            call = self._gate.start_kept(
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
        reply, runner = run_call(call, custom, request, family)
        if type(reply) is not Reply:
            raise family.exception(reply, request)
        return family.response(
            status_code=reply.status,
            headers=reply.headers(),
            stream=self._custom_byte_stream(reply, request, family, runner),
            extensions=reply.extensions or {"http_version": reply.http_version},
        )

    def __enter__(self) -> GateTransport:
        """Enters the custom transports if only this client uses them."""
        if self.custom is not None and self.custom.owned:
            self.custom.client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the transport."""
        self.close()

    def close(self) -> None:
        """Closes the custom transports if only this client uses them.

        Connections of the gate stay open.
        """
        if self.custom is not None and self.custom.owned:
            self.custom.client.close()


class ByteStream:
    """The body of a response. Closing or dropping the stream ends the exchange at once."""

    def __init__(self, reply: Reply, request: Any, family: HttpxFamily, upload: Upload | None) -> None:
        """Takes ownership of the reply, and of an upload that the server answered before its end."""
        self._upload = upload
        self._reply = reply
        self._request = request
        self._family = family

    def __iter__(self) -> ByteStream:
        """Returns the stream itself, because a response is read once."""
        return self

    def __next__(self) -> bytes:
        """Returns the next chunk of raw bytes."""
        try:
            pulled: Any = self._reply.pull_blocking()
        except BaseException:
            self._reply.close()
            raise
        if type(pulled) is bytes:
            return pulled
        if pulled is None:
            raise StopIteration
        raise self._family.exception(pulled, self._request)

    def close(self) -> None:
        """Ends the exchange now."""
        self._reply.close()
