"""Tests that cancelling or closing a call ends the upstream exchange and releases its slot."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import anyio
import openai
import pytest

import tidegate
from custom_transports import in_flight, until
from httpx_packages import INSTALLED
from provider_payloads import CHAT, CHAT_STREAM, MESSAGES
from upstream import WAIT, Upstream, answer, never, stall_after


def client(upstream: Upstream, gate: tidegate.Gate) -> openai.AsyncOpenAI:
    return gate.wrap(openai.AsyncOpenAI(base_url=upstream.url, api_key="k"))


def ask(sdk: openai.AsyncOpenAI, **more: Any) -> Any:
    return sdk.chat.completions.create(model="small", messages=MESSAGES, **more)


async def wait_for_requests(upstream: Upstream, count: int = 1) -> Any:
    return await asyncio.to_thread(upstream.wait_for, count)


async def closed(exchange: Any) -> None:
    assert await asyncio.to_thread(exchange.closed.wait, WAIT)


async def test_cancelled_task_before_the_response_head_releases_its_slot(
    upstream: Upstream, gate: tidegate.Gate
) -> None:
    upstream.handler = never
    task = asyncio.create_task(ask(client(upstream, gate)))
    exchange = await wait_for_requests(upstream)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await closed(exchange)
    await until(lambda: in_flight(gate) == 0)


async def test_wait_for_timeout_releases_the_slot(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    task = asyncio.create_task(ask(client(upstream, gate)))
    exchange = await wait_for_requests(upstream)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(task, 0)
    await closed(exchange)


async def test_cancelled_anyio_scope_releases_the_slot(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never

    async def leave(scope: anyio.CancelScope) -> None:
        await wait_for_requests(upstream)
        scope.cancel()

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(leave, scope)
            await ask(client(upstream, gate))
    assert scope.cancelled_caught
    await closed(upstream.exchanges[0])


async def test_cancelled_task_in_a_stream_releases_its_slot(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    first = asyncio.Event()

    async def read() -> None:
        async for _ in await ask(client(upstream, gate), stream=True):
            first.set()

    task = asyncio.create_task(read())
    await first.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await closed(upstream.exchanges[0])
    await until(lambda: in_flight(gate) == 0)


async def test_closed_stream_releases_its_slot(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    stream = await ask(client(upstream, gate), stream=True)
    async for _ in stream:
        break
    await stream.close()
    await closed(upstream.exchanges[0])
    await until(lambda: in_flight(gate) == 0)


async def test_stream_closed_by_another_task_releases_its_slot(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    stream = await ask(client(upstream, gate), stream=True)
    first = asyncio.Event()

    async def read() -> None:
        async for _ in stream.response.aiter_raw():
            first.set()

    task = asyncio.create_task(read())
    await first.wait()
    await asyncio.sleep(0)
    await stream.response.stream.aclose()
    with pytest.raises(Exception, match="closed"):
        await asyncio.wait_for(task, WAIT)
    await closed(upstream.exchanges[0])


async def test_collected_stream_releases_its_slot(upstream: Upstream, gate: tidegate.Gate) -> None:
    """The SDK does not close the connection of a dropped stream. The gate's stream object does."""
    upstream.handler = stall_after(CHAT_STREAM[0])
    stream = await ask(client(upstream, gate), stream=True)
    async for _ in stream:
        break
    del stream
    for _ in range(5):  # The loop first closes the iterator that `break` left.
        await asyncio.sleep(0)
    gc.collect()
    await closed(upstream.exchanges[0])
    await until(lambda: in_flight(gate) == 0)


def test_collected_sync_stream_releases_its_slot(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    sdk = gate.wrap(openai.OpenAI(base_url=upstream.url, api_key="k"))
    stream = ask(sdk, stream=True)
    next(iter(stream))
    del stream
    gc.collect()
    assert upstream.exchanges[0].closed.wait(WAIT)
    assert in_flight(gate) == 0


@pytest.mark.parametrize("name", INSTALLED)
async def test_response_closed_unread_releases_its_slot(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    async with (
        gate.httpx_async_client(family=name) as http,
        http.stream("POST", f"{upstream.url}/v1/chat/completions", json={"model": "m", "stream": True}) as response,
    ):
        assert response.status_code == 200
    await closed(upstream.exchanges[0])
    await until(lambda: in_flight(gate) == 0)


async def test_call_cancelled_in_the_queue_is_never_sent(upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"cap": 1})
    sdk = client(upstream, gate)
    upstream.handler = stall_after(CHAT_STREAM[0])
    held = await ask(sdk, stream=True)
    waits = [asyncio.create_task(ask(sdk)) for _ in range(5)]
    while sum(target["queue_depth"] for target in gate.snapshot()["targets"].values()) < 5:
        await asyncio.sleep(0)
    for task in waits:
        task.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    await held.close()
    upstream.handler = answer(CHAT)
    assert (await ask(sdk)).id == "chatcmpl-1"
    assert len(upstream.exchanges) == 2


async def test_cancellations_at_every_stage_leave_no_slot_in_use(upstream: Upstream) -> None:
    """Cancels half of 16 calls after 0 to 59 turns of the event loop, then makes another call."""
    gate = tidegate.Gate(defaults={"cap": 8})
    sdk = client(upstream, gate)
    upstream.handler = answer(CHAT)
    for turns in range(60):
        tasks = [asyncio.create_task(ask(sdk)) for _ in range(16)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    while gate.snapshot()["active"]:
        await asyncio.sleep(0)
    await until(lambda: in_flight(gate) == 0)
    assert (await ask(sdk)).id == "chatcmpl-1"
