"""Tests of calls that fall back to another provider, with its address, model and key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

import tidegate
from provider_payloads import CHAT, CHAT_STREAM, MESSAGES
from upstream import Exchange, Upstream, answer, events, stall_after
from vectors import Case, every

SPARE_KEY = "sk-spare"


@pytest.fixture
def spare() -> Iterator[Upstream]:
    """Runs the server of the fallback target `spare`, and yields it."""
    with Upstream() as server:
        yield server


@pytest.fixture
def gate(upstream: Upstream, spare: Upstream, monkeypatch: pytest.MonkeyPatch) -> tidegate.Gate:
    """Returns a gate whose first target has one slot and falls back to the target `spare`."""
    monkeypatch.setenv("SPARE_API_KEY", SPARE_KEY)
    first = {"url": f"{upstream.url}/v1", "cap": 1, "on_full": "refuse", "fallback": "spare"}
    second = {"url": f"{spare.url}/other/v1", "model": "tiny", "key_env": "SPARE_API_KEY"}
    return tidegate.Gate(defaults={"metrics": "off"}, targets={"first": first, "spare": second})


def check(gate: tidegate.Gate, spare: Upstream, *, stream: bool) -> None:
    """Checks that the fallback target got one request, with its own path, model and key.

    Also checks the counts and the records of the two targets. `stream` is whether the call streams.
    """
    (arrived,) = spare.exchanges
    assert arrived.path == "/other/v1/chat/completions"
    assert arrived.headers["authorization"] == f"Bearer {SPARE_KEY}"
    assert arrived.headers["host"] == spare.url.removeprefix("http://")
    expected: dict[str, Any] = {"messages": MESSAGES, "model": "tiny"}
    assert arrived.json() == {**expected, "stream": True} if stream else expected
    targets = gate.snapshot()["targets"]
    assert (targets["first"]["fallbacks"], targets["spare"]["attempts"]) == ({"no_slot": 1}, 1)
    refused, completed = (call for call in gate.calls() if call["outcome"] in {"refused", "completed"})
    assert (refused["target"], refused["outcome"], refused["fallback_from"]) == ("first", "refused", None)
    assert (completed["target"], completed["fallback_from"]) == ("spare", "first")
    assert SPARE_KEY not in f"{gate.snapshot()} {gate.calls()} {gate.prometheus()} {gate!r}"


async def test_fallback_target_answers_a_rejected_call(
    upstream: Upstream, spare: Upstream, gate: tidegate.Gate
) -> None:
    upstream.handler, spare.handler = stall_after(CHAT_STREAM[0]), answer(CHAT)
    sdk = gate.wrap(openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="sk-first", organization="mine"))
    held = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
    raw = await sdk.chat.completions.with_raw_response.create(model="small", messages=MESSAGES)
    assert raw.headers["x-tidegate-fallback"] == "spare"
    assert raw.parse().choices[0].message.content == "hi"
    assert "openai-organization" not in spare.exchanges[0].headers
    check(gate, spare, stream=False)
    await held.close()


def test_fallback_target_streams_the_answer(upstream: Upstream, spare: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler, spare.handler = stall_after(CHAT_STREAM[0]), events(*CHAT_STREAM)
    sdk = gate.wrap(openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="sk-first"))
    held = sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
    stream = sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
    assert [chunk.choices[0].delta.content for chunk in stream] == ["hel", "lo", None]
    check(gate, spare, stream=True)
    held.close()


async def test_rejection_by_all_targets_names_the_first(upstream: Upstream, spare: Upstream) -> None:
    upstream.handler = spare.handler = stall_after(CHAT_STREAM[0])
    gate = tidegate.Gate(
        defaults={"metrics": "off"},
        targets={
            "first": {"url": f"{upstream.url}/v1", "cap": 1, "on_full": "refuse", "fallback": "spare"},
            "spare": {"url": f"{spare.url}/v1", "cap": 1, "on_full": "refuse", "model": "tiny"},
        },
    )
    sdk = gate.wrap(openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="sk-first"))
    held = [await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True) for _ in range(2)]
    with pytest.raises(openai.RateLimitError, match="because first rejected it") as refused:
        await sdk.chat.completions.create(model="small", messages=MESSAGES)
    assert refused.value.code == "no_slot"
    assert "authorization" not in spare.exchanges[0].headers, "the caller's key is not for another server"
    for stream in held:
        await stream.close()


def secret(name: str) -> str:
    """Returns the value that these tests give to the header or query parameter `name`."""
    return f"secret-of-{name.lower()}"


def request_to_fallback(case: Case, upstream: Upstream, spare: Upstream, **target: Any) -> Exchange:
    """Sends a call that falls back, and returns the request that the server `spare` receives.

    The call has every header and query key of the case. The only slot of the first server is in
    use, so that the call falls back.
    """
    first: Any = {"url": f"{upstream.url}/v1", "cap": 1, "on_full": "refuse", "fallback": "spare"}
    second: Any = {"url": f"{spare.url}/other/v1", "model": "tiny", **target}
    gate = tidegate.Gate(defaults={"metrics": "off"}, targets={"first": first, "spare": second})
    headers = {row["name"]: secret(row["name"]) for row in case["headers"]}
    query = {row["name"]: secret(row["name"]) for row in case["query"]}
    headers |= {name: f"value-of-{name}" for name in case["kept_headers"] if name != "content-type"}
    query |= {name: f"value-of-{name}" for name in case["kept_query"]}
    sdk = gate.wrap(openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k"))
    before = len(spare.exchanges)
    with gate.slot("first"):
        raw = sdk.chat.completions.with_raw_response.create(
            model="small", messages=MESSAGES, extra_headers=headers, extra_query=query
        )
    assert raw.headers["x-tidegate-fallback"] == "spare"
    return spare.exchanges[before]


def query_of(exchange: Exchange) -> set[str]:
    """Returns the names of the query parameters of a request."""
    return {pair.split("=")[0] for pair in exchange.path.partition("?")[2].split("&")}


@every("fallback")
def test_credentials_do_not_reach_another_server(
    case: Case, upstream: Upstream, spare: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARE_API_KEY", SPARE_KEY)
    spare.handler = answer(CHAT)
    assert len(case["headers"]) >= 60
    assert len(case["query"]) >= 20
    target: dict[str, Any]
    for target in ({}, {"key_env": "SPARE_API_KEY"}):
        arrived = request_to_fallback(case, upstream, spare, **target)
        names = [row["name"] for row in case["headers"] + case["query"]]
        assert [name for name in names if secret(name) in f"{arrived.path} {arrived.headers}"] == []
        assert "secret" not in f"{arrived.path} {arrived.headers}"
        assert set(case["kept_headers"]) <= set(arrived.headers)
        assert query_of(arrived) == set(case["kept_query"])


@every("fallback")
def test_forwarded_headers_reach_another_server(
    case: Case, upstream: Upstream, spare: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARE_API_KEY", SPARE_KEY)
    spare.handler = answer(CHAT)
    names = [row["name"] for row in case["headers"]]
    arrived = request_to_fallback(case, upstream, spare, forward_headers=names)
    assert {name: arrived.headers.get(name) for name in names} == {name: secret(name) for name in names}
    assert query_of(arrived) == set(case["kept_query"])
    own = request_to_fallback(case, upstream, spare, forward_headers=names, key_env="SPARE_API_KEY")
    assert own.headers["authorization"] == f"Bearer {SPARE_KEY}", "the target's own key"
    assert own.headers["x-litellm-api-key"] == secret("x-litellm-api-key")


@every("fallback")
def test_fallback_on_the_same_server_gets_the_unchanged_request(case: Case, upstream: Upstream) -> None:
    upstream.handler = answer(CHAT)
    arrived = request_to_fallback(case, upstream, upstream)
    assert {row["name"] for row in case["headers"]} <= set(arrived.headers)
    assert {row["name"] for row in case["query"]} <= query_of(arrived)
