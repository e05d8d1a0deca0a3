"""Tests that users of openai get the exceptions that they know."""

from __future__ import annotations

import pickle
import socket
from types import SimpleNamespace
from typing import Any

import openai
import pytest

import tidegate
from httpx_clients import by_each_transport, clients, of_each_family, sent
from httpx_packages import INSTALLED, module
from provider_payloads import CHAT, CHAT_STREAM, MESSAGES
from upstream import Upstream, answer, events, hang_up, never, stall_after, truncate


def client(url: str, gate: tidegate.Gate, **options: Any) -> openai.AsyncOpenAI:
    return gate.wrap(openai.AsyncOpenAI(base_url=url, api_key="k", **options))


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


OPENAI_3 = int(openai.__version__.split(".")[0]) >= 3
ONCE = {"retry": {"attempts": 1}}


async def ask(sdk: openai.AsyncOpenAI) -> Any:
    return await sdk.chat.completions.create(model="small", messages=MESSAGES)


async def test_rejection_has_reason_position_and_advice(upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"cap": 1, "on_full": "refuse"})
    sdk = client(upstream.url, gate)
    upstream.handler = stall_after(CHAT_STREAM[0])
    held = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
    with pytest.raises(openai.RateLimitError) as refused:
        await ask(sdk)
    assert refused.value.status_code == 429
    assert refused.value.code == "no_slot"
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert len(upstream.exchanges) == 1
    await held.close()
    assert upstream.exchanges[0].closed.wait(30)


async def test_passed_wait_budget_is_a_504(upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"cap": 1, "wait": "1ms"})
    sdk = client(upstream.url, gate)
    upstream.handler = stall_after(CHAT_STREAM[0])
    held = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
    with pytest.raises(openai.InternalServerError) as late:
        await ask(sdk)
    assert late.value.status_code == 504
    assert late.value.code == "wait_budget"
    assert late.value.body["queue_position"] is not None
    await held.close()


