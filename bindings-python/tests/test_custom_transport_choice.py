"""Tests of which transport a client uses and who closes it."""

from __future__ import annotations

import functools
import socket
import ssl
from collections.abc import Callable
from typing import Any

import openai
import pytest

import tidegate
from custom_transports import CountingTransports
from httpx_packages import INSTALLED, module
from provider_payloads import CHAT, MESSAGES
from test_wrap import CA, httpx_packages_of_openai
from upstream import Upstream, answer


def ask(sdk: Any) -> Any:
    return sdk.chat.completions.create(model="small", messages=MESSAGES)


def transport_of(client: Any) -> str:
    return "native" if client._transport.custom is None else "kept"


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_custom_transport_is_kept_and_rejected_as_native(name: str, gate: tidegate.Gate, monkeypatch: Any) -> None:
    httpx = module(name)
    cases = {
        "custom transport": {"transport": httpx.MockTransport(lambda _: httpx.Response(200))},
        "custom proxy": {"proxy": "http://127.0.0.1:1"},
        "mounts": {"mounts": {"all://": httpx.HTTPTransport()}},
        "Unix socket": {"transport": httpx.HTTPTransport(uds="/tmp/socket")},
        "local address": {"transport": httpx.HTTPTransport(local_address="127.0.0.1")},
        "TLS": {"verify": ssl.create_default_context(cadata=CA)},
        "TLS settings": {"verify": False},
    }
    for message, kwargs in cases.items():
        sdk = openai.OpenAI(api_key="k", http_client=httpx.Client(**kwargs))
        assert transport_of(gate.wrap(sdk)._client) == "kept"
        with pytest.raises(TypeError, match=message):
            gate.wrap(sdk, transport="native")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert transport_of(gate.wrap(openai.OpenAI(api_key="k", http_client=httpx.Client()))._client) == "native"
    without_environment = openai.OpenAI(api_key="k", http_client=httpx.Client(trust_env=False))
    assert transport_of(gate.wrap(without_environment)._client) == "kept"
    with pytest.raises(TypeError, match="trust_env"):
        gate.wrap(without_environment, transport="native")
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.setenv("NO_PROXY", "localhost")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    gate = tidegate.Gate()
    assert transport_of(gate.wrap(without_environment)._client) == "native"
    assert transport_of(gate.wrap(without_environment, transport="keep")._client) == "kept"


def with_part(owner: str, name: str, part: Any) -> Callable[[Any], None]:
    """Returns a function that sets an attribute of a transport, or of its pool.

    `owner` is `transport` or `pool`, `name` names the attribute, and `part` is its new value.
    """
    return lambda transport: setattr(transport if owner == "transport" else transport._pool, name, part)


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_customised_default_transport_is_kept(name: str, gate: tidegate.Gate) -> None:
    httpx = module(name)
    buffer = {"socket_options": [(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)]}
    cases: list[tuple[str, dict[str, Any], Callable[[Any], None]]] = [
        ("socket options", buffer, lambda _: None),
        ("network backend", {}, with_part("pool", "_network_backend", object())),
        ("handle_request", {}, with_part("transport", "handle_request", print)),
        ("handle_request", {}, with_part("pool", "handle_request", print)),
        ("handle_async_request", {}, with_part("transport", "handle_async_request", print)),
    ]
    for message, arguments, change in cases:
        for transport, client, sdk in (
            (httpx.HTTPTransport(**arguments), httpx.Client, openai.OpenAI),
            (httpx.AsyncHTTPTransport(**arguments), httpx.AsyncClient, openai.AsyncOpenAI),
        ):
            change(transport)
            bare = sdk(api_key="k", http_client=client(transport=transport))
            assert transport_of(gate.wrap(bare)._client) == "kept", message
            with pytest.raises(TypeError, match=f"custom {message}"):
                gate.wrap(bare, transport="native")


