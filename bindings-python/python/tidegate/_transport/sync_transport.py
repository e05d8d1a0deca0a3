"""The synchronous httpx transport.

The calling thread waits without the GIL and remains interruptible by signals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate._errors import Error
from tidegate._native import Reply, Upload
from tidegate._transport.base import TransportBase
from tidegate._transport.custom_sync import CustomByteStream, HttpxSender, run_call
from tidegate._transport.response import SyncGateResponse
from tidegate._transport.uploads import as_bytes, fits_in_memory, send_upload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate._transport.custom_transport import ClientTransports
    from tidegate._transport.httpx_family import HttpxFamily


class GateTransport(TransportBase):
    """An `httpx.BaseTransport` that sends requests through a gate.

    One instance may be used from any number of threads.
    """

    def handle_request(self, request: Any) -> Any:
        """Sends a request, and returns its response when the head of the response has arrived."""
        family = self._family
        if self.custom is not None:
            return self._send_by_custom_transport(self.custom, request)
        try:
            body, upload = request.content, None
        except family.request_not_read:
            body = upload = None if fits_in_memory(request, family) else Upload()
            if upload is None:
                body = request.read()
        send: Any = self._gate.send_blocking if upload is None else self._gate.start_upload
        try:
            reply: Any = send(*self._arguments(request, body))
        except Error as error:
            raise family.exception(error, request)  # noqa: B904 - family.exception sets the cause
        unsent = None
        if upload is not None:
            reply, unsent = send_upload(reply, upload, request.stream)
        if type(reply) is not Reply:
            raise family.exception(reply, request)
        byte_stream = family.derive(ByteStream, "SyncByteStream")
        stream = byte_stream(reply, request, family, upload, unsent)
        response = self._response(reply, stream, family.derive(SyncGateResponse, "Response"))
        response.gate_stream = stream
        return response

    def _send_by_custom_transport(self, custom: ClientTransports, request: Any) -> Any:
        """Sends a request through the httpx client's own transports, in the calling thread.

        Returns its response when the head of the response has arrived.
        """
        family = self._family
        body = None if family.has_unread_body(request) and not fits_in_memory(request, family) else request.read()
        try:
            call = self._gate.start_custom(*self._arguments(request, body))
        except Error as error:
            raise family.exception(error, request)  # noqa: B904 - family.exception sets the cause
        reply, runner = run_call(call, HttpxSender(custom, request, family))
        if type(reply) is not Reply:
            raise family.exception(reply, request)
        byte_stream = family.derive(CustomByteStream, "SyncByteStream")
        stream = byte_stream(reply, runner, lambda error: family.exception(error, request))
        return self._response(reply, stream, family.response)

    def __enter__(self) -> GateTransport:
        """Opens the httpx client whose transports open the connections, if this object owns it.

        Does nothing if the gate opens the connections.
        """
        if self.custom is not None and self.custom.owned:
            self.custom.client.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        """Exits the httpx client whose transports open the connections, if this object owns it."""
        if self.custom is not None and self.custom.owned:
            self.custom.client.__exit__(*raised)

    def close(self) -> None:
        """Closes the httpx client whose transports open the connections, if this object owns it.

        Connections that the gate opened stay open for other clients of the gate.
        """
        if self.custom is not None and self.custom.owned:
            self.custom.client.close()


class ByteStream:
    """The body of a response.

    Closing or dropping the stream ends the exchange with the server at once.
    """

    def __init__(
        self,
        reply: Reply,
        request: Any,
        family: HttpxFamily,
        upload: Upload | None,
        unsent: Iterator[bytes] | None,
    ) -> None:
        """Creates the body from a reply. Dropping the stream ends the reply and the upload.

        Args:
            reply: The native response.
            request: The httpx request, for exceptions.
            family: The package of the httpx client.
            upload: A streamed request body. None if the request body was sent as a whole.
            unsent: The chunks of the upload that are sent while the response is read. None if there are
                none.

        """
        self._upload = upload
        self._unsent = unsent
        self._reply = reply
        self._request = request
        self._family = family

    def __iter__(self) -> ByteStream:
        return self

    def __next__(self) -> bytes:
        """Returns the next chunk as it was received, without decoding the content encoding.

        Until a chunk arrives, sends the rest of the request body.
        """
        try:
            pulled: Any = self._feed_and_pull() if self._unsent is not None else self._reply.pull_blocking()
        except BaseException:
            self.close()
            raise
        if type(pulled) is bytes:
            return pulled
        if pulled is None:
            raise StopIteration
        raise self._family.exception(pulled, self._request)

    def _feed_and_pull(self) -> bytes | Error | None:
        """Sends unsent chunks of the request body until the next chunk of the response has arrived.

        Returns the chunk, None at the end of the response, or an error.
        """
        upload, unsent = self._upload, self._unsent
        while upload is not None and unsent is not None:
            pulled = upload.pull_until_ready(self._reply)
            if pulled is not False:
                return pulled
            chunk = next(unsent, None)
            if chunk is None:
                upload.finish()
            if chunk is None or upload.offer(as_bytes(chunk)) is None:
                self._unsent = unsent = None
        return self._reply.pull_blocking()

    def take_whole(self) -> bytes | None:
        """Returns the unread rest of the body if it has arrived completely, otherwise None."""
        return self._reply.take_whole()

    def close(self) -> None:
        """Ends the exchange of this response at once, and releases its slot."""
        self._unsent = None
        self._reply.close()
