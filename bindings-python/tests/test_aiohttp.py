"""Tests of `Gate.aiohttp_middleware` and `Gate.aiohttp_session`."""

from __future__ import annotations

import asyncio
import gc
import gzip
import io
import json
import socket
import ssl
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

import tidegate
from certificate_authority import Authority
from custom_transports import BODY, PATH, STREAM, in_flight, until
from provider_payloads import CHAT, CHAT_STREAM
from proxies import environment
from tidegate._adapters import aiohttp_middleware
from tidegate.testing import FakeTarget, run, stream
from upstream import WAIT, Exchange, Upstream, answer, event, events, hang_up, never, stall_after, truncate

QUICK = {"retry": {"base": "1ms", "max": "1ms"}}


@pytest.fixture
def gate() -> tidegate.Gate:
    """Returns a gate whose retries follow within milliseconds."""
    return tidegate.Gate(defaults=QUICK)


def in_turn(*handlers: Any) -> Any:
    """Returns a handler that answers each request with the next handler."""
    left = list(handlers)

    async def handler(exchange: Exchange) -> None:
        await left.pop(0)(exchange)

    return handler


async def closed(exchange: Exchange) -> None:
    """Waits until the client has closed the connection of the exchange."""
    assert await asyncio.to_thread(exchange.closed.wait, WAIT)


