"""The synchronous transport: the calling thread waits without the GIL, and hears signals."""

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
    """A `BaseTransport` whose calls go through a gate. Usable from any number of threads."""

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
        self._byte_stream = family.derive(ByteStream, "SyncByteStream")
        self._custom_byte_stream = family.derive(CustomByteStream, "SyncByteStream")

    def handle_request(self, request: Any) -> Any:
        """Send one request; return when the head is known."""
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
        """Enter the transports that are this client's alone."""
        if self.custom is not None and self.custom.owned:
            self.custom.client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the transports that are this client's alone. Connections of the gate outlive any one client."""
        if self.custom is not None and self.custom.owned:
            self.custom.client.close()


class ByteStream:
    """A response's body: raw bytes, one chunk a pull. Closing it, or losing it, ends the exchange at once."""

    def __init__(self, reply: Reply, request: Any, family: HttpxFamily, upload: Upload | None) -> None:
        """Own the reply: when this goes, the reply goes. An upload that was answered early lives as long."""
        self._upload = upload
        self._reply = reply
        self._request = request
        self._family = family

    def __iter__(self) -> ByteStream:
        """Return itself: a response is read once."""
        return self

    def __next__(self) -> bytes:
        """Return the next chunk."""
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
        """End the exchange now."""
        self._reply.close()
