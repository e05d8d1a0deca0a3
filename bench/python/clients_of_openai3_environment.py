"""Tested clients of the packages that work with openai 3.x.

Each function returns the tested client of one package. Without a gate, it is the stock client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import httpx2
from agents import Agent, OpenAIProvider, RunConfig, Runner
from anthropic import Anthropic, AsyncAnthropic
from google import genai
from google.genai import types
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider as PydanticProvider

import clients_openai
from client_interface import ASK, CHAT, Closable, Package, TestedClient, flat, in_threads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import tidegate


def anthropic(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns an asynchronous anthropic client, wrapped if there is a gate."""
    client = AsyncAnthropic(base_url=url, api_key=key)
    if gate:
        client = gate.wrap(client)
    create = client.messages.create
    return TestedClient(
        lambda: create(model="small", max_tokens=8, messages=CHAT),
        flat(lambda: create(model="small", max_tokens=8, messages=CHAT, stream=True)),
    )


def anthropic_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a synchronous anthropic client, wrapped if there is a gate."""
    client = Anthropic(base_url=url, api_key=key)
    if gate:
        client = gate.wrap(client)
    create = client.messages.create
    return in_threads(
        lambda: create(model="small", max_tokens=8, messages=CHAT),
        lambda: Closable(create(model="small", max_tokens=8, messages=CHAT, stream=True)),
    )


def langchain_openai(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns an asynchronous client of LangChain's `ChatOpenAI`, wrapped if there is a gate."""
    model = ChatOpenAI(model="small", base_url=f"{url}/v1", api_key=key)
    if gate:
        model = gate.wrap(model)
    return TestedClient(lambda: model.ainvoke(ASK), lambda: model.astream(ASK))


def langchain_openai_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a synchronous client of LangChain's `ChatOpenAI`.

    With a gate, the model gets the gate's synchronous and asynchronous httpx clients.
    """
    plug = {"http_client": gate.httpx_client(), "http_async_client": gate.httpx_async_client()} if gate else {}
    model = ChatOpenAI(model="small", base_url=f"{url}/v1", api_key=key, **plug)
    return in_threads(lambda: model.invoke(ASK), lambda: model.stream(ASK))


def openai_agents(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client of the OpenAI Agents SDK.

    Its model provider uses an openai client, which is wrapped if there is a gate.
    """
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    provider = OpenAIProvider(openai_client=gate.wrap(client) if gate else client)
    config = RunConfig(model_provider=provider, tracing_disabled=True)
    agent = Agent(name="harbour master", model="small")
    return TestedClient(
        lambda: Runner.run(agent, ASK, run_config=config),
        lambda: Runner.run_streamed(agent, ASK, run_config=config).stream_events(),
    )


def pydantic_ai(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client of Pydantic AI.

    Its model provider uses an openai client, which is wrapped if there is a gate.
    """
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    provider = PydanticProvider(openai_client=gate.wrap(client) if gate else client)
    agent = PydanticAgent(OpenAIChatModel("small", provider=provider))

    async def parts() -> AsyncIterator[object]:
        async with agent.run_stream(ASK) as result:
            async for text in result.stream_text(debounce_by=None):
                yield text

    return TestedClient(lambda: agent.run(ASK), parts)


def google_genai(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns an asynchronous client of Google Gen AI.

    With a gate, its options get the gate's synchronous and asynchronous httpx clients.
    """
    models = _genai(url, key, gate).aio.models
    return TestedClient(
        lambda: models.generate_content(model="small", contents=ASK),
        flat(lambda: models.generate_content_stream(model="small", contents=ASK)),
    )


def google_genai_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a synchronous client of Google Gen AI.

    With a gate, its options get the gate's synchronous and asynchronous httpx clients.
    """
    client = _genai(url, key, gate)
    return in_threads(
        lambda: client.models.generate_content(model="small", contents=ASK),
        lambda: client.models.generate_content_stream(model="small", contents=ASK),
    )


def _genai(url: str, key: str, gate: tidegate.Gate | None) -> Any:
    plug: dict[str, Any] = {}
    if gate:
        plug = {"httpx_client": gate.httpx_client(), "httpx_async_client": gate.httpx_async_client()}
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=url, **plug))


def plain_httpx(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client without an SDK: the gate's httpx client, or stock httpx without a gate."""
    return _plain(gate.httpx_async_client(family="httpx") if gate else httpx.AsyncClient(timeout=60), url, key)


def plain_httpx2(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client without an SDK: the gate's httpx2 client, or stock httpx2 without a gate."""
    return _plain(gate.httpx_async_client(family="httpx2") if gate else httpx2.AsyncClient(timeout=60), url, key)


def _plain(client: Any, url: str, key: str) -> TestedClient:
    headers = {"authorization": f"Bearer {key}"}
    at, body = f"{url}/v1/chat/completions", {"model": "small", "messages": CHAT}

    async def ask() -> object:
        return (await client.post(at, json=body, headers=headers)).raise_for_status()

    async def parts() -> AsyncIterator[object]:
        async with client.stream("POST", at, json={**body, "stream": True}, headers=headers) as response:
            async for line in response.raise_for_status().aiter_lines():
                yield line

    return TestedClient(ask, parts)


PACKAGES = [
    *clients_openai.PACKAGES,
    Package("anthropic", anthropic),
    Package("anthropic", anthropic_sync, "sync"),
    Package("langchain-openai", langchain_openai),
    Package("langchain-openai", langchain_openai_sync, "sync"),
    Package("openai-agents", openai_agents),
    Package("pydantic-ai-slim", pydantic_ai),
    Package("google-genai", google_genai),
    Package("google-genai", google_genai_sync, "sync"),
    Package("httpx", plain_httpx),
    Package("httpx2", plain_httpx2),
]
