"""Tests that `wrap` keeps the user's settings."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import openai
import pytest

import tidegate
from httpx_packages import INSTALLED, module
from provider_payloads import CHAT, MESSAGES
from upstream import Upstream, answer


def ask(sdk: Any) -> Any:
    return sdk.chat.completions.create(model="small", messages=MESSAGES)


def httpx_packages_of_openai() -> list[str]:
    return INSTALLED if int(openai.__version__.split(".")[0]) >= 3 else ["httpx"]


def test_original_client_is_not_changed(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    original = openai.OpenAI(base_url=upstream.url, api_key="k", timeout=7, max_retries=5, organization="o")
    wrapped = gate.wrap(original)
    assert wrapped is not original
    assert type(wrapped) is openai.OpenAI
    assert (wrapped.api_key, wrapped.organization, wrapped.timeout) == ("k", "o", 7)
    assert wrapped.base_url == original.base_url
    assert (original.max_retries, wrapped.max_retries) == (5, 0)
    with original:
        assert ask(original).id == ask(wrapped).id
    targets = gate.snapshot()["targets"].values()
    assert sum(target["attempts"] for target in targets) == 1


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_only_enforce_mode_disables_the_retries_of_the_sdk(mode: Any) -> None:
    wrapped = tidegate.Gate(mode=mode).wrap(openai.OpenAI(api_key="k", max_retries=5))
    assert wrapped.max_retries == 5


@pytest.mark.parametrize(
    ("settings", "attempts"),
    [({}, 3), ({"max_retries": 0}, 1), ({"max_retries": 1}, 2), ({"max_retries": 6}, 7)],
)
def test_number_of_attempts_is_that_of_the_client(upstream: Upstream, settings: dict[str, int], attempts: int) -> None:
    upstream.handler = answer({}, 500)
    retry = {"attempts": 3, "base": "1ms", "max": "2ms"}
    gate = tidegate.Gate(defaults={"retry": retry})
    client = gate.wrap(openai.OpenAI(base_url=upstream.url, api_key="k", **settings))
    rewrapped = tidegate.Gate(defaults={"retry": retry}).wrap(client)
    for wrapped in (client, rewrapped):
        upstream.exchanges.clear()
        with pytest.raises(openai.InternalServerError):
            ask(wrapped)
        assert len(upstream.exchanges) == attempts


def test_retries_are_switched_off_at_the_client_and_not_at_its_copy(upstream: Upstream) -> None:
    upstream.handler = answer({}, 500)
    gate = tidegate.Gate(defaults={"retry": {"attempts": 3, "base": "1ms", "max": "2ms"}})
    client = openai.OpenAI(base_url=upstream.url, api_key="k")
    with_retries = gate.wrap(client).with_options(max_retries=0)
    without_retries = gate.wrap(client.with_options(max_retries=0))
    for wrapped, attempts in ((with_retries, 3), (without_retries, 1)):
        upstream.exchanges.clear()
        with pytest.raises(openai.InternalServerError):
            ask(wrapped)
        assert len(upstream.exchanges) == attempts


def test_many_retries_end_at_the_retry_budget(upstream: Upstream) -> None:
    upstream.handler = answer({}, 500)
    gate = tidegate.Gate(defaults={"retry": {"base": "1ms", "max": "2ms", "reserve": 5, "ratio": 0}})
    with pytest.raises(openai.InternalServerError):
        ask(gate.wrap(openai.OpenAI(base_url=upstream.url, api_key="k", max_retries=10**12)))
    assert len(upstream.exchanges) == 6


@pytest.mark.parametrize("mode", ["enforce", "off"])
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "name", ["openai.OpenAI", "openai.AsyncOpenAI", "anthropic.Anthropic", "anthropic.AsyncAnthropic"]
)
def test_strict_validation_of_responses_is_kept(upstream: Upstream, name: str, mode: Any, *, strict: bool) -> None:
    upstream.handler = answer("not a completion")
    package, _, kind = name.partition(".")
    sdk: Any = pytest.importorskip(package)
    gate = tidegate.Gate(mode=mode)
    original = getattr(sdk, kind)(base_url=upstream.url, api_key="k", _strict_response_validation=strict)
    with pytest.raises(sdk.APIResponseValidationError) if strict else contextlib.nullcontext():
        assert created_by(gate.wrap(gate.wrap(original))) == "not a completion"


def created_by(sdk: Any) -> Any:
    """Returns what one request of an SDK client returns. Closes the client."""

    def create() -> Any:
        create = sdk.messages.create if hasattr(sdk, "messages") else sdk.chat.completions.create
        return create(model="small", messages=MESSAGES, max_tokens=1)

    async def create_and_close() -> Any:
        async with sdk:
            return await create()

    if hasattr(sdk, "__aenter__"):
        return asyncio.run(create_and_close())
    with sdk:
        return create()


def test_class_of_a_client_is_rejected_with_advice(gate: tidegate.Gate) -> None:
    with pytest.raises(TypeError, match=r"cannot wrap the class openai\.OpenAI: pass an instance, such as OpenAI\(\)"):
        gate.wrap(openai.OpenAI)


class Proxy:
    """Adds a method to an SDK client, as instructor does, and passes on everything else."""

    def __init__(self, client: openai.OpenAI) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def create_typed(self) -> None:
        """Stands for what the proxy adds."""


def test_object_around_a_client_is_rejected_instead_of_unpacked(gate: tidegate.Gate) -> None:
    with pytest.raises(TypeError, match=r"Proxy.*It contains an SDK client: wrap that client"):
        gate.wrap(Proxy(openai.OpenAI(api_key="k")))


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_off_mode_bypasses_the_gate(name: str, upstream: Upstream, monkeypatch: Any) -> None:
    monkeypatch.setenv("TIDEGATE", "off")
    gate = tidegate.Gate(mode="enforce")
    httpx = module(name)
    asked: list[str] = []

    def respond(request: Any) -> Any:
        asked.append(request.url.path)
        return httpx.Response(200, json=CHAT)

    http = httpx.Client(transport=httpx.MockTransport(respond))
    original = openai.OpenAI(base_url=upstream.url, api_key="k", http_client=http, max_retries=5, timeout=7)
    wrapped = gate.wrap(original)
    assert wrapped is not original
    assert (wrapped.max_retries, wrapped.timeout, wrapped._client is http) == (5, 7, True)
    assert ask(wrapped).id == "chatcmpl-1"
    assert (asked, upstream.exchanges, gate.snapshot()["targets"]) == (["/chat/completions"], [], {})
    gate.wrap(openai.OpenAI(api_key="k", http_client=httpx.Client(verify=False)))
    with pytest.raises(TypeError, match="httpx_client"):
        gate.wrap(object())


def test_subclients_go_through_the_gate(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    wrapped = gate.wrap(openai.OpenAI(base_url=upstream.url, api_key="k"))
    ask(wrapped.with_options(timeout=3, default_headers={"x-mine": "1"}))
    assert upstream.exchanges[0].headers["x-mine"] == "1"
    assert len(gate.snapshot()["targets"]) == 1


def test_azure_client_is_wrapped(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    azure = openai.AzureOpenAI(azure_endpoint=upstream.url, api_key="k", api_version="2024-10-21")
    wrapped = gate.wrap(azure)
    assert type(wrapped) is openai.AzureOpenAI
    assert ask(wrapped).id == "chatcmpl-1"
    assert upstream.exchanges[0].path.startswith("/openai/deployments/small/chat/completions?api-version=")
    assert upstream.exchanges[0].headers["api-key"] == "k"


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_settings_of_a_custom_http_client_are_kept(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT, set_cookie="seen=yes")
    httpx = module(name)
    seen: list[str] = []
    http = httpx.Client(
        event_hooks={
            "request": [lambda r: seen.append(r.method)],
            "response": [lambda r: seen.append(r.status_code)],
        },
        headers={"x-mine": "1"},
        cookies={"c": "v"},
        params={"p": "q"},
        auth=("user", "pass"),
        timeout=11,
    )
    sdk = gate.wrap(openai.OpenAI(base_url=upstream.url, api_key="k", http_client=http))
    assert sdk.timeout.read == 11
    ask(sdk)
    request = upstream.exchanges[0]
    assert seen == ["POST", 200]
    assert request.headers["x-mine"] == "1"
    assert request.headers["cookie"] == "c=v"
    assert request.path.endswith("?p=q")
    assert http.cookies["seen"] == "yes"


def test_closed_clients_and_other_objects_are_rejected(gate: tidegate.Gate) -> None:
    sdk = openai.OpenAI(api_key="k")
    sdk.close()
    with pytest.raises(ValueError, match="closed"):
        gate.wrap(sdk)
    with pytest.raises(TypeError, match="httpx_client"):
        gate.wrap(object())


def test_wrapping_again_replaces_the_gate(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    other = tidegate.Gate()
    ask(other.wrap(gate.wrap(openai.OpenAI(base_url=upstream.url, api_key="k"))))
    assert (len(gate.snapshot()["targets"]), len(other.snapshot()["targets"])) == (0, 1)


# A certificate that has signed nothing.
CA = """\
-----BEGIN CERTIFICATE-----
MIIBhzCCAS2gAwIBAgIUNbeGNrvu6zlD+VjiYrXz2xQCPdcwCgYIKoZIzj0EAwIw
GDEWMBQGA1UEAwwNdGlkZWdhdGUgdGVzdDAgFw0yNjExMjEwOTQxMzBaGA8yMTI2
MTAyODA5NDEzMFowGDEWMBQGA1UEAwwNdGlkZWdhdGUgdGVzdDBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABJy5+Ma1emX+7C8VPs7O+E7PbL9PPuG9jdHxQEm585pj
DGE8eM/2jxrhZKOa5fAmwPVqyzc1AlcKGo6ASRnaNM+jUzBRMB0GA1UdDgQWBBTw
UDz+zra0/p9PrMghUzfGx0o/7jAfBgNVHSMEGDAWgBTwUDz+zra0/p9PrMghUzfG
x0o/7jAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIGmmapSeOI37
KLhzSYUd5tuKJMfYJjAeBOv6228Ukc9TAiEArYj7h6wADoLBkwFd90i+CuhMObaC
LdCBkdkdx5GBgrE=
-----END CERTIFICATE-----
"""
