"""The httpx responses of the transports, which read a body that has arrived completely at once.

Most responses are small and arrive completely with their head. Reading such a response through the
iterators of httpx costs more than the rest of the call. These responses take the whole body from
the native module instead, and are afterwards in the state in which httpx's own reading leaves them.

Nothing is read before the caller reads. Everything else is read as httpx does it: bodies that have
not arrived completely, bodies with a content encoding, and bodies whose stream the caller replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate._transport.httpx_family import HttpxFamily


class _ResponseBase:
    """The part that synchronous and asynchronous responses share. The base class is httpx's."""

    # Set by the transport: the stream with which it created the response.
    __slots__ = ("gate_stream",)

    _family: HttpxFamily

    def _take_whole(self: Any, bound: type | None) -> bytes | None:
        """Takes the body if `read` may return it without httpx's iterators, otherwise returns None.

        `bound` is the class of the stream that httpx's client puts around that of the transport.
        """
        # Absent if the caller has created the response from the class of another one.
        gate_stream, stream = getattr(self, "gate_stream", None), self.stream
        if type(stream) is bound:
            stream = getattr(stream, "_stream", None)
        if gate_stream is None or stream is not gate_stream:
            return None
        if self.is_stream_consumed or self.is_closed or "content-encoding" in self.headers:
            return None
        whole: bytes | None = gate_stream.take_whole()
        if whole is not None:
            self.is_stream_consumed = True
            self._num_bytes_downloaded = len(whole)
        return whole

    def __reduce_ex__(self: Any, _protocol: Any) -> tuple[Any, ...]:
        """Returns the parts of a copy, which is a plain response of httpx without a stream."""
        return object.__new__, (self._family.response,), self.__getstate__()


class SyncGateResponse(_ResponseBase):
    """A response of a synchronous transport."""

    __slots__ = ()

    def read(self: Any) -> bytes:
        """Returns the whole body, and closes the response."""
        if not hasattr(self, "_content"):
            whole = self._take_whole(self._family.bound_stream)
            if whole is None:
                return super().read()  # type: ignore[misc,no-any-return]
            self.close()
            self._content = whole
        return self._content  # type: ignore[no-any-return]


class AsyncGateResponse(_ResponseBase):
    """A response of an asynchronous transport."""

    __slots__ = ()

    async def aread(self: Any) -> bytes:
        """Returns the whole body, and closes the response."""
        if not hasattr(self, "_content"):
            whole = self._take_whole(self._family.async_bound_stream)
            if whole is None:
                return await super().aread()  # type: ignore[misc,no-any-return]
            await self.aclose()
            self._content = whole
        return self._content  # type: ignore[no-any-return]
