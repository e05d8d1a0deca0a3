"""Tests of the official Anthropic client that a gate wraps."""

from __future__ import annotations

import pytest

import tidegate
from provider_payloads import MESSAGE, MESSAGE_STREAM, MESSAGES
from upstream import Upstream, answer, events

anthropic = pytest.importorskip("anthropic")


async def test_async_message_and_stream_complete(upstream: Upstream, gate: tidegate.Gate) -> None:
    client = gate.wrap(anthropic.AsyncAnthropic(base_url=upstream.url, api_key="k"))
    assert type(client) is anthropic.AsyncAnthropic
    upstream.handler = answer(MESSAGE)
    message = await client.messages.create(model="claude", max_tokens=5, messages=MESSAGES)
    assert message.content[0].text == "hi"
    assert upstream.exchanges[0].headers["authorization"] == "Bearer k"
    upstream.handler = events(*MESSAGE_STREAM)
    async with client.messages.stream(model="claude", max_tokens=5, messages=MESSAGES) as stream:
        assert await stream.get_final_text() == "hi"
    raw = await client.messages.create(model="claude", max_tokens=5, messages=MESSAGES, stream=True)
    assert [event.type async for event in raw][-1] == "message_stop"


def test_sync_message_and_stream_complete(upstream: Upstream, gate: tidegate.Gate) -> None:
    client = gate.wrap(anthropic.Anthropic(base_url=upstream.url, api_key="k"))
    upstream.handler = answer(MESSAGE)
    message = client.messages.create(model="claude", max_tokens=5, messages=MESSAGES)
    assert message.content[0].text == "hi"
    upstream.handler = events(*MESSAGE_STREAM)
    with client.messages.stream(model="claude", max_tokens=5, messages=MESSAGES) as stream:
        assert stream.get_final_text() == "hi"


def test_rejected_call_raises_rate_limit_error(upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"cap": 1, "on_full": "refuse"})
    upstream.handler = events(*MESSAGE_STREAM)
    client = gate.wrap(anthropic.Anthropic(base_url=upstream.url, api_key="k"))
    held = client.messages.create(model="claude", max_tokens=5, messages=MESSAGES, stream=True)
    with pytest.raises(anthropic.RateLimitError) as refused:
        client.messages.create(model="claude", max_tokens=5, messages=MESSAGES)
    assert refused.value.body["error"]["code"] == "no_slot"
    held.close()


def test_prompt_that_is_too_large_raises_the_error_of_413(upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"max_prompt": 100})
    client = gate.wrap(anthropic.Anthropic(base_url=upstream.url, api_key="k"))
    with pytest.raises(anthropic.RequestTooLargeError) as refused:
        client.messages.create(model="claude", max_tokens=5, messages=[{"role": "user", "content": "tide " * 1_000}])
    assert (refused.value.status_code, refused.value.body["error"]["code"]) == (413, "too_large")
    assert upstream.exchanges == []
