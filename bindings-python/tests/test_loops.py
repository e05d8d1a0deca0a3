"""Loops of every kind, and several of them."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import openai
import pytest

import tidegate
from shapes import CHAT, CHAT_STREAM, MESSAGES
from upstream import WAIT, Upstream, answer, events, never

TURNS = 20


def client(upstream: Upstream, gate: tidegate.Gate) -> openai.AsyncOpenAI:
    return gate.wrap(openai.AsyncOpenAI(base_url=upstream.url, api_key="k"))


async def ask(sdk: openai.AsyncOpenAI) -> Any:
    return await sdk.chat.completions.create(model="small", messages=MESSAGES)


async def several(sdk: openai.AsyncOpenAI) -> None:
    answers = await asyncio.gather(*(ask(sdk) for _ in range(TURNS)))
    assert [a.id for a in answers] == ["chatcmpl-1"] * TURNS


def test_one_client_on_one_loop_after_another(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    sdk = client(upstream, gate)
    for _ in range(5):
        asyncio.run(several(sdk))


def test_one_client_on_loops_in_threads(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    sdk = client(upstream, gate)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(several(sdk))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_one_sync_client_in_threads(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    sdk = gate.wrap(openai.OpenAI(base_url=upstream.url, api_key="k"))
    ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: ids.append(sdk.chat.completions.create(model="small", messages=MESSAGES).id))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids == ["chatcmpl-1"] * 16


def test_uvloop(upstream: Upstream, gate: tidegate.Gate) -> None:
    uvloop = pytest.importorskip("uvloop")
    sdk = client(upstream, gate)

    async def main() -> None:
        upstream.handler = answer(CHAT)
        await several(sdk)
        upstream.handler = events(*CHAT_STREAM)
        stream = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
        assert len([chunk async for chunk in stream]) == 3

    uvloop.run(main())


class Proactor(asyncio.SelectorEventLoop):
    """A loop that cannot watch descriptors, as Windows' default one."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        if "Drain" in type(callback).__name__:
            raise NotImplementedError
        super().add_reader(fd, callback, *args)


def test_a_loop_without_add_reader(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    sdk = client(upstream, gate)
    loop = Proactor()
    try:
        loop.run_until_complete(several(sdk))
    finally:
        loop.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_loop_closed_with_calls_in_flight(kind: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    sdk = client(upstream, gate)
    loop = asyncio.new_event_loop() if kind == "asyncio" else pytest.importorskip("uvloop").new_event_loop()
    tasks = [loop.create_task(ask(sdk)) for _ in range(5)]
    for task in tasks:
        task._log_destroy_pending = False

    async def until_sent() -> None:
        await asyncio.to_thread(upstream.wait_for, 5)

    loop.run_until_complete(until_sent())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    del loop
    gc.collect()
    for exchange in upstream.exchanges:
        assert exchange.closed.wait(WAIT)
    # The tasks still exist, and their loop is gone: nothing crashes, and the gate goes on.
    assert len(tasks) == 5
    upstream.handler = answer(CHAT)
    asyncio.run(several(sdk))


@pytest.mark.filterwarnings("ignore")
def test_a_loop_lost_with_calls_in_flight(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    loop = asyncio.new_event_loop()
    task = loop.create_task(ask(client(upstream, gate)))
    task._log_destroy_pending = False

    async def until_sent() -> None:
        await asyncio.to_thread(upstream.wait_for, 1)

    loop.run_until_complete(until_sent())
    loop.run_until_complete(loop.shutdown_default_executor())
    del loop, task
    gc.collect()
    assert upstream.exchanges[0].closed.wait(WAIT)


def test_trio_is_told(upstream: Upstream, gate: tidegate.Gate) -> None:
    trio = pytest.importorskip("trio")
    http = gate.httpx_async_client()
    with pytest.raises(RuntimeError, match=r"asyncio.*trio\.to_thread"):
        trio.run(http.get, upstream.url)


async def test_task_group(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    sdk = client(upstream, gate)
    group_of = getattr(asyncio, "TaskGroup", None)
    if group_of is None:
        pytest.skip("Python 3.10 has no TaskGroup")
    async with group_of() as group:
        tasks = [group.create_task(ask(sdk)) for _ in range(TURNS)]
    assert all(task.result().id == "chatcmpl-1" for task in tasks)
