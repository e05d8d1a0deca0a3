"""Tests of connection headers and content lengths: what the server gets, and what is rejected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import tidegate
from custom_transports import in_flight, until
from httpx_clients import by_each_transport, clients, of_each_family, sent
from httpx_packages import module
from upstream import WAIT, Upstream

CONNECTION_HEADERS = {
    "connection": "X-Hop, keep-alive",
    "x-hop": "1",
    "keep-alive": "timeout=5",
    "proxy-connection": "keep-alive",
    "te": "gzip",
}


@of_each_family
async def test_connection_headers_are_not_sent(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    for _, client in clients(name, gate, "native"):
        await sent(client, "POST", upstream.url, headers={**CONNECTION_HEADERS, "x-own": "1"}, content=b"{}")
        headers = upstream.exchanges[-1].headers
        assert CONNECTION_HEADERS.keys() & headers.keys() == set()
        assert (headers["x-own"], headers["content-length"]) == ("1", "2")


@of_each_family
async def test_upgrades_and_unknown_transfer_codings_are_rejected(
    name: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    for headers in [{"upgrade": "websocket"}, {"transfer-encoding": "xchunked"}]:
        for _, client in clients(name, gate, "native"):
            with pytest.raises(module(name).LocalProtocolError, match=next(iter(headers))):
                await sent(client, "POST", upstream.url, headers=headers, content=b"{}")
    assert (upstream.exchanges, in_flight(gate)) == ([], 0)


LENGTHS = ["1", "3", "-2", "+2", "2.0", "0x2", "two", "", "2, 2"]


@by_each_transport
@of_each_family
async def test_wrong_content_length_is_rejected_before_a_slot_is_taken(
    name: str, transport: Any, upstream: Upstream
) -> None:
    gate = tidegate.Gate(targets={"llm": {"url": upstream.url, "cap": 1, "on_full": "refuse", "metrics": "off"}})
    wrong = [[("content-length", length)] for length in LENGTHS]
    wrong += [[("content-length", "2"), ("content-length", "2")], [("content-length", "2"), *TE]]
    async with gate.slot("llm"):
        for headers in wrong:
            for _, client in clients(name, gate, transport):
                with pytest.raises(module(name).LocalProtocolError, match="content-length"):
                    await sent(client, "POST", f"{upstream.url}/v1/chat/completions", headers=headers, content=b"{}")
    assert upstream.exchanges == []


TE = [("transfer-encoding", "chunked")]

# Larger than bodies that are read into memory before they are sent.
LARGE = 33 * 1024 * 1024


def produced(size: int) -> Callable[[], Iterator[bytes]]:
    def chunks() -> Iterator[bytes]:
        yield from [b"x" * 1024 * 1024] * (size // 1024 // 1024)
        yield b"x" * (size % (1024 * 1024))

    return chunks


def produced_async(size: int) -> Callable[[], AsyncIterator[bytes]]:
    async def chunks() -> AsyncIterator[bytes]:
        for chunk in produced(size)():
            yield chunk

    return chunks


@by_each_transport
@of_each_family
@pytest.mark.parametrize("size", [LARGE - 1, LARGE + 1, LARGE + 1024 * 1024, 0])
async def test_upload_of_another_length_fails_and_releases_its_slot(
    size: int, name: str, transport: Any, upstream: Upstream
) -> None:
    gate = tidegate.Gate(targets={"llm": {"url": upstream.url, "cap": 1, "metrics": "off"}})
    headers = {"content-length": str(LARGE)}
    (_, sync), (_, asynchronous) = clients(name, gate, transport)
    for client, body in [(sync, produced(size)()), (asynchronous, produced_async(size)())]:
        with pytest.raises(module(name).LocalProtocolError):
            await sent(client, "POST", f"{upstream.url}/v1/files", headers=headers, content=body)
        await until(lambda: in_flight(gate) == 0 and gate.snapshot()["active"] == 0)
    assert upstream.exchanges == []


@by_each_transport
@of_each_family
async def test_upload_of_the_declared_length_is_sent(name: str, transport: Any, upstream: Upstream) -> None:
    gate = tidegate.Gate()
    (_, sync), (_, asynchronous) = clients(name, gate, transport)
    for client, body in [(sync, produced(LARGE)()), (asynchronous, produced_async(LARGE)())]:
        headers = {"content-length": str(LARGE)}
        assert (await sent(client, "POST", f"{upstream.url}/v1/files", headers=headers, content=body)).is_success
        assert len(upstream.exchanges[-1].body) == LARGE


@of_each_family
async def test_rejected_upload_ends_its_body(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            yield b"some"
            await asyncio.Event().wait()
        finally:
            closed.set()

    (_, (_, client)) = clients(name, gate, "native")
    headers = {"content-length": "many"}
    with pytest.raises(module(name).LocalProtocolError):
        await sent(client, "POST", upstream.url, headers=headers, content=endless())
    await asyncio.wait_for(closed.wait(), WAIT)
