"""Tests of token usage that the gate requests from the provider and hides from the caller."""

from __future__ import annotations

from typing import Any

import openai
import pytest

import tidegate
from provider_payloads import CHAT, CHAT_STREAM, MESSAGES
from upstream import Upstream, answer, events

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def openais(*lines: Any) -> list[Any]:
    """Returns the events of a stream as OpenAI sends them if token usage was requested.

    `lines` are the events without usage; the last one is `[DONE]`. Each chunk gets the usage null,
    and a chunk with the usage is added before `[DONE]`.
    """
    *chunks, done = lines
    last = {**chunks[-1], "choices": [], "usage": USAGE}
    return [*({**chunk, "usage": None} for chunk in chunks), last, done]


def gate_for(upstream: Upstream) -> tidegate.Gate:
    return tidegate.Gate(targets={"llm": {"url": f"{upstream.url}/v1", "ask_usage": True, "metrics": "off"}})


def token_counts(gate: tidegate.Gate) -> tuple[int, int]:
    tenant = gate.snapshot()["targets"]["llm"]["tenants"]["default"]
    return tenant["input_tokens"], tenant["output_tokens"]


async def test_requested_usage_is_counted_and_hidden_from_the_caller(upstream: Upstream) -> None:
    gate = gate_for(upstream)
    upstream.handler = events(*openais(*CHAT_STREAM))
    sdk = gate.wrap(openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="k"))
    stream = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
    chunks = [chunk async for chunk in stream]
    assert [chunk.to_dict() for chunk in chunks] == CHAT_STREAM[:-1], "as if nobody had asked"
    assert upstream.exchanges[0].json()["stream_options"] == {"include_usage": True}
    assert token_counts(gate) == (5, 2)


@pytest.mark.parametrize("asks", [True, False])
def test_explicit_usage_option_is_not_changed(asks: bool, upstream: Upstream) -> None:
    gate = gate_for(upstream)
    upstream.handler = events(*openais(*CHAT_STREAM))
    sdk = gate.wrap(openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k"))
    stream = sdk.chat.completions.create(
        model="small", messages=MESSAGES, stream=True, stream_options={"include_usage": asks}
    )
    assert list(stream)[-1].usage is not None
    assert upstream.exchanges[0].json()["stream_options"] == {"include_usage": asks}


def test_whole_answers_are_not_changed(upstream: Upstream) -> None:
    gate = gate_for(upstream)
    upstream.handler = answer(CHAT)
    sdk = gate.wrap(openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k"))
    assert sdk.chat.completions.create(model="small", messages=MESSAGES).usage is not None
    assert upstream.exchanges[0].json() == {"messages": MESSAGES, "model": "small"}
