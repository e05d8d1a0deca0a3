"""Tests of slots, tools and maps under trio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

import tidegate
from custom_transports import in_flight
from httpx_packages import INSTALLED
from tidegate.testing import VirtualClock
from upstream import WAIT, Upstream, never

trio = pytest.importorskip("trio")

from trio.testing import wait_all_tasks_blocked  # noqa: E402

from trio_clients import TRANSPORTS, Client, arrived, cancelled, ended, run, until  # noqa: E402

COUNT = 40


@pytest.fixture
def gate() -> tidegate.Gate:
    return tidegate.Gate(targets={"small": {"cap": 1, "url": "none"}}, tools={"db": 1}, defaults={"cap": 8})


def waiting(gate: tidegate.Gate) -> int:
    snapshot = gate.snapshot()
    count: int = snapshot["targets"]["small"]["queue_depth"] + snapshot["tools"]["db"]["queue_depth"]
    return count


@pytest.mark.parametrize("kind", ["slot", "tool"])
def test_slots_are_held_by_one_task_at_a_time(kind: str, gate: tidegate.Gate) -> None:
    held = gate.slot("small") if kind == "slot" else gate.tool("db")
    active: list[int] = []

    @held
    async def work() -> None:
        active.append(1)
        assert len(active) == 1
        await trio.lowlevel.checkpoint()
        active.clear()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(work)

    run(main)
    assert active == []


@pytest.mark.parametrize("kind", ["slot", "tool"])
def test_cancelled_wait_for_a_slot_leaves_the_queue(kind: str, gate: tidegate.Gate) -> None:
    held: Any = gate.slot("small") if kind == "slot" else gate.tool("db")

    @held
    async def hold() -> None:
        raise AssertionError("the slot is taken")

    async def main() -> None:
        with_slot = trio.Event()

        async def occupy() -> None:
            async with held:
                with_slot.set()
                await trio.sleep_forever()

        async with cancelled(occupy):
            await with_slot.wait()
            async with cancelled(hold):
                await until(lambda: waiting(gate) == 1)
            await until(lambda: waiting(gate) == 0)
        async with held:
            pass

    run(main)


def test_only_the_task_that_holds_a_slot_is_warned(gate: tidegate.Gate) -> None:
    async def main() -> None:
        busy, done = trio.Event(), trio.Event()

        async def occupy() -> None:
            async with gate.tool("db"):
                busy.set()
                await done.wait()

        async def wait_for_tool() -> None:
            async with gate.tool("db"):
                pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(occupy)
            await busy.wait()
            async with gate.slot("small"):
                # The suite turns warnings into errors.
                nursery.start_soon(wait_for_tool)
                await until(lambda: waiting(gate) == 1)
                with pytest.raises(tidegate.SlotHeldWarning):
                    await wait_for_tool()
            done.set()

    run(main)


def test_adrain_waits_for_calls(gate: tidegate.Gate) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery, gate.slot("small"):
            nursery.start_soon(gate.adrain, WAIT)
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 1
        assert await gate.adrain(0) == 0

    run(main)


async def numbers() -> AsyncIterator[int]:
    for number in range(COUNT):
        yield number
        await trio.lowlevel.checkpoint()


def in_thread(number: int) -> int:
    assert threading.current_thread().name.startswith("tidegate-map")
    return number * 2


async def in_task(number: int) -> int:
    await trio.lowlevel.checkpoint()
    return number * 2


@pytest.mark.parametrize("function", [in_thread, in_task])
@pytest.mark.parametrize("source", ["iterable", "async iterable"])
def test_map_returns_all_results(source: str, function: Any, gate: tidegate.Gate) -> None:
    async def main() -> list[int]:
        items: Any = numbers() if source == "async iterable" else range(COUNT)
        return [result.get() async for result in gate.map(function, items, ordered=True)]

    assert run(main) == [2 * number for number in range(COUNT)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_map_makes_calls(transport: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    async def main() -> list[str]:
        async with Client(INSTALLED[-1], gate, transport, upstream.url) as client:
            upstream.handler = client.answer()

            async def ask(_: int) -> str:
                return await client.ask()

            return [result.get() async for result in gate.map(ask, range(COUNT))]

    assert run(main) == ["chatcmpl-1"] * COUNT


def test_map_returns_errors_of_items_and_raises_that_of_the_source(gate: tidegate.Gate) -> None:
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("source")

    async def fail(_: int) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("item")

    async def main() -> None:
        results = aiter(gate.map(fail, source()))
        assert repr((await anext(results)).error) == "ValueError('item')"
        with pytest.raises(KeyError, match="source"):
            await anext(results)

    run(main)


def test_interrupt_in_an_item_ends_the_map(gate: tidegate.Gate) -> None:
    async def interrupt(_: int) -> None:
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt

    async def main() -> None:
        async with aclosing(aiter(gate.map(interrupt, range(3)))) as results:
            with pytest.raises(KeyboardInterrupt):
                await anext(results)

    run(main)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("how", ["left", "cancelled"])
def test_ended_map_cancels_its_items(how: str, transport: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    ends: list[int] = []
    upstream.handler = never

    async def main() -> None:
        async with Client(INSTALLED[-1], gate, transport, upstream.url) as client:

            async def work(number: int) -> None:
                if number == 0:
                    await arrived(upstream)
                    return
                try:
                    await client.ask()
                finally:
                    ends.append(number)

            with trio.CancelScope() as scope:
                async with aclosing(aiter(gate.map(work, range(4)))) as results:
                    async for _ in results:
                        if how == "left":
                            break
                        scope.cancel()
            assert sorted(ends) == [1, 2, 3]
            for exchange in upstream.exchanges:
                await ended(gate, exchange)

    run(main)


def test_left_map_ends_waits_in_threads(gate: tidegate.Gate) -> None:
    ends: list[BaseException] = []

    def hold(_: int) -> None:
        try:
            with gate.slot("small"):
                pass
        except BaseException as error:
            ends.append(error)
            raise

    async def main() -> None:
        async with (
            gate.slot("small"),
            aclosing(aiter(gate.map(hold, range(3)))) as results,
            cancelled(lambda: anext(results)),
        ):
            await until(lambda: waiting(gate) == 3)
        await until(lambda: len(ends) == 3)

    run(main)
    assert {type(error) for error in ends} == {asyncio.CancelledError}


def test_synchronous_map_in_a_trio_task_raises(gate: tidegate.Gate) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="use `async for"):
            iter(gate.map(in_thread, range(3)))

    run(main)


def test_synchronous_calls_work_in_threads_of_trio(gate: tidegate.Gate) -> None:
    def work() -> list[int]:
        with gate.slot("small"):
            pass
        return [result.get() for result in gate.map(in_thread, range(3), ordered=True)]

    assert run(lambda: trio.to_thread.run_sync(work)) == [0, 2, 4]
    assert in_flight(gate) == 0


def test_virtual_time_refuses_trio(gate: tidegate.Gate) -> None:
    async def main() -> None:
        with VirtualClock(), pytest.raises(RuntimeError, match="runs on real time"):
            await gate.adrain(0)

    trio.run(main)