@pytest.mark.parametrize(
    "replacement", [lambda function: function, functools.partialmethod], ids=["function", "object"]
)
@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_transport_with_a_replaced_method_of_its_class_is_kept(
    name: Any, replacement: Any, upstream: Upstream, gate: tidegate.Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools such as OpenTelemetry's instrumentation of httpx replace methods of the class."""
    httpx, seen = module(name), []
    original = httpx.HTTPTransport.handle_request

    @functools.wraps(original)
    def traced(transport: Any, request: Any) -> Any:
        seen.append(request.url.path)
        return original(transport, request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", replacement(traced))
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", replacement(traced))
    upstream.handler = answer(CHAT)
    with httpx.Client() as client:
        bare = openai.OpenAI(base_url=upstream.url, api_key="k", http_client=client)
        assert ask(gate.wrap(bare)).id == "chatcmpl-1"
        with pytest.raises(TypeError, match="custom handle_request"):
            gate.wrap(bare, transport="native")
    with gate.httpx_client(family=name) as http:
        http.get(upstream.url)
    assert seen == ["/chat/completions", "/"]
    assert transport_of(gate.httpx_async_client(family=name)) == "kept"
    with pytest.raises(TypeError, match="custom handle_async_request"):
        gate.httpx_async_client(family=name, transport="native")


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_keepalive_options_do_not_count_as_custom(name: str, gate: tidegate.Gate) -> None:
    httpx = module(name)
    options = [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 60),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    ]
    http = httpx.Client(transport=httpx.HTTPTransport(socket_options=options))
    assert transport_of(gate.wrap(openai.OpenAI(api_key="k", http_client=http))._client) == "native"
    assert transport_of(gate.wrap(openai.OpenAI(api_key="k"))._client) == "native"
    assert transport_of(gate.wrap(openai.AsyncOpenAI(api_key="k"))._client) == "native"


def test_unknown_transport_choice_is_an_error(gate: tidegate.Gate) -> None:
    sdk = openai.OpenAI(api_key="k")
    with pytest.raises(ValueError, match="'keeep' is not valid; give one of auto, keep, native"):
        gate.wrap(sdk, transport="keeep")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keeep"):
        gate.httpx_client(transport="keeep")


@pytest.mark.parametrize("name", INSTALLED)
def test_transport_arguments_of_a_new_client_keep_its_transport(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    httpx = module(name)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    gate = tidegate.Gate()
    for nothing in ({"transport": None, "mounts": None, "proxy": None, "verify": True, "cert": None}, {}):
        assert transport_of(gate.httpx_client(family=name, **nothing)) == "native"
    assert transport_of(gate.httpx_client(family=name, transport="native")) == "native"
    own: list[dict[str, Any]] = [
        {"transport": httpx.MockTransport(lambda _: httpx.Response(200))},
        {"mounts": {"all://": None}},
        {"proxy": "http://127.0.0.1:1"},
        {"verify": False},
        {"transport": "keep"},
    ]
    for kwargs in own:
        assert transport_of(gate.httpx_client(family=name, **kwargs)) == "kept"
    with pytest.raises(TypeError, match="verify="):
        gate.httpx_client(family=name, transport="native", verify=False)
    assert transport_of(gate.httpx_client(family=name, trust_env=False)) == "native"
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert transport_of(gate.httpx_async_client(family=name, trust_env=False)) == "kept"
    with pytest.raises(TypeError, match="trust_env"):
        gate.httpx_async_client(family=name, trust_env=False, transport="native")


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_closing_a_wrapped_client_leaves_the_transport_open(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    own, httpx = CountingTransports(name), module(name)
    original = openai.OpenAI(base_url=upstream.url, api_key="k", http_client=httpx.Client(transport=own.sync_transport))
    with gate.wrap(original) as wrapped:
        assert ask(wrapped).id == "chatcmpl-1"
    assert own.closes == 0
    assert ask(original).id == "chatcmpl-1"
    assert len(own.requests) == 2
    original.close()
    assert own.closes == 1


@pytest.mark.parametrize("name", INSTALLED)
async def test_closing_a_new_client_closes_its_transport(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    own, mounted = CountingTransports(name), CountingTransports(name)
    with gate.httpx_client(
        family=name, transport=own.sync_transport, mounts={"all://b": mounted.sync_transport}
    ) as http:
        http.get(upstream.url)
    assert (own.closes, mounted.closes) == (1, 1)
    async with gate.httpx_async_client(family=name, transport=own.async_transport) as ahttp:
        await ahttp.get(upstream.url)
    assert own.closes == 2
    await gate.httpx_async_client(family=name, transport=own.async_transport).aclose()
    assert own.closes == 3


@pytest.mark.parametrize("name", INSTALLED)
def test_mounts_choose_the_transport(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    general, special = CountingTransports(name), CountingTransports(name)
    mounts = {"http://localhost": special.sync_transport, "all://*.example": None}
    with gate.httpx_client(family=name, transport=general.sync_transport, mounts=mounts) as http:
        http.get(upstream.url)
        http.get(upstream.url.replace("127.0.0.1", "localhost"))
    assert [len(one.requests) for one in (general, special)] == [1, 1]


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_wrapping_again_keeps_the_custom_transport(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    own, other = CountingTransports(name), tidegate.Gate()
    http = gate.httpx_client(family=name, transport=own.sync_transport)
    sdk = other.wrap(openai.OpenAI(base_url=upstream.url, api_key="k", http_client=http))
    assert ask(sdk).id == "chatcmpl-1"
    assert (len(own.requests), len(gate.snapshot()["targets"]), len(other.snapshot()["targets"])) == (1, 0, 1)
    with pytest.raises(TypeError, match="native"):
        other.wrap(openai.OpenAI(api_key="k", http_client=http), transport="native")
    with pytest.raises(TypeError, match="wrap the original"):
        other.wrap(openai.OpenAI(api_key="k", http_client=gate.httpx_client(family=name)), transport="keep")
    http.close()


@pytest.mark.parametrize("name", INSTALLED)
async def test_exception_without_retries_is_raised_under_an_unwrapped_sdk(name: str, gate: tidegate.Gate) -> None:
    """An exception after which the gate does not retry is raised as it is, also while a stream begins.

    Examples are a failed assertion of a mock, or a ValueError of a transport that checks requests.
    """
    httpx, error = module(name), ValueError("this host is not allowed")

    class Failing(httpx.SyncByteStream, httpx.AsyncByteStream):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Any:
            raise error

        __aiter__ = __iter__

    def fail_at_once(_: Any) -> Any:
        raise error

    def fail_later(_: Any) -> Any:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Failing())

    for fail in (fail_at_once, fail_later):
        sent = {"url": "http://llm/v1/chat/completions", "json": {"model": "m", "stream": True}}
        headers = {"x-stainless-retry-count": "0"}
        with gate.httpx_client(family=name, transport=httpx.MockTransport(fail)) as http:
            with pytest.raises(ValueError, match="this host") as raised:
                http.post(**sent, headers=headers)
            assert raised.value is error
        async with gate.httpx_async_client(family=name, transport=httpx.MockTransport(fail)) as ahttp:
            with pytest.raises(ValueError, match="this host") as raised:
                await ahttp.post(**sent, headers=headers)
            assert raised.value is error
    snapshot = gate.snapshot()
    assert (snapshot["active"], [target["attempts"] for target in snapshot["targets"].values()]) == (0, [4])


@pytest.mark.parametrize("name", INSTALLED)
def test_failures_are_responses_under_an_unwrapped_sdk(name: str, gate: tidegate.Gate) -> None:
    """Below an SDK with retries of its own, a failure becomes a response that forbids retries.

    The SDK would retry an exception, although the gate has retried already.
    """
    httpx = module(name)

    def fail(_: Any) -> Any:
        raise httpx.ReadError("broken")

    http = gate.httpx_client(family=name, transport=httpx.MockTransport(fail))
    response = http.get("http://127.0.0.1:1/", headers={"x-stainless-retry-count": "0"})
    assert (response.status_code, response.headers["x-should-retry"]) == (502, "false")
