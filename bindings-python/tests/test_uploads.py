"""Tests of streamed request bodies."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from types import SimpleNamespace

import openai
import pytest

import tidegate
from httpx_clients import by_each_transport
from httpx_packages import INSTALLED, module
from upstream import WAIT, Exchange, Upstream, answer

PIECES = [b"%d" % n * 10_000 for n in range(10)]


def pieces() -> Iterator[bytes]:
    yield from PIECES


async def async_pieces() -> AsyncIterator[bytes]:
    for piece in PIECES:
        yield piece
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", INSTALLED)
async def test_async_upload_is_sent(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    http = gate.httpx_async_client(family=name)
    assert (await http.post(upstream.url, content=async_pieces())).status_code == 200
    assert upstream.exchanges[0].body == b"".join(PIECES)
    assert upstream.exchanges[0].headers["transfer-encoding"] == "chunked"


@pytest.mark.parametrize("name", INSTALLED)
def test_sync_upload_is_sent(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    http = gate.httpx_client(family=name)
    assert http.post(upstream.url, content=pieces()).status_code == 200
    assert upstream.exchanges[0].body == b"".join(PIECES)


@pytest.mark.parametrize("name", INSTALLED)
async def test_chunks_may_be_any_buffers(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    chunks = [bytearray(b"ab"), memoryview(b"cd"), b"ef"]

    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk  # type: ignore[misc]

    assert (await gate.httpx_async_client(family=name).post(upstream.url, content=stream())).status_code == 200
    iterator = (chunk for chunk in chunks)
    http = gate.httpx_client(family=name)
    await asyncio.to_thread(http.post, upstream.url, content=iterator)
    assert [exchange.body for exchange in upstream.exchanges] == [b"abcdef"] * 2


@pytest.mark.parametrize("name", INSTALLED)
async def test_multipart_has_a_content_length(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    http = gate.httpx_async_client(family=name)
    await http.post(upstream.url, files={"file": ("a.txt", io.BytesIO(b"x" * 200_000))}, data={"k": "v"})
    assert int(upstream.exchanges[0].headers["content-length"]) == len(upstream.exchanges[0].body)
    assert b"x" * 200_000 in upstream.exchanges[0].body


class Busy:
    """A handler that answers 429 to the first request, and a transcription to the later ones."""

    def __init__(self) -> None:
        self.status = 429

    async def __call__(self, exchange: Exchange) -> None:
        status, self.status = self.status, 200
        await answer({"text": "hi"}, status=status)(exchange)


def speech_gate(upstream: Upstream) -> tidegate.Gate:
    """Returns a gate whose only target takes requests for the transcription model, with a cap of 1.

    Also sets the upstream's handler to `Busy`, which answers the first request with 429.
    """
    upstream.handler = Busy()
    retry = {"attempts": 2, "base": "1ms", "max": "1ms"}
    return tidegate.Gate(targets={"speech": {"models": ["whisper*"], "cap": 1, "retry": retry}})


def assert_repeated(upstream: Upstream, gate: tidegate.Gate) -> None:
    first, second = upstream.exchanges
    assert AUDIO in first.body
    assert first.body == second.body
    targets = gate.snapshot()["targets"]
    assert {name: target["attempts"] for name, target in targets.items()} == {"speech": 2}


AUDIO = b"\0\r\n" * 50_000


async def test_form_counts_for_its_model(upstream: Upstream) -> None:
    gate = speech_gate(upstream)
    sdk = gate.wrap(openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="k"))
    file = ("a.wav", io.BytesIO(AUDIO))
    assert (await sdk.audio.transcriptions.create(model="whisper-1", file=file)).text == "hi"
    assert_repeated(upstream, gate)


def test_sync_form_counts_for_its_model(upstream: Upstream) -> None:
    gate = speech_gate(upstream)
    sdk = gate.wrap(openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k"))
    file = ("a.wav", io.BytesIO(AUDIO))
    assert sdk.audio.transcriptions.create(model="whisper-1", file=file).text == "hi"
    assert_repeated(upstream, gate)


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize(("extra", "requests"), [(0, 2), (1, 1)])
async def test_large_body_is_sent_once(name: str, extra: int, requests: int, upstream: Upstream) -> None:
    http = speech_gate(upstream).httpx_async_client(family=name)
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(32):
            sent += 1
            yield b"x" * 1024 * 1024
        yield b"x" * extra

    headers = {"content-length": str(32 * 1024 * 1024 + extra)}
    url = f"{upstream.url}/v1/audio/transcriptions"
    response = await http.post(url, content=chunks(), headers=headers)
    assert response.status_code == (200 if requests == 2 else 429)
    assert (sent, len(upstream.exchanges)) == (32, requests)
    assert all(len(exchange.body) == 32 * 1024 * 1024 + extra for exchange in upstream.exchanges)


def test_openai_files_are_uploaded(upstream: Upstream, gate: tidegate.Gate) -> None:
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
    """Waits until the gate has no active call.

    A native thread drops cancelled calls with a delay.
    """
    while gate.snapshot()["active"]:
        await asyncio.sleep(0)


class Broken(Exception):
    pass


async def test_failure_of_the_body_is_raised(upstream: Upstream, gate: tidegate.Gate) -> None:
    async def breaks() -> AsyncIterator[bytes]:
        yield b"some"
        raise Broken

    def failing_chunks() -> Iterator[bytes]:
        yield b"some"
        raise Broken

    with pytest.raises(Broken):
        await gate.httpx_async_client().post(upstream.url, content=breaks())
    with pytest.raises(Broken):
        await asyncio.to_thread(gate.httpx_client().post, upstream.url, content=failing_chunks())
    await idle(gate)
    assert upstream.exchanges == []


@pytest.mark.parametrize("name", INSTALLED)
async def test_failure_of_the_body_after_the_response_ends_the_request(
    name: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    answered = asyncio.Event()
    early: list[Exchange] = []

    async def answer_early(exchange: Exchange) -> None:
        early.append(exchange)
        await exchange.head(transfer_encoding="chunked", connection="close")
        await exchange.chunk(b"part")
        await exchange.gone()

    upstream.early = answer_early

    async def breaks() -> AsyncIterator[bytes]:
        yield b"some"
        await answered.wait()
        raise Broken

    http = gate.httpx_async_client(family=name)
    async with http, http.stream("POST", upstream.url + "/early", content=breaks()) as response:
        answered.set()
        with pytest.raises(module(name).LocalProtocolError, match="abandoned"):
            await asyncio.wait_for(response.aread(), WAIT)
        assert await asyncio.to_thread(early[0].closed.wait, WAIT)
    await idle(gate)


class Endless:
    """A request body that waits after its first chunk.

    When it is cancelled, it ends after `release`, or when it is cancelled again.
    """

    def __init__(self) -> None:
        self.started, self.ending, self.release, self.closed = (asyncio.Event() for _ in range(4))

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"some"
            self.started.set()
            await asyncio.Event().wait()
        finally:
            self.ending.set()
            try:
                await self.release.wait()
            finally:
                self.closed.set()


@by_each_transport
@pytest.mark.parametrize("cancellations", [1, 2])
async def test_cancelled_upload_has_ended_and_releases_its_slot(
    cancellations: int, transport: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    body = Endless()

    async def send() -> None:
        # A generator that still runs cannot be closed.
        async with gate.httpx_async_client(transport=transport) as http, aclosing(body.chunks()) as chunks:
            await http.post(upstream.url, content=chunks)

    task = asyncio.create_task(send())
    await body.started.wait()
    for _ in range(cancellations):
        task.cancel()
        await body.ending.wait()
        await asyncio.sleep(0)
    if cancellations == 1:
        body.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert body.closed.is_set()
    await idle(gate)


async def test_closed_response_has_ended_the_upload(upstream: Upstream, gate: tidegate.Gate) -> None:
    async def answer_early(exchange: Exchange) -> None:
        await exchange.head(transfer_encoding="chunked", connection="close")
        await exchange.gone()

    upstream.early = answer_early
    body = Endless()
    body.release.set()
    async with (
        gate.httpx_async_client() as http,
        http.stream("POST", upstream.url + "/early", content=body.chunks()),
    ):
        await body.started.wait()
    assert body.closed.is_set()
    await idle(gate)


async def test_call_that_cannot_start_does_not_read_its_body(upstream: Upstream, gate: tidegate.Gate) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    async with gate.httpx_async_client() as http:
        http._transport._gate = SimpleNamespace(send=fail)
        with pytest.raises(MemoryError):
            await http.post(upstream.url, content=async_pieces())
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_response_before_the_end_of_the_body_is_returned(upstream: Upstream, gate: tidegate.Gate) -> None:
    answered = upstream.event()

    async def answer_early(exchange: Exchange) -> None:
        await exchange.head(413, content_length="0", connection="close")
        # Closing with unread bytes resets the connection, which may discard the response.
        await answered.wait()

    upstream.early = answer_early

    async def long() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 65536

    response = await gate.httpx_async_client().post(upstream.url + "/early", content=long())
    upstream.call(answered.set)
    assert response.status_code == 413


# More than the buffers of a connection, so that a part is unsent when the response arrives.
LONG = [b"x" * 65536] * 512


async def async_long() -> AsyncIterator[bytes]:
    for piece in LONG:
        yield piece


@pytest.mark.parametrize("name", INSTALLED)
async def test_rest_of_the_body_is_sent_while_the_response_is_read(
    name: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    answered = upstream.event()

    async def answer_early(exchange: Exchange) -> None:
        await exchange.head(transfer_encoding="chunked", connection="close")
        await answered.wait()
        length = 0
        while size := int(await exchange.reader.readuntil(b"\r\n"), 16):
            length += len(await exchange.reader.readexactly(size + 2)) - 2
        await exchange.chunk(b"%d" % length)
        await exchange.chunk(b"")

    upstream.early = answer_early

    def send() -> bytes:
        http = gate.httpx_client(family=name)
        with http, http.stream("POST", upstream.url + "/early", content=iter(LONG)) as response:
            upstream.call(answered.set)
            return bytes(response.read())

    http = gate.httpx_async_client(family=name)
    async with http, http.stream("POST", upstream.url + "/early", content=async_long()) as response:
        upstream.call(answered.set)
        length = await response.aread()
    upstream.call(answered.clear)
    assert length == b"%d" % (512 * 65536)
    assert await asyncio.wait_for(asyncio.to_thread(send), WAIT) == length


@pytest.mark.parametrize("name", INSTALLED)
async def test_failure_of_the_rest_of_a_sync_body_is_raised(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    early: list[Exchange] = []

    async def answer_early(exchange: Exchange) -> None:
        early.append(exchange)
        await exchange.head(transfer_encoding="chunked", connection="close")
        await exchange.gone()

    upstream.early = answer_early

    def failing_chunks() -> Iterator[bytes]:
        yield from LONG
        raise Broken

    def send() -> None:
        http = gate.httpx_client(family=name)
        with http, http.stream("POST", upstream.url + "/early", content=failing_chunks()) as response:
            response.read()

    with pytest.raises(Broken):
        await asyncio.wait_for(asyncio.to_thread(send), WAIT)
    assert await asyncio.to_thread(early[0].closed.wait, WAIT)
    await idle(gate)
