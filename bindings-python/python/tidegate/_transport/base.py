"""The part that the synchronous and the asynchronous gate transport share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate._context import current
from tidegate._task_id import task_id
from tidegate._transport.custom_transport import total_timeout

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._transport.custom_transport import ClientTransports
    from tidegate._transport.httpx_family import HttpxFamily


class SdkRetries(NamedTuple):
    """The retries of an SDK, which the gate makes in its place.

    Attributes:
        max_attempts: The maximum number of attempts of a call, including the first, that the user
            has set at the SDK's client. None if the client has the SDK's default, so that the
            configuration of the gate applies.

    """

    max_attempts: int | None


_NO_LIMITS: dict[str, float | None] = {}

# Extensions of httpx requests that change what is sent, and that only httpx's own transports support.
_UNSUPPORTED_EXTENSIONS = ("sni_hostname", "target")


def call_arguments(  # noqa: PLR0913 - one argument a setting
    method: str,
    url: str,
    headers: list[tuple[bytes, bytes]],
    body: Any,
    *,
    read: float | None,
    pool: float | None = None,
    sdk: SdkRetries | None = None,
    proxies: _native.ProxyRules | None = None,
) -> Any:
    """Returns the arguments of the native send functions for one request.

    Args:
        method: The HTTP method.
        url: The absolute URL.
        headers: The headers of the caller.
        body: Bytes, an `Upload`, or None if the caller's own transport reads the body itself.
        read: The read timeout in seconds; for the caller's own transport, `total_timeout`.
        pool: The maximum wait for a slot in seconds. Default: the limits of the gate only.
        sdk: See `TransportBase`.
        proxies: See `TransportBase`.

    """
    max_attempts = None if sdk is None else sdk.max_attempts
    context, task = current.get(), task_id()
    return (method, url, headers, body, read, pool, context, sdk is not None, max_attempts, task, proxies)


def _is_unsupported(request: Any, name: str) -> bool:
    """Returns `True` if the extension of this name changes what an httpx request sends."""
    value, url = request.extensions.get(name), request.url
    if value is None or name != "sni_hostname":
        return value is not None
    # Some versions of the SDKs set it for each host with an underscore, also without TLS.
    return url.scheme == "https" and value not in (url.host, url.host.replace("_", "-"))


class TransportBase:
    """The settings of one httpx transport that sends requests through a gate.

    Attributes:
        sdk: The retry settings of the SDK that the httpx client belongs to, or None if the client
            belongs to no SDK whose retries are switched off.
        custom: Transports of the httpx client that open the connections, or None if the gate opens
            them.
        proxies: Proxy rules of the httpx client, or None if the rules of the gate apply.

    """

    def __init__(
        self,
        gate: _native.Gate,
        family: HttpxFamily,
        sdk: SdkRetries | None,
        custom: ClientTransports | None,
        proxies: _native.ProxyRules | None,
    ) -> None:
        """Stores the settings. `HttpxFamily.derive` adds the httpx base class.

        Args:
            gate: The native gate that sends the requests.
            family: The package of the httpx client: `httpx` or `httpx2`.
            sdk: See the class.
            custom: See the class. If given, `proxies` must be None.
            proxies: See the class.

        """
        self.sdk = sdk
        self.custom = custom
        self.proxies = proxies
        self._gate = gate
        self._family = family

    def _arguments(self, request: Any, body: Any) -> Any:
        """Returns the arguments of the native send functions for one httpx request.

        `body` is bytes, an `Upload`, or None if the custom transport reads the body itself.

        Raises:
            LocalProtocolError: The class of the client's package, if the gate opens the connections
                and does not support an extension of the request.

        """
        if self.custom is None:
            for name in _UNSUPPORTED_EXTENSIONS:
                if _is_unsupported(request, name):
                    message = f'the request extension "{name}" needs a client of the gate with transport="keep"'
                    raise self._family.module.LocalProtocolError(message, request=request)
        limits = request.extensions.get("timeout", _NO_LIMITS)
        return call_arguments(
            request.method,
            str(request.url),
            request.headers.raw,
            body,
            read=limits.get("read") if self.custom is None else total_timeout(limits),
            pool=limits.get("pool"),
            sdk=self.sdk,
            proxies=self.proxies,
        )

    def _response(self, reply: _native.Reply, stream: Any, kind: Any) -> Any:
        """Returns the httpx response with the head of `reply` and the body `stream`.

        `kind` is the class of the response: that of httpx, or one derived from it.
        """
        return kind(
            status_code=reply.status,
            headers=reply.headers(),
            stream=stream,
            extensions=reply.extensions or {"http_version": reply.http_version},
        )
