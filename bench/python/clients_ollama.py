"""Tested clients of ollama's package, which uses the legacy httpx.

Each function returns the tested client of one package. Without a gate, it is the stock client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ollama as ollama_package

from client_interface import CHAT, Closable, Package, TestedClient, flat, in_threads

if TYPE_CHECKING:
    import tidegate


def ollama(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns ollama's asynchronous client, with a gate on the gate's transport."""
    plug = {} if gate is None else {"transport": gate.httpx_async_transport(family="httpx")}
    client = ollama_package.AsyncClient(url, headers={"authorization": f"Bearer {key}"}, **plug)
    call: dict[str, Any] = {"model": "small", "messages": CHAT}
    return TestedClient(lambda: client.chat(**call), flat(lambda: client.chat(**call, stream=True)))


def ollama_sync(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns ollama's synchronous client, with a gate on the gate's transport."""
    plug = {} if gate is None else {"transport": gate.httpx_transport(family="httpx")}
    client = ollama_package.Client(url, headers={"authorization": f"Bearer {key}"}, **plug)
    call: dict[str, Any] = {"model": "small", "messages": CHAT}
    return in_threads(lambda: client.chat(**call), lambda: Closable(client.chat(**call, stream=True)))


PACKAGES = [
    Package("ollama", ollama),
    Package("ollama", ollama_sync, "sync"),
]
