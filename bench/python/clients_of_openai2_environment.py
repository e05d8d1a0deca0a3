"""Tested clients of the packages that need openai 2.x and the legacy httpx.

Each function returns the tested client of one package. Without a gate, it is the stock client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import litellm as lite
import openai
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAI

import clients_openai
from client_interface import ASK, CHAT, Closable, Package, TestedClient, flat, in_threads

if TYPE_CHECKING:
    import tidegate


def litellm(url: str, key: str, gate: tidegate.Gate | None, **settings: Any) -> TestedClient:
    """Returns a client of LiteLLM's asynchronous functions, which get the given `settings`.

    With a gate, LiteLLM's global HTTP clients are replaced by the gate's httpx clients.
    """
    call = {**_litellm(url, key, gate), **settings}
    return TestedClient(lambda: lite.acompletion(**call), flat(lambda: lite.acompletion(**call, stream=True)))


def litellm_num_retries_3(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns the client of `litellm` with three retries by LiteLLM itself.

    The examples advise against such retries, because they repeat the gate's attempts.
    """
    return litellm(url, key, gate, num_retries=3)


def litellm_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client of LiteLLM's synchronous functions.

    With a gate, LiteLLM's global HTTP clients are replaced by the gate's httpx clients.
    """
    call = _litellm(url, key, gate)
    return in_threads(lambda: lite.completion(**call), lambda: Closable(lite.completion(**call, stream=True)))


def _litellm(url: str, key: str, gate: tidegate.Gate | None) -> dict[str, Any]:
    lite.client_session = gate.httpx_client(family="httpx") if gate else None
    lite.aclient_session = gate.httpx_async_client(family="httpx") if gate else None
    return {"model": "openai/small", "api_base": f"{url}/v1", "api_key": key, "messages": CHAT}


def llama_index(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns an asynchronous client of LlamaIndex's `OpenAI` model.

    With a gate, the model gets wrapped openai clients, and its own retries are switched off.
    """
    model, messages = _llama_index(url, key, gate), [ChatMessage(content=ASK)]
    return TestedClient(lambda: model.achat(messages), flat(lambda: model.astream_chat(messages)))


def llama_index_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a synchronous client of LlamaIndex's `OpenAI` model.

    With a gate, the model gets wrapped openai clients, and its own retries are switched off.
    """
    model, messages = _llama_index(url, key, gate), [ChatMessage(content=ASK)]
    return in_threads(lambda: model.chat(messages), lambda: model.stream_chat(messages))


def llama_index_max_retries_3(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns the client of `llama_index` with three retries by LlamaIndex itself.

    The examples advise against such retries, because they repeat the gate's attempts.
    """
    model, messages = _llama_index(url, key, gate, max_retries=3), [ChatMessage(content=ASK)]
    return TestedClient(lambda: model.achat(messages), flat(lambda: model.astream_chat(messages)))


def _llama_index(url: str, key: str, gate: tidegate.Gate | None, **settings: Any) -> Any:
    plug: dict[str, Any] = {}
    if gate:
        at = {"base_url": f"{url}/v1", "api_key": key}
        clients = {"openai_client": openai.OpenAI(**at), "async_openai_client": openai.AsyncOpenAI(**at)}
        plug = {"max_retries": 0} | {name: gate.wrap(client) for name, client in clients.items()}
    return OpenAI(model="gpt-4o-mini", api_base=f"{url}/v1", api_key=key, **(plug | settings))


PACKAGES = [
    *clients_openai.PACKAGES,
    Package("litellm", litellm),
    Package("litellm", litellm_sync, "sync"),
    Package("llama-index-llms-openai", llama_index),
    Package("llama-index-llms-openai", llama_index_sync, "sync"),
    Package("litellm", litellm_num_retries_3, "num_retries=3 left on", loops=True),
    Package("llama-index-llms-openai", llama_index_max_retries_3, "max_retries=3 left on", loops=True),
]
