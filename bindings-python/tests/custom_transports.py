"""Helpers for tests of clients that keep a custom transport."""

from __future__ import annotations

import asyncio
from typing import Any

import tidegate
from httpx_packages import module
from provider_payloads import MESSAGES
from upstream import WAIT

PATH = "/v1/chat/completions"
BODY = {"model": "small", "messages": MESSAGES}
STREAM = {**BODY, "stream": True}


class CountingTransports:
    """A synchronous and an asynchronous custom transport of the httpx package `name`.

    They send each request with the package's default transport. `requests` has their requests, and
    `closes` is how often they were closed.
    """

    def __init__(self, name: str) -> None:
        family = module(name)
        self.sync, self.asynchronous = family.HTTPTransport(), family.AsyncHTTPTransport()
        self.requests: list[Any] = []
        self.closes = 0
        counted = self

        class Sync(family.BaseTransport):  # type: ignore[misc, name-defined]
            def handle_request(self, request: Any) -> Any:
                counted.requests.append(request)
                return counted.sync.handle_request(request)

            def close(self) -> None:
                counted.closes += 1
                counted.sync.close()

        class Async(family.AsyncBaseTransport):  # type: ignore[misc, name-defined]
            async def handle_async_request(self, request: Any) -> Any:
                counted.requests.append(request)
                return await counted.asynchronous.handle_async_request(request)

            async def aclose(self) -> None:
                counted.closes += 1
                await counted.asynchronous.aclose()

        self.sync_transport, self.async_transport = Sync(), Async()


def in_flight(gate: tidegate.Gate) -> int:
    return sum(target["in_flight"] for target in gate.snapshot()["targets"].values())


async def until(condition: Any) -> None:
    """Waits, without blocking the event loop, until `condition()` is true."""

    async def holds() -> None:
        while not condition():
            await asyncio.sleep(0)

    await asyncio.wait_for(holds(), WAIT)
