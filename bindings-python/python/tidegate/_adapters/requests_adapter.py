"""The transport adapter of the package `requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.utils import get_environ_proxies, should_bypass_proxies
from urllib3.util import Timeout

from tidegate._adapters.urllib3_exchange import (
    TIMEOUTS,
    buffered_body,
    exchange_response,
    failure_kind,
    request_headers,
    send_call,
    streamed_body,
)
from tidegate._transport.base import call_arguments
from tidegate._transport.custom_transport import capped, total_timeout

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._errors import Error
    from tidegate._native import Exchange
    from tidegate._transport.custom_transport import ExchangeResponse

# The adapter's default of ten would close the connections of most concurrent calls after each call.
_POOL_SIZE = 256

# The causes for which urllib3's `Retry` has a number of retries. Redirects are followed by requests.
_RETRY_CAUSES = ("total", "connect", "read", "status", "other")

# The gate's failure kind for each exception before the response began, the first match wins. Other
# exceptions are not retried.
_KINDS = (
    (requests.ConnectTimeout, "connect_timeout"),
    (requests.ReadTimeout, "first_token_timeout"),
    (requests.exceptions.ProxyError, "connect"),
    (requests.exceptions.SSLError, "connect"),
)


def new_adapter(gate: _native.Gate, below: HTTPAdapter | None) -> BaseAdapter:
    """Returns an adapter that sends through the gate. See `Gate.requests_adapter`.

    In mode `off`, returns the adapter below, unless a target is a pool.
    """
    if below is None:
        below = HTTPAdapter(pool_maxsize=_POOL_SIZE)
    if not isinstance(below, HTTPAdapter):
        raise TypeError(f"adapter: give a requests.adapters.HTTPAdapter, not {type(below).__name__}")
    if gate.can_bypass:
        return below
    if gate.mode == "enforce" and any(getattr(below.max_retries, cause) for cause in _RETRY_CAUSES):
        raise ValueError(
            "adapter: its max_retries would multiply the attempts of the gate; give an adapter without max_retries, "
            "and set retry.attempts of the target"
        )
    return GateAdapter(gate, below)


class GateAdapter(BaseAdapter):
    """A `requests.adapters.BaseAdapter` that sends requests through a gate.

    One instance may be used from any number of sessions and threads.
    """

    def __init__(self, gate: _native.Gate, below: HTTPAdapter) -> None:
        """Stores the gate, and the adapter that opens the connections."""
        super().__init__()
        self._gate = gate
        self._below = below

    def send(  # noqa: PLR0913, PLR0917 - the signature of requests
        self,
        request: Any,
        stream: bool = False,  # noqa: ARG002 - the session reads the body
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Any:
        """Sends a request, and returns its response when the head of the response has arrived."""
        body = buffered_body(request.body, request.headers)
        sender = _Sender(self._below, request, body, _limits(timeout), verify=verify, cert=cert, proxies=proxies)
        arguments = call_arguments(
            request.method,
            request.url,
            request_headers(request.headers),
            body if isinstance(body, bytes) else None,
            read=total_timeout(sender.limits, ("connect", "read")),
        )
        raw = send_call(self._gate, sender, arguments, lambda error: _exception(error, request), request.method)
        response: Any = self._below.build_response(request, raw)
        # Authentication sends its second request through the same adapter.
        response.connection = self
        return response

    def close(self) -> None:
        """Closes the adapter that opens the connections."""
        self._below.close()


class _Sender:
    """Sends the attempts of one request through an adapter of requests."""

    def __init__(self, below: HTTPAdapter, request: Any, body: Any, limits: dict[str, Any], **settings: Any) -> None:
        """Stores the request, its body, its timeouts, and the settings of its connection."""
        self.limits = limits
        self._below = below
        self._request = request
        self._body = body
        self._settings = settings

    def send(self, exchange: Exchange) -> ExchangeResponse:
        """Sends one attempt, and returns its response when the head has arrived."""
        made = self._request.copy()
        if self._request.body is not None:
            made.body = self._body if isinstance(self._body, bytes) else streamed_body(self._body, exchange)
        for name, value in exchange.changed_headers():
            made.headers[name] = value
        settings = self._settings
        if exchange.url is not None:
            made.url = exchange.url
            made.headers.pop("Host", None)
            settings = {**settings, "proxies": _replica_proxies(settings["proxies"], self._request.url, exchange.url)}
        limits: Any = tuple(capped(self.limits[phase], exchange.max_wait) for phase in ("connect", "read"))
        response = self._below.send(made, stream=True, timeout=limits, **settings)
        return exchange_response(response.raw)

    def error_kind(self, error: Exception, *, begun: bool, outer: BaseException | None) -> str:
        """Returns the gate's failure kind for an exception. See `HttpxFamily.error_kind`."""
        return failure_kind(error, _KINDS, requests.ConnectionError, begun=begun, outer=outer)


def _replica_proxies(proxies: Any, url: str, replica: str) -> Any:
    """Returns the proxies for a request to a replica of a pool.

    `proxies` are those that the session has chosen for `url`, the address of the pool. Those of the
    environment are left out if `NO_PROXY` names the replica.
    """
    if not proxies or not should_bypass_proxies(replica, proxies.get("no_proxy")):
        return proxies
    from_environment = get_environ_proxies(url, proxies.get("no_proxy"))
    return {scheme: proxy for scheme, proxy in proxies.items() if from_environment.get(scheme) != proxy}


def _limits(timeout: Any) -> dict[str, float | None]:
    """Returns the connect and read timeouts in seconds.

    `timeout` is a number for both, a pair of both, a `Timeout` of urllib3, or None for no limits.
    """
    if isinstance(timeout, Timeout):
        started = timeout.clone()
        # The read timeout is what the connection leaves of `total`, so it needs a start.
        started.start_connect()
        return {"connect": _seconds(started.connect_timeout), "read": _seconds(started.read_timeout)}
    connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    return {"connect": connect, "read": read}


def _seconds(limit: Any) -> float | None:
    """Returns a timeout of urllib3, or None for no limit and for its default, which is no limit."""
    return float(limit) if isinstance(limit, (int, float)) else None


def _exception(error: Error, request: Any) -> Exception:
    """Returns the exception that users of requests expect for an error of the gate.

    The error becomes the cause of the exception. An exception of the adapter below is returned
    unchanged.
    """
    original = error.__cause__
    if isinstance(original, Exception):
        return original
    cls: type[requests.RequestException] = requests.ConnectionError
    if error.kind in TIMEOUTS:
        cls = requests.ReadTimeout
    elif error.kind == "connect_timeout":
        cls = requests.ConnectTimeout
    elif error.kind == "request":
        cls = requests.RequestException
    raised = cls(str(error), request=request)
    raised.__cause__ = error
    return raised