async def test_a_call_is_retried_by_the_gate(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = in_turn(answer({"error": {}}, status=429, retry_after="0"), answer(CHAT, x_a="1"))
    async with gate.aiohttp_session() as http, http.post(upstream.url + PATH, json=BODY) as response:
        assert (response.status, response.reason, await response.json()) == (200, "Scripted", CHAT)
        assert (response.headers["X-A"], str(response.url)) == ("1", upstream.url + PATH)
    assert [exchange.json() for exchange in upstream.exchanges] == [BODY, BODY]
    (target,) = gate.snapshot()["targets"].values()
    assert (target["attempts"], target["in_flight"]) == (2, 0)


async def test_error_of_a_call_that_cannot_start_is_raised_without_a_cause(gate: tidegate.Gate) -> None:
    error = tidegate.ConfigError("the file of replicas is gone", kind="config")

    def fail(*_: object) -> None:
        raise error

    middleware = gate.aiohttp_middleware()
    middleware._gate = SimpleNamespace(can_bypass=False, send_custom=fail)
    async with aiohttp.ClientSession(middlewares=[middleware]) as http:
        with pytest.raises(tidegate.ConfigError) as raised:
            await http.get("http://127.0.0.1")
    assert raised.value is error
    assert error.__cause__ is None


async def test_failing_calls_have_four_attempts(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer({"error": {}}, status=500)
    async with gate.aiohttp_session() as http:
        async with http.post(upstream.url + PATH, json=BODY) as response:
            assert response.status == 500
            assert len(upstream.exchanges) == 4
        with pytest.raises(aiohttp.ClientResponseError):
            await http.post(upstream.url + PATH, json=BODY, raise_for_status=True)
        upstream.exchanges.clear()
        upstream.handler = hang_up
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await http.post(upstream.url + PATH, json=BODY)
    assert in_flight(gate) == 0


def test_earlier_refusals_do_not_repeat_a_request_that_was_sent(gate: tidegate.Gate) -> None:
    attempts = 0

    async def disconnect(*_: Any) -> Any:
        nonlocal attempts
        attempts += 1
        raise aiohttp.ServerDisconnectedError

    async def post() -> None:
        async with aiohttp.ClientSession(middlewares=(gate.aiohttp_middleware(), disconnect)) as http:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await http.post("http://127.0.0.1:1/unknown", json={})

    try:
        socket.create_connection(("127.0.0.1", 1))
    except ConnectionRefusedError:
        # Python adds the refusal to the context of this failure.
        asyncio.run(post())
    assert attempts == 1


def held_after_the_first_event(more: asyncio.Event) -> Any:
    """Returns a handler that streams `CHAT_STREAM`, and waits for `more` after the first event."""

    async def handler(exchange: Exchange) -> None:
        await exchange.head(content_type="text/event-stream", transfer_encoding="chunked")
        await exchange.chunk(event(CHAT_STREAM[0]))
        await more.wait()
        for line in CHAT_STREAM[1:]:
            await exchange.chunk(event(line))
        await exchange.chunk(b"")

    return handler


async def test_streams_arrive_as_they_are_sent(upstream: Upstream, gate: tidegate.Gate) -> None:
    more = upstream.event()
    upstream.handler = held_after_the_first_event(more)
    async with gate.aiohttp_session() as http, http.post(upstream.url + PATH, json=STREAM) as response:
        line = await response.content.readline()
        assert json.loads(line.removeprefix(b"data: ")) == CHAT_STREAM[0]
        assert in_flight(gate) == 1
        # A cancelled read loses nothing.
        read = asyncio.ensure_future(response.content.readexactly(1000))
        await asyncio.sleep(0)
        read.cancel()
        upstream.call(more.set)
        assert b"data: [DONE]\n" in [line async for line in response.content]
        assert in_flight(gate) == 0
    (call,) = gate.calls()
    assert (call["outcome"], call["attempts"][0]["first_token_at"] is not None) == ("completed", True)


async def test_only_one_coroutine_reads_a_body(upstream: Upstream, gate: tidegate.Gate) -> None:
    more = upstream.event()
    upstream.handler = held_after_the_first_event(more)
    async with gate.aiohttp_session() as http, http.post(upstream.url + PATH, json=STREAM) as response:
        assert await response.content.readany() == event(CHAT_STREAM[0])
        reads = [asyncio.ensure_future(response.content.readany()) for _ in range(2)]
        await asyncio.sleep(0)
        upstream.call(more.set)
        first, second = await asyncio.gather(*reads, return_exceptions=True)
        assert isinstance(first, bytes)
        assert isinstance(second, RuntimeError)
        assert first + await response.read() == b"".join(map(event, CHAT_STREAM[1:]))


@pytest.mark.parametrize("way", ["close", "release", "leave", "drop"])
async def test_leaving_a_stream_releases_the_slot_and_the_connection(
    way: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    async with gate.aiohttp_session() as http:
        response = await http.post(upstream.url + PATH, json=STREAM)
        assert await response.content.readany() == event(CHAT_STREAM[0])
        assert in_flight(gate) == 1
        if way == "leave":
            async with response:
                pass
        elif way != "drop":
            getattr(response, way)()
        del response
        gc.collect()
        await until(lambda: in_flight(gate) == 0)
        await closed(upstream.wait_for(1))


@pytest.mark.parametrize("where", ["head", "body"])
async def test_cancelled_calls_release_the_slot_and_the_connection(
    where: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    upstream.handler = never if where == "head" else stall_after(CHAT_STREAM[0])
    began = asyncio.Event()
    async with gate.aiohttp_session() as http:

        async def read() -> None:
            async with http.post(upstream.url + PATH, json=STREAM) as response:
                await response.content.readany()
                began.set()
                await response.read()

        task = asyncio.create_task(read())
        exchange = await asyncio.to_thread(upstream.wait_for, 1)
        if where == "body":
            await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: in_flight(gate) == 0)
        await closed(exchange)


async def read_whole(http: aiohttp.ClientSession, url: str) -> bytes:
    async with http.post(url + PATH, json=STREAM) as response:
        return await response.read()


async def test_truncated_bodies_are_errors(upstream: Upstream, gate: tidegate.Gate) -> None:
    async with gate.aiohttp_session() as http:
        # In the first case the framing is broken, in the second the provider ended the stream early.
        for handler in (truncate(b'{"a": ', 100), events(*CHAT_STREAM[:1])):
            upstream.handler = handler
            with pytest.raises(aiohttp.ClientPayloadError):
                await read_whole(http, upstream.url)
    assert in_flight(gate) == 0


async def test_rejected_calls_are_responses(upstream: Upstream) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    gate = tidegate.Gate(defaults={"cap": 1, "on_full": "refuse"})
    async with (
        gate.aiohttp_session() as http,
        http.post(upstream.url + PATH, json=STREAM),
        http.post(upstream.url + PATH, json=BODY) as refused,
    ):
        assert (refused.status, refused.reason) == (429, "Too Many Requests")
        assert (await refused.json())["error"]["code"] == "no_slot"
    assert len(upstream.exchanges) == 1


@pytest.mark.parametrize(("mode", "attempts"), [("observe", 1), ("off", 0)])
async def test_other_modes_do_not_retry(upstream: Upstream, mode: Any, attempts: int) -> None:
    upstream.handler = answer({"error": {}}, status=429, retry_after="0")
    gate = tidegate.Gate(mode=mode)
    async with gate.aiohttp_session() as http, http.post(upstream.url + PATH, json=BODY) as response:
        assert response.status == 429
    assert len(upstream.exchanges) == 1
    assert sum(target["attempts"] for target in gate.snapshot()["targets"].values()) == attempts


async def test_timeouts_of_aiohttp_apply(upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"retry": {"attempts": 1}})
    async with gate.aiohttp_session() as http:
        for timeout in (aiohttp.ClientTimeout(total=0.05), aiohttp.ClientTimeout(sock_read=0.05)):
            for handler in (never, stall_after(CHAT_STREAM[0])):
                upstream.handler = handler
                with pytest.raises(asyncio.TimeoutError):
                    async with http.post(upstream.url + PATH, json=STREAM, timeout=timeout) as response:
                        await response.read()
    await until(lambda: in_flight(gate) == 0)


async def test_deadlines_end_calls(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    with tidegate.context(deadline=0.05):
        async with gate.aiohttp_session() as http, http.post(upstream.url + PATH, json=BODY) as response:
            assert response.status == 504


async def test_a_session_repeats_no_calls(upstream: Upstream, gate: tidegate.Gate) -> None:
    """aiohttp repeats a GET on a kept connection that was closed; the gate already does."""
    upstream.handler = hang_up
    async with gate.aiohttp_session() as http:
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(upstream.url)
        assert len(upstream.exchanges) == 4
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get("http://127.0.0.1:1")
        # google-genai repeats each call that fails with this exception.
        with pytest.raises(aiohttp.ClientConnectionError) as failed:
            await http.post("http://127.0.0.1:1", headers={"x-goog-api-client": "google-genai-sdk/3.4.0"})
        assert type(failed.value) is aiohttp.ClientConnectionError
        assert isinstance(failed.value.__cause__, aiohttp.ClientConnectorError)


async def test_encoded_bodies_are_decoded(upstream: Upstream, gate: tidegate.Gate) -> None:
    packed = gzip.compress(json.dumps(CHAT).encode(), mtime=0)

    async def handler(exchange: Exchange) -> None:
        await exchange.head(content_type="application/json", content_encoding="gzip", content_length=str(len(packed)))
        exchange.writer.write(packed)

    upstream.handler = handler
    async with gate.aiohttp_session() as http, http.post(upstream.url + PATH, json=BODY) as response:
        assert await response.json() == CHAT
        assert (response.headers["content-encoding"], response.content_length) == ("gzip", len(packed))
    assert gate.calls()[-1]["output_tokens"] == 1
    async with gate.aiohttp_session(auto_decompress=False) as http, http.get(upstream.url) as response:
        assert await response.read() == packed


async def test_large_bodies_are_complete(upstream: Upstream, gate: tidegate.Gate) -> None:
    big = {"text": "x" * 3_000_000}
    upstream.handler = answer(big)
    data = io.BytesIO(json.dumps(big).encode())
    async with gate.aiohttp_session() as http, http.post(upstream.url, data=data) as response:
        assert await response.json() == big
    assert upstream.exchanges[0].json() == big


async def test_a_chunk_above_the_read_ahead_is_read(
    upstream: Upstream, gate: tidegate.Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiohttp_middleware, "_READ_AHEAD", 1)
    upstream.handler = answer(CHAT)
    async with gate.aiohttp_session() as http, http.post(upstream.url + PATH, json=BODY) as response:
        assert await response.json() == CHAT


async def test_files_are_sent_again_and_generators_are_sent_once(upstream: Upstream, gate: tidegate.Gate) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"01"
        yield b"23"

    upstream.handler = answer({}, status=500)
    async with gate.aiohttp_session() as http:
        for data, attempts in ((b"0123", 4), (io.BytesIO(b"0123"), 4), (parts(), 1)):
            upstream.exchanges.clear()
            async with http.put(upstream.url, data=data) as response:
                assert response.status == 500
            assert [exchange.body for exchange in upstream.exchanges] == [b"0123"] * attempts


async def test_forms_are_sent(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer({})
    form = aiohttp.FormData()
    form.add_field("file", b"content", filename="a.txt")
    async with gate.aiohttp_session() as http, http.post(upstream.url, data=form) as response:
        assert response.status == 200
    (sent,) = upstream.exchanges
    assert b'filename="a.txt"' in sent.body
    assert sent.headers["content-type"].startswith("multipart/form-data; boundary=")


async def test_redirects_and_cookies(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = in_turn(answer({}, status=302, location="/to", Set_Cookie="a=1"), answer({"ok": True}))
    jar = aiohttp.CookieJar(unsafe=True)
    async with gate.aiohttp_session(cookie_jar=jar) as http, http.get(upstream.url) as response:
        assert (await response.json(), response.url.path) == ({"ok": True}, "/to")
        assert [(earlier.status, earlier.cookies["a"].value) for earlier in response.history] == [(302, "1")]
    assert [exchange.headers.get("cookie") for exchange in upstream.exchanges] == [None, "a=1"]


async def test_settings_of_the_connection_are_those_of_aiohttp(
    authority: Authority, upstream: Upstream, gate: tidegate.Gate
) -> None:
    with Upstream(authority.server()) as server:
        server.handler = answer({"ok": True})
        url = server.url.replace("http:", "https:")
        trusted = ssl.create_default_context(cafile=str(authority.file))
        distrusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        async with gate.aiohttp_session() as http:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await http.get(url, ssl=distrusted)
            async with http.get(url, ssl=trusted) as response:
                assert await response.json() == {"ok": True}
            upstream.handler = answer({"proxied": True})
            async with http.get("http://example.invalid/v1", proxy=upstream.url) as response:
                assert await response.json() == {"proxied": True}


async def test_replicas_of_a_pool_are_reached(upstream: Upstream) -> None:
    upstream.handler = answer(CHAT)
    pool = {"replicas": [upstream.url], "health": "none", "poll": "none"}
    gate = tidegate.Gate({"llama": {"pool": pool}})
    async with gate.aiohttp_session() as http, http.post("http://llama" + PATH, json=BODY) as response:
        assert await response.json() == CHAT
        assert str(response.url) == "http://llama" + PATH
    assert upstream.exchanges[0].headers["host"] == upstream.url.removeprefix("http://")


async def test_replica_that_no_proxy_names_is_reached_directly(upstream: Upstream) -> None:
    upstream.handler = answer(CHAT)
    pool = {"replicas": [upstream.url], "health": "none", "poll": "none"}
    with environment({"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "127.0.0.1"}):
        gate = tidegate.Gate({"llama": {"pool": pool}})
        sessions = gate.aiohttp_session(trust_env=True)
        async with sessions as http, http.post("http://llama" + PATH, json=BODY) as response:
            assert await response.json() == CHAT


async def test_middleware_in_a_session_of_the_user(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer({"error": {}}, status=500)
    session = aiohttp.ClientSession(middlewares=(gate.aiohttp_middleware(),))
    async with session as http, http.post(upstream.url + PATH, json=BODY) as response:
        assert response.status == 500
    assert len(upstream.exchanges) == 4


async def test_empty_responses_hold_no_slot(upstream: Upstream, gate: tidegate.Gate) -> None:
    async def no_content(exchange: Exchange) -> None:
        await exchange.head(204)

    async with gate.aiohttp_session() as http:
        upstream.handler = no_content
        unread = [await http.delete(upstream.url)]
        upstream.handler = answer_head
        unread.append(await http.head(upstream.url))
        assert ([response.status for response in unread], in_flight(gate)) == ([204, 200], 0)


async def answer_head(exchange: Exchange) -> None:
    """Sends the head of a response to a HEAD request."""
    await exchange.head(200, content_length="10")


async def test_upgrades_bypass_the_gate(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer({}, status=404)
    async with gate.aiohttp_session() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await http.ws_connect(upstream.url)
    assert gate.snapshot()["targets"] == {}


def test_fake_targets_answer(gate: tidegate.Gate) -> None:
    async def ask() -> str:
        async with gate.aiohttp_session() as http:
            async with http.post("https://models.example.com" + PATH, json=BODY) as response:
                answered = (await response.json())["choices"][0]["message"]["content"]
            async with http.post("https://models.example.com" + PATH, json=STREAM) as response:
                assert b"data: [DONE]\n" in [line async for line in response.content]
            return answered

    with FakeTarget(otherwise=stream("the ", "tide")).installed() as target:
        assert run(ask()) == "the tide"
    assert [attempt.stream for attempt in target.attempts] == [False, True]
