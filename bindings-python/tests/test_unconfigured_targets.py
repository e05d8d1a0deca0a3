"""Tests of calls with more API keys than the gate creates unconfigured targets for.

Keys above that number share one target with its capacity, but not their cool-downs.
"""

from __future__ import annotations

import openai
import pytest

import tidegate
from provider_payloads import CHAT, MESSAGES
from upstream import Exchange, Upstream, answer

KEYS = 300


async def refuse_one(exchange: Exchange) -> None:
    """Answers the key `k299` with a 429 and a Retry-After of an hour, and other keys with 200."""
    if exchange.headers["authorization"] == f"Bearer k{KEYS - 1}":
        await answer({"error": {}}, 429, retry_after="3600")(exchange)
    else:
        await answer(CHAT)(exchange)


def test_retry_after_for_one_of_many_keys_delays_only_that_key(upstream: Upstream) -> None:
    upstream.handler = refuse_one
    gate = tidegate.Gate(defaults={"retry": {"attempts": 1}})
    sdk = gate.wrap(openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k", max_retries=0))

    def ask(key: int) -> str | None:
        chat = sdk.with_options(api_key=f"k{key}").chat.completions.create(model="small", messages=MESSAGES)
        return chat.choices[0].message.content

    assert [ask(key) for key in range(KEYS - 1)] == ["hi"] * (KEYS - 1)
    with pytest.raises(openai.RateLimitError):
        ask(KEYS - 1)
    sent = len(upstream.exchanges)
    assert [ask(key) for key in range(KEYS - 1)] == ["hi"] * (KEYS - 1)
    with pytest.raises(openai.RateLimitError) as refused, tidegate.context(deadline=60):
        ask(KEYS - 1)
    assert (refused.value.code, len(upstream.exchanges)) == ("cool_down", sent + KEYS - 1)
    after = float(refused.value.response.headers["retry-after"])
    assert 3000 < after <= 3602
    others = gate.snapshot()["targets"]["others"]
    assert (others["in_flight"], others["queue_depth"]) == (0, 0)
