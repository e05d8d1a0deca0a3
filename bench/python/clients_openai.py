"""Tested clients of the openai package, which is in every environment.

Each function returns a tested client. Without a gate, it is the stock client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openai import AsyncOpenAI, OpenAI

from client_interface import ASK, CHAT, Closable, Package, TestedClient, flat, in_threads

if TYPE_CHECKING:
    import tidegate


def openai(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns the asynchronous client of the Chat Completions API, wrapped if there is a gate."""
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    if gate:
        client = gate.wrap(client)
    create = client.chat.completions.create
    return TestedClient(
        lambda: create(model="small", messages=CHAT),
        flat(lambda: create(model="small", messages=CHAT, stream=True)),
    )


def openai_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns the synchronous client of the Chat Completions API, wrapped if there is a gate."""
    client = OpenAI(base_url=f"{url}/v1", api_key=key)
    if gate:
        client = gate.wrap(client)
    create = client.chat.completions.create
    return in_threads(
        lambda: create(model="small", messages=CHAT),
        lambda: Closable(create(model="small", messages=CHAT, stream=True)),
    )


def openai_responses(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns the asynchronous client of the Responses API, wrapped if there is a gate."""
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    if gate:
        client = gate.wrap(client)
    create = client.responses.create
    return TestedClient(
        lambda: create(model="small", input=ASK),
        flat(lambda: create(model="small", input=ASK, stream=True)),
    )


PACKAGES = [
    Package("openai", openai),
    Package("openai", openai_sync, "sync"),
    Package("openai", openai_responses, "Responses"),
]
