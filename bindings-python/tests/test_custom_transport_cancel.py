"""Tests that cancelling ends exchanges of custom transports and then releases the slot."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tidegate
from custom_transports import BODY, PATH, STREAM, in_flight, until
from httpx_packages import INSTALLED, module
from provider_payloads import CHAT, CHAT_STREAM
from upstream import WAIT, Exchange, Upstream, answer, event, events, never, stall_after

pytestmark = pytest.mark.parametrize("name", INSTALLED)


async def wait_for_requests(upstream: Upstream, count: int = 1) -> Any:
    return await asyncio.to_thread(upstream.wait_for, count)


async def closed(exchange: Any) -> None:
    assert await asyncio.to_thread(exchange.closed.wait, WAIT)


async def test_cancel_before_the_head_ends_the_exchange(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    async with gate.httpx_async_client(family=name, transport="keep") as http:
        task = asyncio.create_task(http.post(upstream.url + PATH, json=BODY))
        exchange = await wait_for_requests(upstream)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closed(exchange)
        await until(lambda: in_flight(gate) == 0)


async def test_cancel_in_a_stream_ends_the_exchange(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    first = asyncio.Event()

    async with gate.httpx_async_client(family=name, transport="keep") as http:

        async def read() -> None:
            async with http.stream("POST", upstream.url + PATH, json=STREAM) as response:
                async for _ in response.aiter_raw():
                    first.set()

        task = asyncio.create_task(read())
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closed(upstream.exchanges[0])
        await until(lambda: in_flight(gate) == 0)


async def test_closed_or_collected_response_ends_the_exchange(
    name: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    async with gate.httpx_async_client(family=name, transport="keep") as http:
        async with http.stream("POST", upstream.url + PATH, json=STREAM) as response:
            assert await anext(response.aiter_raw()) == event(CHAT_STREAM[0])
        await closed(upstream.exchanges[0])
        response = await http.send(http.build_request("POST", upstream.url + PATH, json=STREAM), stream=True)
        del response
        gc.collect()
        await closed(upstream.exchanges[1])
        await until(lambda: in_flight(gate) == 0)


async def test_closed_response_has_closed_that_of_the_transport(name: str, gate: tidegate.Gate) -> None:
    family = module(name)
    ends: list[str] = []

    class Unending(family.AsyncByteStream):  # type: ignore[misc, name-defined]
        async def __aiter__(self) -> Any:
            try:
                yield event(CHAT_STREAM[0])
                await asyncio.Event().wait()
            finally:
                ends.append("iterator")

        async def aclose(self) -> None:
            await asyncio.sleep(0)
            ends.append("stream")

    mock = family.MockTransport(lambda _: family.Response(200, stream=Unending()))
    async with gate.httpx_async_client(family=name, transport=mock) as http:
        async with http.stream("POST", "http://llm" + PATH, json=STREAM) as response:
            async for _ in response.aiter_raw():
                break
        assert ends == ["iterator", "stream"]


def test_sync_closed_or_collected_response_ends_the_exchange(
    name: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    with gate.httpx_client(family=name, transport="keep") as http:
        with http.stream("POST", upstream.url + PATH, json=STREAM) as response:
            chunks = response.iter_raw()
            assert next(chunks) == event(CHAT_STREAM[0])
            assert in_flight(gate) == 1
        assert in_flight(gate) == 0
        assert upstream.exchanges[0].closed.wait(WAIT)
        response = http.send(http.build_request("POST", upstream.url + PATH, json=STREAM), stream=True)
        del response
        gc.collect()
        assert in_flight(gate) == 0
        assert upstream.exchanges[1].closed.wait(WAIT)


def test_sync_failed_stream_is_closed_before_the_retry(name: str, upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"cap": 1, "retry": {"base": "1ms", "max": "1ms"}})

    async def fail_then_answer(exchange: Exchange) -> None:
        failed = len(upstream.exchanges) == 1
        await (stall_after({"error": {"code": 503}}) if failed else events(*CHAT_STREAM))(exchange)

    upstream.handler = fail_then_answer
    with (
        gate.httpx_client(family=name, transport="keep", timeout=WAIT) as http,
        http.stream("POST", upstream.url + PATH, json=STREAM) as response,
    ):
        assert response.read() == b"".join(map(event, CHAT_STREAM))
    # The client did not wait for the rest of the failed response.
    assert upstream.exchanges[0].closed.wait(WAIT)
    assert len(gate.calls()[0]["attempts"]) == 2


def test_sync_stream_ended_by_the_gate_is_closed_when_its_reader_gets_the_error(name: str, upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"deadline": "200ms"})

    async def send_events(exchange: Exchange) -> None:
        await exchange.head(content_type="text/event-stream", transfer_encoding="chunked")
        with contextlib.suppress(ConnectionError):
            while True:
                await exchange.chunk(event(CHAT_STREAM[0]))
        exchange.closed.set()

    upstream.handler = send_events
    with (
        gate.httpx_client(family=name, transport="keep") as http,
        http.stream("POST", upstream.url + PATH, json=STREAM) as response,
    ):
        with pytest.raises(module(name).ReadTimeout, match="the deadline passed"):
            for _ in response.iter_raw():
                pass
        assert in_flight(gate) == 0
        assert upstream.exchanges[0].closed.wait(WAIT)


def test_sync_interrupted_call_has_ended_when_the_interrupt_is_raised(name: str, gate: tidegate.Gate) -> None:
    def interrupt(_: Any) -> Any:
        raise KeyboardInterrupt

    with gate.httpx_client(family=name, transport=module(name).MockTransport(interrupt)) as http:
        for _ in range(50):
            with pytest.raises(KeyboardInterrupt):
                http.post("http://llm" + PATH, json=BODY)
            assert (gate.snapshot()["active"], in_flight(gate)) == (0, 0)


async def test_slot_is_held_until_the_transport_has_finished(name: str) -> None:
    gate, family = tidegate.Gate(defaults={"cap": 1}), module(name)
    begun, ending, release = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def end_slowly(_: Any) -> Any:
        if begun.is_set():
            return family.Response(200, json=CHAT)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await release.wait()

    mock = family.MockTransport(end_slowly)
    async with gate.httpx_async_client(family=name, transport=mock, base_url="http://llm") as http:
        first = asyncio.create_task(http.post(PATH, json=BODY))
        await begun.wait()
        first.cancel()
        await ending.wait()
        with pytest.raises(asyncio.CancelledError):
            await first
        await until(lambda: gate.snapshot()["active"] == 0)
        second = asyncio.create_task(http.post(PATH, json=BODY))
        # A call is active shortly before it is queued.
        await until(lambda: [target["queue_depth"] for target in gate.snapshot()["targets"].values()] == [1])
        assert in_flight(gate) == 1, "the first is not over yet"
        release.set()
        assert (await second).json() == CHAT
        await until(lambda: in_flight(gate) == 0)


async def test_transport_that_ignores_cancellation_keeps_its_slot_until_it_ends(name: str, gate: tidegate.Gate) -> None:
    family = module(name)
    begun = asyncio.Event()

    async def ignore_cancellation(_: Any) -> Any:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return family.Response(200, json=CHAT)

    async with gate.httpx_async_client(family=name, transport=family.MockTransport(ignore_cancellation)) as http:
        task = asyncio.create_task(http.post("http://llm" + PATH, json=BODY))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: in_flight(gate) == 0)


async def test_cancellations_at_every_stage_leave_no_slot_in_use(name: str, upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"cap": 8})
    upstream.handler = answer(CHAT)
    async with gate.httpx_async_client(family=name, transport="keep") as http:
        for turns in range(0, 60, 3):
            tasks = [asyncio.create_task(http.post(upstream.url + PATH, json=BODY)) for _ in range(16)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: gate.snapshot()["active"] == 0 and in_flight(gate) == 0)
        assert (await http.post(upstream.url + PATH, json=BODY)).json() == CHAT


def test_cap_limits_calls_of_threads(name: str, upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"cap": 4})
    upstream.handler = answer(CHAT)
    answers: list[Any] = []
    with gate.httpx_client(family=name, transport="keep") as http:

        def work() -> None:
            answers.extend(http.post(upstream.url + PATH, json=BODY).json() for _ in range(5))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [CHAT] * 40
    (target,) = gate.snapshot()["targets"].values()
    assert (target["in_flight"], target["peak_in_flight"] <= 4) == (0, True)


def test_response_that_is_lost_while_the_transport_is_locked_is_closed_later(name: str, gate: tidegate.Gate) -> None:
    """The garbage collector may find a response while its own thread holds the transport's lock."""
    family = module(name)
    lock, is_closed = threading.Lock(), threading.Event()

    class Guarded(family.SyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[bytes]:
            yield from map(event, CHAT_STREAM)

        def close(self) -> None:
            with lock:
                is_closed.set()

    class Transport(family.BaseTransport):  # type: ignore[misc, name-defined]
        def handle_request(self, request: Any) -> Any:
            headers = {"content-type": "text/event-stream"}
            return family.Response(200, headers=headers, stream=Guarded(), request=request)

    with gate.httpx_client(family=name, transport=Transport()) as http:
        response = http.send(http.build_request("POST", "http://test" + PATH, json=STREAM), stream=True)
        assert in_flight(gate) == 1
        with lock:
            del response
            gc.collect()
        assert is_closed.wait(WAIT)
        assert in_flight(gate) == 0