async def test_deadline_of_the_context_ends_the_call(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    with tidegate.context(deadline=0.05), pytest.raises(openai.InternalServerError) as late:
        await ask(client(upstream.url, gate))
    assert late.value.status_code == 504
    # None if the deadline passed before the request was sent.
    assert all(exchange.closed.wait(30) for exchange in upstream.exchanges)


async def test_read_timeout_before_the_first_token(upstream: Upstream) -> None:
    upstream.handler = never
    gate = tidegate.Gate(defaults=ONCE)
    with pytest.raises(openai.APITimeoutError):
        await ask(client(upstream.url, gate, timeout=0.05))
    assert len(upstream.exchanges) <= 1
    assert all(exchange.closed.wait(30) for exchange in upstream.exchanges)


async def test_read_timeout_within_a_stream(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    sdk = client(upstream.url, gate, timeout=0.05)
    with pytest.raises((openai.APITimeoutError, *timeouts())):
        async for _ in await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True):
            pass
    assert all(exchange.closed.wait(30) for exchange in upstream.exchanges)


def timeouts() -> list[type[Exception]]:
    return [module(name).ReadTimeout for name in INSTALLED]


async def test_refused_connection_is_a_connect_error(gate: tidegate.Gate) -> None:
    gate = tidegate.Gate(defaults=ONCE)
    with pytest.raises(openai.APIConnectionError) as failed:
        await ask(client(closed_port(), gate))
    cause = failed.value.__cause__
    assert type(cause).__name__ == "ConnectError"
    assert cause is not None
    assert isinstance(cause.__cause__, tidegate.ConnectionFailed)
    assert cause.__cause__.kind == "connect"


async def test_broken_connection_is_a_connection_error(upstream: Upstream) -> None:
    upstream.handler = hang_up
    with pytest.raises(openai.APIConnectionError):
        await ask(client(upstream.url, tidegate.Gate(defaults=ONCE)))


async def test_truncated_body_is_an_error(upstream: Upstream) -> None:
    upstream.handler = truncate(b'{"id":', announced=500)
    with pytest.raises(openai.APIConnectionError) as failed:
        await ask(client(upstream.url, tidegate.Gate(defaults=ONCE)))
    assert type(failed.value.__cause__).__name__ == "RemoteProtocolError"


async def test_truncated_stream_is_an_error(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = events(CHAT_STREAM[0])
    stream = await client(upstream.url, gate).chat.completions.create(model="small", messages=MESSAGES, stream=True)
    with pytest.raises((openai.APIConnectionError, *(module(name).RemoteProtocolError for name in INSTALLED))):
        async for _ in stream:
            pass


async def test_error_response_of_the_provider_is_unchanged(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer({"error": {"message": "no", "code": "bad"}}, status=400)
    with pytest.raises(openai.BadRequestError) as bad:
        await ask(client(upstream.url, gate))
    assert bad.value.code == "bad"


async def test_only_the_gate_retries_a_429_of_the_provider(upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"retry": {"attempts": 3, "base": "1ms", "max": "2ms"}})
    upstream.handler = answer({"error": {"message": "slow down"}}, status=429, retry_after_ms="1")
    with pytest.raises(openai.RateLimitError) as limited:
        await ask(client(upstream.url, gate))
    assert limited.value.response.headers["x-should-retry"] == "false"
    assert len(upstream.exchanges) == 3


@pytest.mark.parametrize("name", INSTALLED)
async def test_failures_are_responses_under_an_unwrapped_sdk(name: str) -> None:
    """Below an SDK with retries of its own, a failure becomes a response that forbids retries.

    The SDK would retry an exception. Requests that no SDK makes get the exception.
    """
    gate = tidegate.Gate(defaults=ONCE)
    http = gate.httpx_async_client(family=name)
    response = await http.post(closed_port(), headers={"x-stainless-lang": "python"}, content=b"{}")
    assert response.status_code == 502
    assert response.headers["x-should-retry"] == "false"
    with pytest.raises(module(name).ConnectError):
        await http.post(closed_port(), content=b"{}")


@by_each_transport
@of_each_family
async def test_error_of_a_call_that_cannot_start_is_raised_without_a_cause(
    name: str, transport: str, gate: tidegate.Gate
) -> None:
    error = tidegate.ConfigError("the file of replicas is gone", kind="config")

    def fail(*_: object) -> None:
        raise error

    methods = ("send", "send_blocking", "send_custom", "start_custom")
    for _, client in clients(name, gate, transport):
        client._transport._gate = SimpleNamespace(**dict.fromkeys(methods, fail))
        with pytest.raises(tidegate.ConfigError) as raised:
            await sent(client, "GET", closed_port())
        assert raised.value is error
        assert error.__cause__ is None


@pytest.mark.parametrize("name", INSTALLED)
async def test_port_out_of_range_is_a_failed_connect(name: Any) -> None:
    http = tidegate.Gate(defaults=ONCE).httpx_async_client(family=name)
    with pytest.raises(module(name).ConnectError, match="invalid port number"):
        await http.post("http://127.0.0.1:123456/v1/chat/completions", content=b"{}")


@pytest.mark.parametrize(("mode", "requests"), [("enforce", 1), ("observe", 2)])
async def test_observe_mode_keeps_the_retries_of_the_sdk(mode: Any, requests: int, upstream: Upstream) -> None:
    upstream.handler = hang_up
    gate = tidegate.Gate(mode=mode, defaults=ONCE)
    http = gate.httpx_async_client(family=INSTALLED[-1] if OPENAI_3 else "httpx")
    sdk = openai.AsyncOpenAI(base_url=upstream.url, api_key="k", http_client=http, max_retries=1)
    with pytest.raises(openai.InternalServerError if mode == "enforce" else openai.APIConnectionError):
        await ask(sdk)
    assert len(upstream.exchanges) == requests


def test_errors_can_be_pickled() -> None:
    gate = tidegate.Gate(tools={"search": 1})
    with pytest.raises(tidegate.UnknownNameError) as raised, gate.tool("serch"):
        pass
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is tidegate.UnknownNameError
    assert (again.kind, again.status, again.retryable, str(again)) == (
        "unknown",
        400,
        False,
        str(raised.value),
    )
    assert "search" in str(again)


def test_configuration_errors_name_the_key() -> None:
    with pytest.raises(tidegate.ConfigError, match="cap") as raised:
        tidegate.Gate(targets={"openai": {"capp": 3}})
    assert raised.value.kind == "config"
    with pytest.raises(tidegate.ConfigError):
        tidegate.Gate(tools={"db": 0})
    with pytest.raises(tidegate.ConfigError, match="none.toml"):
        tidegate.Gate.from_file("none.toml")


async def test_responses_are_not_changed(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT, x_request_id="r1")
    raw = await client(upstream.url, gate).chat.completions.with_raw_response.create(model="small", messages=MESSAGES)
    assert raw.headers["x-request-id"] == "r1"
    assert raw.http_response.extensions["http_version"] == b"HTTP/1.1"
    assert raw.elapsed.total_seconds() > 0
