"""Helpers that send requests with synchronous and asynchronous clients of both httpx packages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tidegate
from httpx_packages import INSTALLED, module

of_each_family = pytest.mark.parametrize("name", INSTALLED)
by_each_transport = pytest.mark.parametrize("transport", ["native", "keep"])


async def sent(client: Any, method: str, url: str, **options: Any) -> Any:
    """Sends a request with a synchronous or asynchronous client, and closes the client.

    Returns the response.
    """
    request = client.build_request(method, url, **options)
    if hasattr(client, "aclose"):
        async with client:
            return await client.send(request)
    with client:
        return await asyncio.to_thread(client.send, request)


def clients(name: str, gate: tidegate.Gate, transport: Any) -> list[tuple[Any, Any]]:
    """Returns two pairs of clients of an httpx package: synchronous and asynchronous.

    In each pair, the first client is plain and the second sends through the gate. `transport` is
    the transport of the second one: `native` or `keep`.
    """
    family = module(name)
    return [
        (family.Client(trust_env=False), gate.httpx_client(family=name, transport=transport)),
        (family.AsyncClient(trust_env=False), gate.httpx_async_client(family=name, transport=transport)),
    ]
