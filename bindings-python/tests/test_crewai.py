"""Tests of CrewAI's models that contain SDK clients, with a stand-in for CrewAI's class.

The tests of the examples use CrewAI itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from pydantic import BaseModel, PrivateAttr

import tidegate
from provider_payloads import CHAT, MESSAGES
from upstream import Upstream, answer


class OpenAICompletion(BaseModel):
    """A stand-in for CrewAI's `OpenAICompletion`, with the same module and attributes."""

    temperature: float = 0.5
    _client: Any = PrivateAttr(default=None)
    _async_client: Any = PrivateAttr(default=None)


OpenAICompletion.__module__ = "crewai.llms.providers.openai.completion"


def test_both_clients_of_a_model_are_wrapped(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    original = OpenAICompletion()
    original._client = client = openai.OpenAI(base_url=upstream.url, api_key="k")
    original._async_client = openai.AsyncOpenAI(base_url=upstream.url, api_key="k")
    wrapped = gate.wrap(original)
    assert type(wrapped) is OpenAICompletion
    assert wrapped.temperature == 0.5
    assert original._client is client

    async def ask() -> None:
        await wrapped._async_client.chat.completions.create(model="small", messages=MESSAGES)

    wrapped._client.chat.completions.create(model="small", messages=MESSAGES)
    asyncio.run(ask())
    client.chat.completions.create(model="small", messages=MESSAGES)
    assert sum(target["attempts"] for target in gate.snapshot()["targets"].values()) == 2


def test_a_model_without_clients_is_refused(gate: tidegate.Gate) -> None:
    with pytest.raises(TypeError, match="create it with its API key"):
        gate.wrap(OpenAICompletion())


def test_a_model_of_another_sdk_is_refused(gate: tidegate.Gate) -> None:
    model = OpenAICompletion()
    model._client = model._async_client = object()
    with pytest.raises(TypeError, match=r"cannot wrap builtins\.object: .* CrewAI's LLM of openai and anthropic"):
        gate.wrap(model)
