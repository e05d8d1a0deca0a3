"""Tests on event loops of every kind, and on several loops."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from contextlib import closing
from typing import Any

import openai
import pytest

import tidegate
from event_loops import LoopWithoutReaders
from provider_payloads import CHAT, CHAT_STREAM, MESSAGES
from tidegate import _event_loop, _native
from upstream import WAIT, Upstream, answer, events, never

TURNS = 20


def client(upstream: Upstream, gate: tidegate.Gate) -> openai.AsyncOpenAI:
    return gate.wrap(openai.AsyncOpenAI(base_url=upstream.url, api_key="k"))


async def ask(sdk: openai.AsyncOpenAI) -> Any:
    return await sdk.chat.completions.create(model="small", messages=MESSAGES)


async def several(sdk: openai.AsyncOpenAI) -> None:
    answers = await asyncio.gather(*(ask(sdk) for _ in range(TURNS)))
    assert [a.id for a in answers] == ["chatcmpl-1"] * TURNS


def test_client_works_on_consecutive_loops(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    sdk = client(upstream, gate)
    for _ in range(5):
        asyncio.run(several(sdk))


def test_client_works_on_loops_in_threads(upstream: Upstream, gate: tidegate.Gate) -> None:
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


def test_sync_client_works_in_threads(upstream: Upstream, gate: tidegate.Gate) -> None:
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


def test_client_works_on_uvloop(upstream: Upstream, gate: tidegate.Gate) -> None:
    uvloop = pytest.importorskip("uvloop")
    sdk = client(upstream, gate)

    async def main() -> None:
        upstream.handler = answer(CHAT)
        await several(sdk)
        upstream.handler = events(*CHAT_STREAM)
        stream = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
        assert len([chunk async for chunk in stream]) == 3

    uvloop.run(main())


def test_client_works_on_a_loop_without_add_reader(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    sdk = client(upstream, gate)
    with closing(LoopWithoutReaders()) as loop:
        loop.run_until_complete(several(sdk))


def waiting_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tidegate-port"]


def ports() -> list[_native.Port]:
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is _native.Port]


def assert_no_thread_waits(*, closed: bool = True) -> None:
    """Waits until each `tidegate-port` thread has ended, and fails if one does not end.

    The thread of a closed loop ends by itself. With `closed=False`, the loops may be open, and a
    thread ends when its loop is garbage collected. Collection is repeated, because a thread may
    refer to its loop for a moment.
    """
    for thread in waiting_threads():
        begun = time.monotonic()
        while thread.is_alive() and not closed and time.monotonic() - begun < WAIT:
            gc.collect()
            thread.join(0.01)
        thread.join(WAIT)
        assert not thread.is_alive()


def ports_of_earlier_tests() -> list[_native.Port]:
    # A reference to the port of a collected loop would keep the thread of that loop running.
    assert_no_thread_waits(closed=False)
    return ports()


def made_since(before: list[_native.Port]) -> list[_native.Port]:
    """Returns the native ports that exist now and are not in `before`.

    Ports in `before` may be freed at any time.
    """
    return [port for port in ports() if port not in before]


def test_closed_loops_without_add_reader_leave_nothing_behind(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    sdk = client(upstream, gate)
    before, loops = ports_of_earlier_tests(), []
    for _ in range(300):
        with closing(LoopWithoutReaders()) as loop:
            loop.run_until_complete(ask(sdk))
            loop.run_until_complete(loop.shutdown_asyncgens())
        loops.append(weakref.ref(loop))
        assert_no_thread_waits()
        del loop
    assert made_since(before) == []
    assert [loop for loop in loops if loop() is not None] == []


@pytest.mark.skipif(not hasattr(asyncio, "Runner"), reason="Python 3.10 has no Runner")
def test_asyncio_run_leaves_no_thread_behind_without_add_reader(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    with asyncio.Runner(loop_factory=LoopWithoutReaders) as runner:
        runner.run(several(client(upstream, gate)))
        assert len(waiting_threads()) == 1
    assert_no_thread_waits()


@pytest.mark.filterwarnings("ignore")
def test_loops_without_add_reader_that_are_not_closed_leave_nothing_behind(
    upstream: Upstream, gate: tidegate.Gate
) -> None:
    upstream.handler = answer(CHAT)
    sdk = client(upstream, gate)
    before = ports_of_earlier_tests()
    for _ in range(10):
        loop = LoopWithoutReaders()
        loop.run_until_complete(ask(sdk))
    del loop
    assert_no_thread_waits(closed=False)
    assert made_since(before) == []


async def test_map_works_on_every_loop(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    sdk = client(upstream, gate)
    ids = [result.get().id async for result in gate.map(lambda _: ask(sdk), range(TURNS))]
    assert ids == ["chatcmpl-1"] * TURNS


def test_map_without_a_loop_works_without_add_reader(
    upstream: Upstream, gate: tidegate.Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_event_loop, "loop_factory", LoopWithoutReaders)
    upstream.handler = answer(CHAT)
    sdk = gate.wrap(openai.OpenAI(base_url=upstream.url, api_key="k"))
    turns = gate.map(lambda _: sdk.chat.completions.create(model="small", messages=MESSAGES), range(TURNS))
    assert [result.get().id for result in turns] == ["chatcmpl-1"] * TURNS
    assert_no_thread_waits()


def made(kind: str) -> asyncio.AbstractEventLoop:
    if kind == "without add_reader":
        return LoopWithoutReaders()
    return asyncio.new_event_loop() if kind == "asyncio" else pytest.importorskip("uvloop").new_event_loop()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["asyncio", "uvloop", "without add_reader"])
def test_closing_a_loop_ends_its_calls(kind: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    sdk = client(upstream, gate)
    loop = made(kind)
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
    assert_no_thread_waits()
    # The tasks exist without their loop. Nothing crashes, and the gate keeps working.
    assert len(tasks) == 5
    upstream.handler = answer(CHAT)
    asyncio.run(several(sdk))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["asyncio", "without add_reader"])
def test_collecting_a_loop_ends_its_calls(kind: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    loop = made(kind)
    task = loop.create_task(ask(client(upstream, gate)))
    task._log_destroy_pending = False

    async def until_sent() -> None:
        await asyncio.to_thread(upstream.wait_for, 1)

    loop.run_until_complete(until_sent())
    loop.run_until_complete(loop.shutdown_default_executor())
    del loop, task
    gc.collect()
    assert_no_thread_waits(closed=False)
    assert upstream.exchanges[0].closed.wait(WAIT)


def test_coroutine_without_an_event_loop_raises_an_error_with_advice(upstream: Upstream, gate: tidegate.Gate) -> None:
    coroutine = gate.httpx_async_client().get(upstream.url)
    with pytest.raises(RuntimeError, match=r"no event loop is running.*asyncio.*trio.*synchronous client"):
        coroutine.send(None)


async def test_failed_task_group_cancels_its_calls(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    sdk = client(upstream, gate)
    group_of = getattr(asyncio, "TaskGroup", None)
    if group_of is None:
        pytest.skip("Python 3.10 has no TaskGroup")
    async with group_of() as group:
        tasks = [group.create_task(ask(sdk)) for _ in range(TURNS)]
    assert all(task.result().id == "chatcmpl-1" for task in tasks)
