"""Tests of LiteLLM's clients below a gate."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

# LiteLLM looks up prices on the network as it is imported, unless told not to.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import httpx
import openai
import pytest
import trustme

import tidegate
from certificate_authority import Authority
from provider_payloads import CHAT, CHAT_STREAM, MESSAGE, MESSAGE_STREAM, MESSAGES
from upstream import WAIT, Upstream, answer, events, hang_up, never, stall_after

litellm = pytest.importorskip("litellm")
http_handler = pytest.importorskip("litellm.llms.custom_httpx.http_handler")

# LiteLLM leaves connections open.
close_after = functools.partial(answer, connection="close")

# LiteLLM itself emits warnings.
pytestmark = pytest.mark.filterwarnings("ignore")

GEMINI = {
    "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [{"text": "hi"}]}}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
}
# The answer and the stream of one provider for each way in which LiteLLM makes requests: OpenAI's
# SDK, its own handlers with OpenAI's API, and its own handlers with other APIs.
PROVIDERS: dict[str, tuple[Any, list[Any]]] = {
    "openai": (CHAT, CHAT_STREAM),
    "hosted_vllm": (CHAT, CHAT_STREAM),
    "anthropic": (MESSAGE, MESSAGE_STREAM),
    "gemini": (GEMINI, [GEMINI]),
}
KINDS = ["sync", "async"]


@pytest.fixture(autouse=True, scope="module")
def collected() -> Iterator[None]:
    """Closes the connections and event loops that LiteLLM leaves open, so that no later test does."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
        for left in [item for item in gc.get_objects() if isinstance(item, socket.socket)]:
            if left.family == socket.AF_INET:
                left.close()


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keeps LiteLLM from printing, and drops the clients that it has cached."""
    monkeypatch.setattr(litellm, "suppress_debug_info", True)
    yield
    litellm.in_memory_llm_clients_cache.flush_cache()


def complete(kind: str, provider: str, url: str, **settings: Any) -> Any:
    """Makes one call, and returns its answer. The answer of a stream is the list of its chunks."""
    call = {"model": f"{provider}/small", "api_base": url, "api_key": "k", "messages": MESSAGES, **settings}
    if kind == "sync":
        made = litellm.completion(**call)
        return list(made) if settings.get("stream") else made

    async def run() -> Any:
        made = await litellm.acompletion(**call)
        return [chunk async for chunk in made] if settings.get("stream") else made

    return asyncio.run(run())


def secure(upstream: Upstream) -> str:
    """Returns the URL of a server with TLS."""
    return upstream.url.replace("http:", "https:")


def attempts(gate: tidegate.Gate) -> int:
    """Returns the number of attempts that a gate has made."""
    return sum(target["attempts"] for target in gate.snapshot()["targets"].values())


def failing(attempts: int) -> tidegate.Gate:
    """Returns a gate that makes so many attempts without a delay."""
    return tidegate.Gate(defaults={"retry": {"attempts": attempts, "base": "1ms", "max": "1ms"}})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_calls_and_streams_go_through_the_gate(
    kind: str, provider: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    whole, stream = PROVIDERS[provider]
    with gate.litellm():
        upstream.handler = close_after(whole)
        assert complete(kind, provider, upstream.url).choices[0].message.content == "hi"
        upstream.handler = events(*stream)
        text = "".join(
            chunk.choices[0].delta.content or "" for chunk in complete(kind, provider, upstream.url, stream=True)
        )
        assert text in {"hi", "hello"}
        assert attempts(gate) == 2
    upstream.handler = close_after(whole)
    complete(kind, provider, upstream.url)
    assert attempts(gate) == 2


@pytest.mark.parametrize("status", [429, 500])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_failing_call_has_the_attempts_of_the_gate(kind: str, provider: str, status: int, upstream: Upstream) -> None:
    upstream.handler = close_after({"error": {"message": "no"}}, status, retry_after="0")
    gate = failing(3)
    with gate.litellm(), pytest.raises(openai.APIStatusError):
        complete(kind, provider, upstream.url)
    assert attempts(gate) == len(upstream.exchanges) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_broken_connection_is_repeated_by_the_gate_only(kind: str, provider: str, upstream: Upstream) -> None:
    upstream.handler = hang_up
    gate = failing(3)
    with gate.litellm(), pytest.raises(openai.APIError):
        complete(kind, provider, upstream.url)
    assert attempts(gate) == len(upstream.exchanges) == 3


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Switches garbage collections off."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_slot_of_a_stream_is_released_at_its_last_event(kind: str, provider: str, upstream: Upstream) -> None:
    upstream.handler = events(*PROVIDERS[provider][1])
    gate = tidegate.Gate()
    call = {
        "model": f"{provider}/small",
        "api_base": upstream.url,
        "api_key": "k",
        "messages": MESSAGES,
        "stream": True,
    }

    async def read() -> Any:
        stream = await litellm.acompletion(**call)
        return stream, [chunk async for chunk in stream]

    with gate.litellm():
        stream = litellm.completion(**call) if kind == "sync" else None
        kept = (stream, list(stream)) if stream else asyncio.run(read())
        assert kept[1]
        assert [target["in_flight"] for target in gate.snapshot()["targets"].values()] == [0]


# LiteLLM itself keeps a stream of OpenAI's SDK until a garbage collection.
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("provider", ["hosted_vllm", "anthropic"])
def test_the_slot_of_a_stream_is_released_when_its_reader_leaves(provider: str, upstream: Upstream) -> None:
    upstream.handler = stall_after(*PROVIDERS[provider][1][:3])
    gate = tidegate.Gate()
    call = {
        "model": f"{provider}/small",
        "api_base": upstream.url,
        "api_key": "k",
        "messages": MESSAGES,
        "stream": True,
    }

    async def leave() -> None:
        async for _ in await litellm.acompletion(**call):
            break

    with gate.litellm():
        asyncio.run(leave())
        assert [target["in_flight"] for target in gate.snapshot()["targets"].values()] == [0]
    assert upstream.wait_for(1).closed.wait(WAIT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_timeouts_are_those_of_litellm(kind: str, provider: str, upstream: Upstream) -> None:
    upstream.handler = never
    with failing(1).litellm(), pytest.raises(litellm.Timeout):
        complete(kind, provider, upstream.url, timeout=0.2)
    assert len(upstream.exchanges) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_clients_that_litellm_has_cached_are_covered(provider: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = close_after(PROVIDERS[provider][0])
    complete("sync", provider, upstream.url)
    with gate.litellm():
        complete("sync", provider, upstream.url)
        assert attempts(gate) == 1
    complete("sync", provider, upstream.url)
    assert attempts(gate) == 1


def test_a_handler_of_the_user_is_covered(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = close_after(CHAT)
    seen = []
    with httpx.Client(event_hooks={"request": [seen.append]}) as mine:
        handler = http_handler.HTTPHandler(client=mine)
        with gate.litellm():
            complete("sync", "hosted_vllm", upstream.url, client=handler)
        assert handler.client is mine
    assert len(seen) == attempts(gate) == 1


def test_the_httpx_client_of_the_user_is_kept_below_the_gate(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = close_after(CHAT)
    seen = []
    with httpx.Client(event_hooks={"request": [seen.append]}) as mine, pytest.MonkeyPatch.context() as patch:
        patch.setattr(litellm, "client_session", mine)
        with gate.litellm():
            complete("sync", "openai", upstream.url)
        assert litellm.client_session is mine
    assert len(seen) == attempts(gate) == 1


def test_a_client_of_another_gate_is_not_changed(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = close_after(CHAT)
    other = tidegate.Gate()
    with other.httpx_client(family="httpx") as mine, gate.litellm():
        complete("sync", "hosted_vllm", upstream.url, client=http_handler.HTTPHandler(client=mine))
    assert (attempts(gate), attempts(other)) == (0, 1)


def test_calls_in_several_event_loops_and_threads(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = close_after(MESSAGE)

    async def run() -> None:
        call = {"model": "anthropic/small", "api_base": upstream.url, "api_key": "k", "messages": MESSAGES}
        threads = (asyncio.to_thread(litellm.completion, **call) for _ in range(3))
        await asyncio.gather(*threads, *(litellm.acompletion(**call) for _ in range(3)))

    with gate.litellm():
        asyncio.run(run())
        asyncio.run(run())
    assert attempts(gate) == 12


def test_a_second_call_returns_the_same_route(gate: tidegate.Gate) -> None:
    with gate.litellm() as route:
        assert gate.litellm() is route
    with gate.litellm() as later:
        assert later is not route
        route.close()
        assert litellm.client_session is not None
    assert litellm.client_session is litellm.aclient_session is None


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_second_gate_replaces_the_first_until_it_is_closed(provider: str, upstream: Upstream) -> None:
    upstream.handler = close_after(PROVIDERS[provider][0])
    gates = [tidegate.Gate(), tidegate.Gate()]
    with gates[0].litellm():
        with gates[1].litellm():
            complete("sync", provider, upstream.url)
            assert [attempts(gate) for gate in gates] == [0, 1]
        complete("sync", provider, upstream.url)
        assert [attempts(gate) for gate in gates] == [1, 1]


def test_the_first_of_two_gates_can_be_closed_first(upstream: Upstream) -> None:
    upstream.handler = close_after(CHAT)
    gates = [tidegate.Gate(), tidegate.Gate()]
    first, second = (gate.litellm() for gate in gates)
    first.close()
    complete("sync", "openai", upstream.url)
    complete("sync", "hosted_vllm", upstream.url)
    second.close()
    complete("sync", "hosted_vllm", upstream.url)
    assert [attempts(gate) for gate in gates] == [0, 2]


def test_in_mode_off_nothing_changes() -> None:
    before = http_handler.HTTPHandler.__dict__.get("client")
    with tidegate.Gate(mode="off").litellm():
        assert http_handler.HTTPHandler.__dict__.get("client") is before
        assert litellm.client_session is None


def test_in_mode_observe_litellm_keeps_its_retries(upstream: Upstream) -> None:
    upstream.handler = close_after({"error": {"message": "no"}}, 500, retry_after_ms="1")
    gate = tidegate.Gate(mode="observe")
    with gate.litellm(), pytest.raises(litellm.InternalServerError):
        complete("sync", "openai", upstream.url)
    assert attempts(gate) == len(upstream.exchanges) == 3


Setting = Callable[[pytest.MonkeyPatch, Authority], object]
TLS: dict[str, Setting] = {
    "ssl_verify=False": lambda patch, _: patch.setattr(litellm, "ssl_verify", False),
    "ssl_verify=file": lambda patch, authority: patch.setattr(litellm, "ssl_verify", str(authority.file)),
    "SSL_VERIFY=file": lambda patch, authority: patch.setenv("SSL_VERIFY", str(authority.file)),
    "SSL_VERIFY=False": lambda patch, _: patch.setenv("SSL_VERIFY", "False"),
}


@pytest.fixture
def foreign(tmp_path: Any) -> Authority:
    """Returns an authority that neither the gate nor LiteLLM trusts."""
    made = Authority(trustme.CA(), tmp_path)
    made.ca.cert_pem.write_to_path(str(made.file))
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("setting", TLS)
def test_tls_settings_of_litellm_apply_below_the_gate(
    setting: str, provider: str, kind: str, foreign: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = failing(1)
    with Upstream(foreign.server()) as upstream:
        upstream.handler = close_after(PROVIDERS[provider][0])
        with gate.litellm(), pytest.raises(openai.APIError):
            complete(kind, provider, secure(upstream))
        litellm.in_memory_llm_clients_cache.flush_cache()
        TLS[setting](monkeypatch, foreign)
        with gate.litellm():
            complete(kind, provider, secure(upstream))
        assert len(upstream.exchanges) == 1
    assert attempts(gate) == 2


def test_authorities_of_the_environment_apply(authority: Authority) -> None:
    gate = failing(1)
    with Upstream(authority.server()) as upstream, gate.litellm():
        upstream.handler = close_after(MESSAGE)
        complete("async", "anthropic", secure(upstream))
    assert attempts(gate) == 1


def test_a_version_without_the_replaced_names_is_refused(gate: tidegate.Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(http_handler, "get_ssl_configuration")
    monkeypatch.delattr(litellm, "aclient_session")
    with pytest.raises(RuntimeError, match=r"no get_ssl_configuration, aclient_session: .* works with LiteLLM 1\.92"):
        gate.litellm()


def test_without_litellm_the_error_names_the_package(gate: tidegate.Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(ImportError, match="pip install litellm"):
        gate.litellm()
