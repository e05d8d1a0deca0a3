"""Tests of LangChain models that contain SDK clients, with a stand-in for LangChain's class.

The tests of the examples use LangChain itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from pydantic import BaseModel, ConfigDict

import tidegate
from provider_payloads import CHAT, MESSAGES
from upstream import Upstream, answer


class ChatModel(BaseModel):
    """A stand-in for LangChain's `ChatOpenAI`, with the same module and attributes."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    temperature: float = 0.5
    root_client: Any = None
    client: Any = None
    root_async_client: Any = None
    async_client: Any = None


ChatModel.__module__ = "langchain_openai.chat_models.base"


class SubclassedModel(ChatModel):
    """A subclass of the stand-in `ChatModel`, as users may define one of `ChatOpenAI`."""


def made(url: str, **held: Any) -> SubclassedModel:
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=5)
    async_client = openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=5)
    both = {
        "root_client": client,
        "client": client.chat.completions,
        "root_async_client": async_client,
        "async_client": async_client.chat.completions,
    }
    return SubclassedModel(**(both | held))


def test_both_clients_of_a_chat_model_are_wrapped(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    original = made(upstream.url)
    wrapped = gate.wrap(original)
    assert type(wrapped) is SubclassedModel
    assert wrapped.temperature == 0.5
    assert original.root_client.max_retries == 5
    assert wrapped.root_client.max_retries == wrapped.root_async_client.max_retries == 0

    async def ask() -> None:
        await wrapped.async_client.create(model="small", messages=MESSAGES)
        await wrapped.root_async_client.chat.completions.create(model="small", messages=MESSAGES)
        await wrapped.root_async_client.close()

    wrapped.client.create(model="small", messages=MESSAGES)
    wrapped.root_client.chat.completions.create(model="small", messages=MESSAGES)
    asyncio.run(ask())
    with original.root_client:
        original.client.create(model="small", messages=MESSAGES)
    targets = gate.snapshot()["targets"].values()
    assert sum(target["attempts"] for target in targets) == 4


def test_chat_model_without_a_sync_client_is_wrapped(upstream: Upstream, gate: tidegate.Gate) -> None:
    wrapped = gate.wrap(made(upstream.url, root_client=None, client=None))
    assert wrapped.root_client is None
    assert wrapped.root_async_client.max_retries == 0


def test_chat_model_without_a_reachable_client_is_rejected(upstream: Upstream, gate: tidegate.Gate) -> None:
    with pytest.raises(TypeError, match="client="):
        gate.wrap(made(upstream.url, root_client=None))
