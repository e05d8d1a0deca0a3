"""Each package as its users hold it, with one call and one stream: stock where there is no gate, else by its plug point.

Frameworks are imported where they are used, since no environment holds them all.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import tidegate

ASK = "What is a slack tide?"
CHAT: Any = [{"role": "user", "content": ASK}]


@dataclass(frozen=True)
class Held:
    """A client at an upstream of its own."""

    #: One answer.
    ask: Callable[[], Awaitable[object]]
    #: One stream; closing it leaves it.
    stream: Callable[[], AsyncIterator[object]]
    #: No task waits in it that could be cancelled: its calls run in threads.
    blocking: bool = False


class Closable:
    """An SDK's stream as one iterator with `close`: the stream's own where it has one, else nobody holds it any more."""

    def __init__(self, stream: Any) -> None:
        """Own the stream."""
        self._stream, self._parts = stream, iter(stream)

    def __iter__(self) -> Iterator[object]:
        """Return itself: a stream is read once."""
        return self

    def __next__(self) -> object:
        """Return the next part."""
        return next(self._parts)

    def close(self) -> None:
        """Leave the stream."""
        if hasattr(self._stream, "close"):
            self._stream.close()
        del self._stream, self._parts


def in_threads(ask: Callable[[], object], stream: Callable[[], Iterator[object]]) -> Held:
    """Hold a synchronous client. `stream` makes something with `close`."""

    async def parts() -> AsyncIterator[object]:
        made: Any = await asyncio.to_thread(stream)
        end = object()
        with contextlib.closing(made):
            while (part := await asyncio.to_thread(next, made, end)) is not end:
                yield part

    return Held(lambda: asyncio.to_thread(ask), parts, blocking=True)


def flat(stream: Callable[[], Awaitable[AsyncIterator[object]]]) -> Callable[[], AsyncIterator[object]]:
    """Make an iterator of a coroutine that returns one."""

    async def parts() -> AsyncIterator[object]:
        async for part in await stream():
            yield part

    return parts


def openai(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Wrap the client."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    if gate:
        client = gate.wrap(client)
    create = client.chat.completions.create
    return Held(
        lambda: create(model="small", messages=CHAT),
        flat(lambda: create(model="small", messages=CHAT, stream=True)),
    )


def openai_sync(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Wrap the client."""
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key=key)
    if gate:
        client = gate.wrap(client)
    create = client.chat.completions.create
    return in_threads(
        lambda: create(model="small", messages=CHAT), lambda: Closable(create(model="small", messages=CHAT, stream=True))
    )


