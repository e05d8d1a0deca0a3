"""Tested clients of the packages of the environment of `make test-frameworks`, with openai 3.x.

Each function returns the tested client of one package. Without a gate, it is the stock client.
"""

from __future__ import annotations

import asyncio
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

os.environ |= {"HAYSTACK_TELEMETRY_ENABLED": "False", "MEM0_TELEMETRY": "False"}

import huggingface_hub
from ag2 import Agent, MemoryStream
from ag2.config import OpenAIConfig
from ag2.events import ModelMessageChunk
from groq import AsyncGroq, Groq
from guidance import assistant, gen, user
from guidance import guidance as conversation
from guidance.models import OpenAI as GuidanceModel
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.utils import _http as huggingface_http
from mem0.llms.openai import OpenAILLM
from mistralai.client import Mistral
from openai import AsyncOpenAI, OpenAI
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory
from smolagents import OpenAIModel
from together import AsyncTogether, Together

from client_interface import ASK, CHAT, Closable, Package, TestedClient, flat, in_threads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import tidegate


def groq(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns an asynchronous client of Groq, wrapped if there is a gate."""
    return _completions(AsyncGroq(base_url=url, api_key=key), gate)


def groq_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a synchronous client of Groq, wrapped if there is a gate."""
    return _completions_sync(Groq(base_url=url, api_key=key), gate)


def together(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns an asynchronous client of Together, wrapped if there is a gate."""
    return _completions(AsyncTogether(base_url=url, api_key=key), gate)


def together_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a synchronous client of Together, wrapped if there is a gate."""
    return _completions_sync(Together(base_url=url, api_key=key), gate)


def _completions(client: Any, gate: tidegate.Gate | None) -> TestedClient:
    create = (gate.wrap(client) if gate else client).chat.completions.create
    return TestedClient(
        lambda: create(model="small", messages=CHAT),
        flat(lambda: create(model="small", messages=CHAT, stream=True)),
    )


def _completions_sync(client: Any, gate: tidegate.Gate | None) -> TestedClient:
    create = (gate.wrap(client) if gate else client).chat.completions.create
    return in_threads(
        lambda: create(model="small", messages=CHAT),
        lambda: Closable(create(model="small", messages=CHAT, stream=True)),
    )


def mistralai(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns an asynchronous client of Mistral, with the gate's httpx clients if there is a gate."""
    chat = _mistral(url, key, gate).chat
    return TestedClient(
        lambda: chat.complete_async(model="small", messages=CHAT),
        flat(lambda: chat.stream_async(model="small", messages=CHAT)),
    )


def mistralai_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a synchronous client of Mistral, with the gate's httpx clients if there is a gate."""
    chat = _mistral(url, key, gate).chat
    return in_threads(
        lambda: chat.complete(model="small", messages=CHAT),
        lambda: Closable(chat.stream(model="small", messages=CHAT)),
    )


def _mistral(url: str, key: str, gate: tidegate.Gate | None) -> Any:
    plug: Any = {"client": gate.httpx_client(), "async_client": gate.httpx_async_client()} if gate else {}
    return Mistral(server_url=url, api_key=key, **plug)


def huggingface_hub_async(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns Hugging Face's `AsyncInferenceClient`.

    With a gate, the library's global factory returns the gate's httpx client.
    """
    _set_factories(gate)
    at = {"base_url": f"{url}/v1", "api_key": key}

    async def ask() -> object:
        async with AsyncInferenceClient(**at) as client:
            return await client.chat_completion(CHAT, model="small")

    async def parts() -> AsyncIterator[object]:
        async with AsyncInferenceClient(**at) as client:
            async for part in await client.chat_completion(CHAT, model="small", stream=True):
                yield part

    return TestedClient(ask, parts)


def huggingface_hub_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns Hugging Face's `InferenceClient`.

    With a gate, the library's global factory returns the gate's httpx client.
    """
    _set_factories(gate)
    at = {"base_url": f"{url}/v1", "api_key": key}

    def parts() -> Iterator[object]:
        with InferenceClient(**at) as client:
            yield from client.chat_completion(CHAT, model="small", stream=True)

    return in_threads(lambda: InferenceClient(**at).chat_completion(CHAT, model="small"), parts)


# Once for each gate, because it closes the global client, which may be in use.
@lru_cache(maxsize=1)
def _set_factories(gate: tidegate.Gate | None) -> None:
    clients: list[Callable[[], Any]] = [huggingface_http.default_client_factory]
    clients.append(huggingface_http.default_async_client_factory)
    if gate:
        clients = [lambda: gate.httpx_client(family="httpx"), lambda: gate.httpx_async_client(family="httpx")]
    huggingface_hub.set_client_factory(clients[0])
    huggingface_hub.set_async_client_factory(clients[1])


def semantic_kernel(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client of Semantic Kernel, whose service has a wrapped openai client if there is a gate."""
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    service = OpenAIChatCompletion("small", async_client=gate.wrap(client) if gate else client)
    settings, chat = OpenAIChatPromptExecutionSettings(), ChatHistory()
    chat.add_user_message(ASK)
    return TestedClient(
        lambda: service.get_chat_message_content(chat, settings),
        lambda: service.get_streaming_chat_message_content(chat, settings),
    )


def haystack(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns an asynchronous client of Haystack, whose generator has wrapped clients if there is a gate."""
    generator, messages = _haystack(url, key, gate), [ChatMessage.from_user(ASK)]
    return TestedClient(
        lambda: generator.run_async(messages),
        _pushed(lambda push: generator.run_async(messages, streaming_callback=push)),
    )


def _haystack(url: str, key: str, gate: tidegate.Gate | None) -> Any:
    generator = OpenAIChatGenerator(api_key=Secret.from_token(key), model="small", api_base_url=f"{url}/v1")
    if gate:
        at = {"base_url": f"{url}/v1", "api_key": key}
        generator.client, generator.async_client = gate.wrap(OpenAI(**at)), gate.wrap(AsyncOpenAI(**at))
    return generator


def haystack_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a synchronous client of Haystack, whose generator has wrapped clients if there is a gate.

    It opens no streams, because Haystack passes their parts to a function.
    """
    generator, messages = _haystack(url, key, gate), [ChatMessage.from_user(ASK)]
    return in_threads(lambda: generator.run(messages))


def smolagents(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client of smolagents.

    With a gate, the model gets a wrapped openai client, and its own retries are switched off.
    """
    at = {"base_url": f"{url}/v1", "api_key": key}
    plug = {"client": gate.wrap(OpenAI(**at)), "retry": False} if gate else {}
    model = OpenAIModel("small", f"{url}/v1", key, **plug)
    return in_threads(lambda: model(CHAT), lambda: model.generate_stream(CHAT))


def ag2(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client of AG2, whose configuration has the gate's httpx client if there is a gate."""
    config = OpenAIConfig("small", api_key=key, base_url=f"{url}/v1")
    if gate:
        config = config.copy(http_client=gate.httpx_async_client())
    agent, streaming = Agent("pilot", config=config), Agent("pilot", config=config.copy(streaming=True))

    async def ask(push: Callable[[object], Awaitable[None]]) -> object:
        stream = MemoryStream()
        stream.where(ModelMessageChunk).subscribe(push)
        return await streaming.ask(ASK, stream=stream)

    return TestedClient(lambda: agent.ask(ASK), _pushed(ask))


def guidance(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client of Guidance, whose model has the gate's httpx client if there is a gate.

    It opens no streams: Guidance reads them in a thread, which cannot be stopped.
    """
    plug = {"http_client": gate.httpx_client()} if gate else {}
    model = GuidanceModel("small", echo=False, api_key=key, base_url=f"{url}/v1", **plug)

    @conversation
    def asked(model: Any) -> Any:
        with user():
            model += ASK
        with assistant():
            return model + gen("answer")

    return in_threads(lambda: model + asked())


def mem0ai(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns the model of a mem0 memory, whose client is wrapped if there is a gate."""
    model = OpenAILLM({"model": "small", "api_key": key, "openai_base_url": f"{url}/v1"})
    if gate:
        model.client = gate.wrap(model.client)
    return in_threads(lambda: model.generate_response(CHAT))


def _pushed(run: Callable[[Callable[[object], Awaitable[None]]], Awaitable[object]]) -> Callable[[], Any]:
    """Returns a function that yields the parts which `run` passes to the given function."""

    async def parts() -> AsyncIterator[object]:
        queue: asyncio.Queue[object] = asyncio.Queue()
        end = object()

        async def push(part: object) -> None:
            await queue.put(part)

        running = asyncio.ensure_future(run(push))
        running.add_done_callback(lambda _: queue.put_nowait(end))
        try:
            while (part := await queue.get()) is not end:
                yield part
            await running
        finally:
            running.cancel()

    return parts


PACKAGES = [
    # First, because its stock retries sleep for minutes after they have been given up.
    Package("smolagents", smolagents),
    Package("groq", groq),
    Package("groq", groq_sync, "sync"),
    Package("together", together),
    Package("together", together_sync, "sync"),
    Package("mistralai", mistralai),
    Package("mistralai", mistralai_sync, "sync"),
    Package("huggingface_hub", huggingface_hub_async),
    Package("huggingface_hub", huggingface_hub_sync, "sync"),
    Package("semantic-kernel", semantic_kernel),
    Package("haystack-ai", haystack),
    Package("haystack-ai", haystack_sync, "sync"),
    Package("ag2", ag2),
    Package("guidance", guidance),
    Package("mem0ai", mem0ai),
]
