"""The part that the synchronous and the asynchronous gate transport share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate._context import current
from tidegate._task_id import task_id
from tidegate._transport.custom_transport import total_timeout

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._transport.custom_transport import ClientTransports
    from tidegate._transport.httpx_family import HttpxFamily

_NO_LIMITS: dict[str, float | None] = {}


class TransportBase:
    """The settings of one httpx transport that sends requests through a gate.

    Attributes:
        custom: Transports of the httpx client that open the connections, or None if the gate opens
            them.
        proxies: Proxy rules of the httpx client, or None if the rules of the gate apply.

    """

    def __init__(
        self,
        gate: _native.Gate,
        family: HttpxFamily,
        wrapped: bool,
        custom: ClientTransports | None,
        proxies: _native.ProxyRules | None,
    ) -> None:
        """Stores the settings. `HttpxFamily.derive` adds the httpx base class.

        Args:
            gate: The native gate that sends the requests.
            family: The package of the httpx client: `httpx` or `httpx2`.
            wrapped: Whether the httpx client belongs to an SDK whose retries are switched off.
            custom: See the class. If given, `proxies` must be None.
            proxies: See the class.

        """
        self.custom = custom
        self.proxies = proxies
        self._gate = gate
        self._family = family
        self._wrapped = wrapped

    def _arguments(self, request: Any, body: Any) -> Any:
        """Returns the arguments of the native send functions for one httpx request.

        `body` is bytes, an `Upload`, or None if the custom transport reads the body itself.
        """
        limits = request.extensions.get("timeout", _NO_LIMITS)
        return (
            request.method,
            str(request.url),
            request.headers.raw,
            body,
            limits.get("read") if self.custom is None else total_timeout(limits),
            limits.get("pool"),
            current.get(),
            self._wrapped,
            task_id(),
            self.proxies,
        )

    def _response(self, reply: _native.Reply, stream: Any) -> Any:
        """Returns the httpx response with the head of `reply` and the body `stream`."""
        return self._family.response(
            status_code=reply.status,
            headers=reply.headers(),
            stream=stream,
            extensions=reply.extensions or {"http_version": reply.http_version},
        )