def openai_responses(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Wrap the client."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    if gate:
        client = gate.wrap(client)
    create = client.responses.create
    return Held(
        lambda: create(model="small", input=ASK),
        flat(lambda: create(model="small", input=ASK, stream=True)),
    )


def anthropic(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Wrap the client."""
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(base_url=url, api_key=key)
    if gate:
        client = gate.wrap(client)
    create = client.messages.create
    return Held(
        lambda: create(model="small", max_tokens=8, messages=CHAT),
        flat(lambda: create(model="small", max_tokens=8, messages=CHAT, stream=True)),
    )


def anthropic_sync(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Wrap the client."""
    from anthropic import Anthropic

    client = Anthropic(base_url=url, api_key=key)
    if gate:
        client = gate.wrap(client)
    create = client.messages.create
    return in_threads(
        lambda: create(model="small", max_tokens=8, messages=CHAT),
        lambda: Closable(create(model="small", max_tokens=8, messages=CHAT, stream=True)),
    )


def langchain_openai(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Give the model both http clients."""
    model = _chat_openai(url, key, gate)
    return Held(lambda: model.ainvoke(ASK), lambda: model.astream(ASK))


def langchain_openai_sync(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Give the model both http clients."""
    model = _chat_openai(url, key, gate)
    return in_threads(lambda: model.invoke(ASK), lambda: model.stream(ASK))


def _chat_openai(url: str, key: str, gate: tidegate.Gate | None) -> Any:
    from langchain_openai import ChatOpenAI

    plug = {"http_client": gate.httpx_client(), "http_async_client": gate.httpx_async_client()} if gate else {}
    return ChatOpenAI(model="small", base_url=f"{url}/v1", api_key=key, **plug)


def openai_agents(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Give the provider a wrapped client."""
    from agents import Agent, OpenAIProvider, RunConfig, Runner
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    provider = OpenAIProvider(openai_client=gate.wrap(client) if gate else client)
    config = RunConfig(model_provider=provider, tracing_disabled=True)
    agent = Agent(name="harbour master", model="small")
    return Held(
        lambda: Runner.run(agent, ASK, run_config=config),
        lambda: Runner.run_streamed(agent, ASK, run_config=config).stream_events(),
    )


def pydantic_ai(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Give the provider a wrapped client."""
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    provider = OpenAIProvider(openai_client=gate.wrap(client) if gate else client)
    agent = Agent(OpenAIChatModel("small", provider=provider))

    async def parts() -> AsyncIterator[object]:
        async with agent.run_stream(ASK) as result:
            async for text in result.stream_text(debounce_by=None):
                yield text

    return Held(lambda: agent.run(ASK), parts)


def google_genai(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Give the options both http clients."""
    models = _genai(url, key, gate).aio.models
    return Held(
        lambda: models.generate_content(model="small", contents=ASK),
        flat(lambda: models.generate_content_stream(model="small", contents=ASK)),
    )


def google_genai_sync(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Give the options both http clients."""
    client = _genai(url, key, gate)
    return in_threads(
        lambda: client.models.generate_content(model="small", contents=ASK),
        lambda: client.models.generate_content_stream(model="small", contents=ASK),
    )


def _genai(url: str, key: str, gate: tidegate.Gate | None) -> Any:
    from google import genai
    from google.genai import types

    plug: dict[str, Any] = {}
    if gate:
        plug = {"httpx_client": gate.httpx_client(), "httpx_async_client": gate.httpx_async_client()}
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=url, **plug))


def litellm(url: str, key: str, gate: tidegate.Gate | None, **settings: Any) -> Held:
    """Set its sessions."""
    call = {**_litellm(url, key, gate), **settings}
    from litellm import acompletion

    return Held(lambda: acompletion(**call), flat(lambda: acompletion(**call, stream=True)))


def litellm_num_retries_3(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Set its sessions, and leave a loop of LiteLLM's own on, which is not as told."""
    return litellm(url, key, gate, num_retries=3)


def litellm_sync(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Set its sessions."""
    call = _litellm(url, key, gate)
    from litellm import completion

    return in_threads(lambda: completion(**call), lambda: Closable(completion(**call, stream=True)))


def _litellm(url: str, key: str, gate: tidegate.Gate | None) -> dict[str, Any]:
    import litellm as package

    package.client_session = gate.httpx_client(family="httpx") if gate else None
    package.aclient_session = gate.httpx_async_client(family="httpx") if gate else None
    return {"model": "openai/small", "api_base": f"{url}/v1", "api_key": key, "messages": CHAT}


def llama_index(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Give the model both http clients, and switch its outer loop off."""
    from llama_index.core.llms import ChatMessage

    model, messages = _llama_index(url, key, gate), [ChatMessage(content=ASK)]
    return Held(lambda: model.achat(messages), flat(lambda: model.astream_chat(messages)))


def llama_index_sync(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Give the model both http clients, and switch its outer loop off."""
    from llama_index.core.llms import ChatMessage

    model, messages = _llama_index(url, key, gate), [ChatMessage(content=ASK)]
    return in_threads(lambda: model.chat(messages), lambda: model.stream_chat(messages))


def llama_index_max_retries_3(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Give the model the http clients, and leave its outer loop on as it is by default, which is not as told."""
    from llama_index.core.llms import ChatMessage

    model, messages = _llama_index(url, key, gate, max_retries=3), [ChatMessage(content=ASK)]
    return Held(lambda: model.achat(messages), flat(lambda: model.astream_chat(messages)))


def _llama_index(url: str, key: str, gate: tidegate.Gate | None, **settings: Any) -> Any:
    from llama_index.llms.openai import OpenAI

    plug: dict[str, Any] = {}
    if gate:
        http, http_async = gate.httpx_client(family="httpx"), gate.httpx_async_client(family="httpx")
        plug = {"http_client": http, "async_http_client": http_async, "max_retries": 0}
    return OpenAI(model="gpt-4o-mini", api_base=f"{url}/v1", api_key=key, **(plug | settings))


def httpx(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Take the gate's own client."""
    import httpx as package

    return _plain(gate.httpx_async_client(family="httpx") if gate else package.AsyncClient(timeout=60), url, key)


def httpx2(url: str, key: str, gate: tidegate.Gate | None) -> Held:
    """Take the gate's own client."""
    import httpx2 as package

    return _plain(gate.httpx_async_client(family="httpx2") if gate else package.AsyncClient(timeout=60), url, key)


def _plain(client: Any, url: str, key: str) -> Held:
    headers = {"authorization": f"Bearer {key}"}
    at, body = f"{url}/v1/chat/completions", {"model": "small", "messages": CHAT}

    async def ask() -> object:
        return (await client.post(at, json=body, headers=headers)).raise_for_status()

    async def parts() -> AsyncIterator[object]:
        async with client.stream("POST", at, json={**body, "stream": True}, headers=headers) as response:
            async for line in response.raise_for_status().aiter_lines():
                yield line

    return Held(ask, parts)
