"""Tests of the official OpenAI client that a gate wraps."""

from __future__ import annotations

import openai

import tidegate
from provider_payloads import CHAT, CHAT_STREAM, MESSAGES, RESPONSE, RESPONSE_STREAM
from upstream import Upstream, answer, events


def asynchronous(upstream: Upstream, gate: tidegate.Gate) -> openai.AsyncOpenAI:
    return gate.wrap(openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="k"))


def synchronous(upstream: Upstream, gate: tidegate.Gate) -> openai.OpenAI:
    return gate.wrap(openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k"))


async def test_async_chat(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    client = asynchronous(upstream, gate)
    completion = await client.chat.completions.create(model="small", messages=MESSAGES)
    assert completion.choices[0].message.content == "hi"
    request = upstream.exchanges[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer k"
    assert request.json() == {"model": "small", "messages": MESSAGES}


async def test_async_chat_stream(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = events(*CHAT_STREAM)
    client = asynchronous(upstream, gate)
    stream = await client.chat.completions.create(model="small", messages=MESSAGES, stream=True)
    text = [chunk.choices[0].delta.content async for chunk in stream]
    assert text == ["hel", "lo", None]


async def test_async_responses(upstream: Upstream, gate: tidegate.Gate) -> None:
    client = asynchronous(upstream, gate)
    upstream.handler = answer(RESPONSE)
    assert (await client.responses.create(model="small", input="hello")).output_text == "hi"
    upstream.handler = events(*RESPONSE_STREAM)
    stream = await client.responses.create(model="small", input="hello", stream=True)
    assert [event.type async for event in stream] == ["response.output_text.delta", "response.completed"]


def test_sync_chat(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    client = synchronous(upstream, gate)
    completion = client.chat.completions.create(model="small", messages=MESSAGES)
    assert completion.choices[0].message.content == "hi"


def test_sync_chat_stream(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = events(*CHAT_STREAM)
    client = synchronous(upstream, gate)
    stream = client.chat.completions.create(model="small", messages=MESSAGES, stream=True)
    assert [chunk.choices[0].delta.content for chunk in stream] == ["hel", "lo", None]


def test_sync_responses(upstream: Upstream, gate: tidegate.Gate) -> None:
    client = synchronous(upstream, gate)
    upstream.handler = answer(RESPONSE)
    assert client.responses.create(model="small", input="hello").output_text == "hi"
    upstream.handler = events(*RESPONSE_STREAM)
    stream = client.responses.create(model="small", input="hello", stream=True)
    assert [event.type for event in stream] == ["response.output_text.delta", "response.completed"]
