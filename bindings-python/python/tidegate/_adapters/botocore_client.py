"""Attaches a gate to clients of botocore, which are those of boto3 too."""

from __future__ import annotations

import contextlib
import copy
import io
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from botocore import exceptions
from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as ReadTimeout

from tidegate._adapters.urllib3_exchange import (
    TIMEOUTS,
    buffered_body,
    exchange_response,
    failure_kind,
    request_headers,
    send_call,
    streamed_body,
)
from tidegate._transport.base import SdkRetries, call_arguments
from tidegate._transport.custom_transport import capped, total_timeout

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._errors import Error
    from tidegate._native import Exchange
    from tidegate._transport.custom_transport import ExchangeResponse

_HANDLER_ID = "tidegate"

# The gate's failure kind for each exception before the response began. Other exceptions are not
# retried.
_KINDS = (
    (exceptions.ConnectTimeoutError, "connect_timeout"),
    (exceptions.ReadTimeoutError, "first_token_timeout"),
    (exceptions.ProxyConnectionError, "connect"),
    (exceptions.SSLError, "connect"),
)


def attach_client(gate: _native.Gate, client: Any) -> Any:
    """Makes a client send through the gate, and returns the client. See `Gate.attach_botocore`."""
    if _is_asynchronous(client):
        raise TypeError(
            "cannot attach a client of aiobotocore: use a client of boto3 in threads, or hold a slot of the target "
            "around each call (gate.slot)"
        )
    if not isinstance(client, BaseClient):
        raise TypeError(
            f"cannot attach {type(client).__module__}.{type(client).__name__}: give a client of boto3 or botocore, for "
            'example boto3.client("bedrock-runtime"); a resource has its client in meta.client'
        )
    events, service = client.meta.events, client.meta.service_model.service_id.hyphenize()
    events.unregister(f"before-send.{service}", unique_id=_HANDLER_ID)
    if gate.can_bypass:
        return client
    retries = client.meta.config.retries or {}
    sdk = None
    if gate.mode == "enforce":
        # Only one layer may retry: attempts of nested retry loops multiply.
        events.unregister(f"needs-retry.{service}", unique_id=f"retry-config-{service}")
        sdk = SdkRetries(retries.get("total_max_attempts"))
    events.register_last(f"before-send.{service}", _Handler(gate, client, sdk), unique_id=_HANDLER_ID)
    return client


def _is_asynchronous(client: object) -> bool:
    """Returns `True` for a client of aiobotocore, whose class is a subclass of botocore's."""
    return any(cls.__module__.partition(".")[0] == "aiobotocore" for cls in type(client).__mro__)


class _Handler:
    """A handler of the event `before-send` that sends the request through the gate."""

    def __init__(self, gate: _native.Gate, client: Any, sdk: SdkRetries | None) -> None:
        self._gate = gate
        self._client = client
        self._sdk = sdk

    def __call__(self, request: Any, **_: Any) -> AWSResponse:
        """Sends a prepared request, and returns its response.

        The body is read unless the operation streams it.
        """
        config, context = self._client.meta.config, getattr(request, "context", None) or {}
        limits = {"connect": config.connect_timeout, "read": context.get("read_timeout", config.read_timeout)}
        body = buffered_body(request.body, request.headers)
        # The client's own session has its proxies, TLS settings and timeouts.
        session = self._client._endpoint.http_session  # noqa: SLF001
        sender = _Sender(session, request, body, limits["read"])
        arguments = call_arguments(
            request.method,
            request.url,
            request_headers(request.headers),
            body if isinstance(body, bytes) else None,
            read=total_timeout(limits, ("connect", "read")),
            sdk=self._sdk,
        )
        raw = send_call(self._gate, sender, arguments, lambda error: _exception(error, request), request.method)
        body_file = _aws_error(raw) if raw.is_from_gate and raw.status >= HTTPStatus.BAD_REQUEST else raw
        response = AWSResponse(request.url, raw.status, raw.headers, body_file)
        if not request.stream_output:
            try:
                response.content  # noqa: B018 - reads the body
            except HTTPError as error:
                is_timeout = isinstance(error, ReadTimeout)
                cls = exceptions.ReadTimeoutError if is_timeout else exceptions.ConnectionClosedError
                raise cls(endpoint_url=request.url, request=request, error=error) from error
        return response


def _aws_error(raw: HTTPResponse) -> HTTPResponse:
    """Returns a response of the gate with the members in which AWS has the code and the message.

    botocore copies them to its `ClientError`. A body that is no JSON object is kept.
    """
    data = raw.read()
    with contextlib.suppress(ValueError, AttributeError):
        body = json.loads(data)
        error = body.get("error", {})
        data = json.dumps({"code": error.get("code"), "message": error.get("message"), **body}).encode()
    return HTTPResponse(io.BytesIO(data), status=raw.status, preload_content=False)


class _Sender:
    """Sends the attempts of one request through the HTTP session of a client."""

    def __init__(self, session: Any, request: Any, body: Any, read: float | None) -> None:
        """Stores the session, the request, its body, and its read timeout in seconds."""
        self._session = session
        self._request = request
        self._body = body
        self._read = read

    def send(self, exchange: Exchange) -> ExchangeResponse:
        """Sends one attempt, and returns its response when the head has arrived."""
        made = copy.copy(self._request)
        made.stream_output = True
        if self._request.body is not None:
            made.body = self._body if isinstance(self._body, bytes) else streamed_body(self._body, exchange)
        made.context = {**(getattr(made, "context", None) or {}), "read_timeout": capped(self._read, exchange.max_wait)}
        # copy.copy would share the values with the headers of the caller.
        made.headers = self._request.headers.copy()
        for name, value in exchange.changed_headers():
            made.headers[name] = value
        if exchange.url is not None:
            made.url = exchange.url
        return exchange_response(self._session.send(made).raw)

    def error_kind(self, error: Exception, *, begun: bool, outer: BaseException | None) -> str:
        """Returns the gate's failure kind for an exception. See `HttpxFamily.error_kind`."""
        return failure_kind(error, _KINDS, exceptions.ConnectionError, begun=begun, outer=outer)


def _exception(error: Error, request: Any) -> Exception:
    """Returns the exception that users of botocore expect for an error of the gate.

    The error becomes the cause of the exception. An exception of the client's own session is
    returned unchanged.
    """
    original = error.__cause__
    if isinstance(original, Exception):
        return original
    raised: Exception
    if error.kind in TIMEOUTS:
        raised = exceptions.ReadTimeoutError(endpoint_url=request.url, error=error)
    elif error.kind == "connect_timeout":
        raised = exceptions.ConnectTimeoutError(endpoint_url=request.url, error=error)
    elif error.kind == "request":
        raised = exceptions.HTTPClientError(error=error)
    else:
        raised = exceptions.EndpointConnectionError(endpoint_url=request.url, error=error)
    raised.__cause__ = error
    return raised
