"""Request bodies that are produced piece by piece."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator

import openai
import pytest

import tidegate
from families import NAMES
from upstream import WAIT, Exchange, Upstream, answer

PIECES = [b"%d" % n * 10_000 for n in range(10)]


def pieces() -> Iterator[bytes]:
    yield from PIECES


async def async_pieces() -> AsyncIterator[bytes]:
    for piece in PIECES:
        yield piece
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", NAMES)
async def test_async(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    http = gate.httpx_async_client(family=name)
    assert (await http.post(upstream.url, content=async_pieces())).status_code == 200
    assert upstream.exchanges[0].body == b"".join(PIECES)
    assert upstream.exchanges[0].headers["transfer-encoding"] == "chunked"


@pytest.mark.parametrize("name", NAMES)
def test_sync(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    http = gate.httpx_client(family=name)
    assert http.post(upstream.url, content=pieces()).status_code == 200
    assert upstream.exchanges[0].body == b"".join(PIECES)


@pytest.mark.parametrize("name", NAMES)
async def test_multipart_says_its_length(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    http = gate.httpx_async_client(family=name)
    await http.post(upstream.url, files={"file": ("a.txt", io.BytesIO(b"x" * 200_000))}, data={"k": "v"})
    assert int(upstream.exchanges[0].headers["content-length"]) == len(upstream.exchanges[0].body)
    assert b"x" * 200_000 in upstream.exchanges[0].body


def test_files_of_openai(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(
        {
            "id": "file-1",
            "object": "file",
            "bytes": 2,
            "created_at": 1,
            "filename": "a",
            "purpose": "batch",
            "status": "processed",
        }
    )
    sdk = gate.wrap(openai.OpenAI(base_url=upstream.url, api_key="k"))
    assert sdk.files.create(file=("a.jsonl", b"{}"), purpose="batch").id == "file-1"
    assert b"{}" in upstream.exchanges[0].body


async def idle(gate: tidegate.Gate) -> None:
    """Wait until nothing is under way: a worker drops what was given up."""
    while gate.snapshot()["active"]:
        await asyncio.sleep(0)


class Broken(Exception):
    pass


async def test_a_body_that_fails(upstream: Upstream, gate: tidegate.Gate) -> None:
    async def breaks() -> AsyncIterator[bytes]:
        yield b"some"
        raise Broken

    def breaks_too() -> Iterator[bytes]:
        yield b"some"
        raise Broken

    with pytest.raises(Broken):
        await gate.httpx_async_client().post(upstream.url, content=breaks())
    with pytest.raises(Broken):
        await asyncio.to_thread(gate.httpx_client().post, upstream.url, content=breaks_too())
    await idle(gate)
    assert upstream.exchanges == []


async def test_cancelled(upstream: Upstream, gate: tidegate.Gate) -> None:
    started, closed = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            yield b"some"
            started.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    task = asyncio.create_task(gate.httpx_async_client().post(upstream.url, content=endless()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(closed.wait(), WAIT)
    await idle(gate)


async def test_an_answer_before_the_body_is_read(upstream: Upstream, gate: tidegate.Gate) -> None:
    async def impatient(exchange: Exchange) -> None:
        await exchange.head(413, content_length="0", connection="close")
        exchange.writer.close()

    upstream.early = impatient

    async def long() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 65536

    response = await gate.httpx_async_client().post(upstream.url + "/early", content=long())
    assert response.status_code == 413
