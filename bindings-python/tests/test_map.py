"""Tests of `gate.map`: results, their order, running items, and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import openai
import pytest

import tidegate
from provider_payloads import MESSAGES
from tidegate.testing import FakeTarget, ok, rate_limited, run, status

URL = "https://models.example.com/v1"
AHEAD = 1_000


def asynchronous(gate: tidegate.Gate) -> openai.AsyncOpenAI:
    return gate.wrap(openai.AsyncOpenAI(base_url=URL, api_key="k"))


def calls_model(gate: tidegate.Gate, model: str = "small") -> Callable[[Any], Awaitable[str]]:
    sdk = asynchronous(gate)

    async def ask(item: Any) -> str:
        messages: Any = [{"role": "user", "content": f"item {item}"}]
        completion = await sdk.chat.completions.create(model=model, messages=messages)
        return completion.choices[0].message.content or ""

    return ask


def holds_slot_for(gate: tidegate.Gate, seconds: float, target: str = "small") -> Callable[[Any], Awaitable[int]]:
    """Returns a coroutine function that holds a slot of the target for `seconds`, as a call does.

    The function makes no HTTP request, which is faster. It returns its argument.
    """

    async def hold(item: int) -> int:
        async with gate.slot(target):
            await asyncio.sleep(seconds)
        return item

    return hold


def now() -> float:
    return asyncio.get_running_loop().time()


def run_with_loop_checks(coroutine: Any, *, debug: bool = False) -> Any:
    """Runs a coroutine on virtual time, and returns its result.

    Fails if another task is still running at the end, or if the event loop reports an error.
    """
    complaints: list[Any] = []

    async def watched() -> Any:
        loop = asyncio.get_running_loop()
        loop.set_debug(debug)
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        result = await coroutine
        gc.collect()
        for _ in range(10):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    result = run(watched())
    assert complaints == []
    return result


def assert_no_thread_is_left() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("tidegate-map"):
            thread.join(60)
            assert not thread.is_alive()


async def read(results: tidegate.Map[int, Any], handed: list[int]) -> None:
    async for result in results:
        handed.append(result.index)  # noqa: PERF401 - what came before an error, too


class CountingSource:
    """A source of items that records how many were read and whether it was closed."""

    def __init__(self, end: int | None = None) -> None:
        self.taken, self.closed, self.end = 0, False, end

    def __iter__(self) -> Iterator[int]:
        try:
            while self.end is None or self.taken < self.end:
                self.taken += 1
                yield self.taken - 1
        finally:
            self.closed = True

    async def slowly(self) -> AsyncIterator[int]:
        try:
            while self.end is None or self.taken < self.end:
                await asyncio.sleep(0.01)
                self.taken += 1
                yield self.taken - 1
        finally:
            self.closed = True


def test_results_are_in_order_of_completion_or_of_the_items() -> None:
    async def late(item: int) -> int:
        await asyncio.sleep(10 - item)
        return item * item

    async def indices(ordered: bool) -> list[tuple[int, int, int]]:
        results = tidegate.Gate().map(late, range(5), ordered=ordered)
        return [(result.index, result.item, result.get()) async for result in results]

    assert run_with_loop_checks(indices(ordered=True)) == [(n, n, n * n) for n in range(5)]
    assert run_with_loop_checks(indices(ordered=False)) == [(n, n, n * n) for n in reversed(range(5))]


def test_error_is_in_the_result_of_its_item() -> None:
    async def collect_all() -> list[tidegate.Result[int, str]]:
        gate = tidegate.Gate(targets={"small": {"retry": {"attempts": 1}}})
        ask = calls_model(gate)

        async def fails(item: int) -> str:
            if item == 1:
                raise KeyError(item)
            if item == 3:
                raise asyncio.CancelledError
            return await ask(item)

        return [result async for result in gate.map(fails, range(5), ordered=True)]

    target = FakeTarget(otherwise=ok("hi"))
    target.route(contains="item 2", otherwise=status(400))
    with target.installed():
        results = run_with_loop_checks(collect_all())
    assert [type(result.error) for result in results] == [
        type(None), KeyError, openai.BadRequestError, asyncio.CancelledError, type(None)
    ]  # fmt: skip
    assert (results[0].value, results[1].value, results[4].get()) == ("hi", None, "hi")
    with pytest.raises(KeyError):
        results[1].get()


@pytest.mark.parametrize("seed", range(24))
def test_every_item_has_one_result_at_any_pace(seed: int) -> None:
    """Each item has one result, in order if requested.

    At most `ahead` items are read in advance.
    """
    chance = random.Random(seed)
    count, ahead, cap = chance.randrange(300), chance.choice([1, 2, 7, 50, AHEAD]), chance.choice([1, 3, 16, 100])
    ordered, before, slow = chance.random() < 0.5, chance.choice([0, 0.5, 8]), chance.choice([0, 0, 0.3])
    source = CountingSource(count)
    running = most = 0

    async def collect_all() -> list[int]:
        gate = tidegate.Gate(targets={"small": {"cap": cap, "url": "none"}})

        async def work(item: int) -> None:
            nonlocal running, most
            await asyncio.sleep(chance.uniform(0, before))
            async with gate.slot("small"):
                running += 1
                most = max(most, running)
                await asyncio.sleep(chance.uniform(0, 3))
                running -= 1
            if chance.random() < 0.1:
                raise ValueError(item)

        handed: list[int] = []
        items = source.slowly() if chance.random() < 0.5 else iter(source)
        async for result in gate.map(work, items, ordered=ordered, ahead=ahead):
            assert result.index == result.item
            assert isinstance(result.error, (ValueError, type(None)))
            handed.append(result.index)
            assert source.taken - len(handed) <= ahead
            if slow:
                await asyncio.sleep(chance.uniform(0, slow))
                assert source.taken - len(handed) <= ahead
        return handed

    handed = run_with_loop_checks(collect_all())
    assert (handed if ordered else sorted(handed)) == list(range(count))
    assert most <= min(cap, ahead)
    assert source.closed


@pytest.mark.parametrize("before", [0, 5, 40])
@pytest.mark.parametrize("cap", [1, 10, 64])
def test_slots_stay_in_use_with_a_short_queue(cap: int, before: float) -> None:
    """A map of `20 * cap` items keeps every slot in use, and few calls wait.

    Each item first works for `before` seconds, then makes a call of ten seconds.
    """
    rounds = 20
    depths: list[int] = []

    async def collect_all() -> float:
        gate = tidegate.Gate(targets={"small": {"cap": cap, "url": "none"}})
        hold = holds_slot_for(gate, 10)

        async def work(item: int) -> None:
            await asyncio.sleep(before)
            await hold(item)

        async for result in gate.map(work, range(cap * rounds)):
            result.get()
            if result.index % 7 == 0:
                depths.append(gate.snapshot()["targets"]["small"]["queue_depth"])
        return now()

    # The work before the first calls, and the window's growth while that work lasts.
    assert run_with_loop_checks(collect_all()) <= rounds * 10 + before + 5 * (before + 0.1)
    if not before:
        assert max(depths) <= 2 * max(8, cap // 4) + 8


def test_waiting_calls_of_others_do_not_slow_the_map() -> None:
    """A map runs as many items as its target has slots, although calls wait for another target.

    Those calls are not made by the map.
    """

    async def both() -> float:
        gate = tidegate.Gate(targets={"busy": {"cap": 1, "url": "none"}, "small": {"cap": 20, "url": "none"}})
        crowd = [asyncio.ensure_future(holds_slot_for(gate, 10, "busy")(n)) for n in range(100)]
        await asyncio.sleep(1)
        began = now()
        async for result in gate.map(holds_slot_for(gate, 10), range(200)):
            result.get()
        took = now() - began
        for call in crowd:
            call.cancel()
        await asyncio.wait(crowd)
        return took

    assert run_with_loop_checks(both()) == pytest.approx(100, abs=1)


def test_no_item_starts_during_a_cool_down() -> None:
    async def collect_all() -> tuple[list[int], float]:
        gate = tidegate.Gate(targets={"small": {"cap": 20}})
        source = CountingSource(160)
        reading = asyncio.ensure_future(read(gate.map(calls_model(gate), source), []))
        taken = []
        for _ in range(2):
            await asyncio.sleep(40)
            taken.append(source.taken)
        await reading
        return taken, now()

    with FakeTarget(rate_limited(90, after=0.2).times(8), otherwise=ok(after=10)).installed():
        (early, late), took = run_with_loop_checks(collect_all())
    assert early == late < 160
    assert took <= 90 + 80 + 40


def test_endless_source_is_read_only_as_far_as_ahead() -> None:
    source = CountingSource()

    async def collect_some() -> list[int]:
        gate = tidegate.Gate(targets={"small": {"cap": 8, "url": "none"}})
        taken = []
        async for result in gate.map(holds_slot_for(gate, 1), source, ahead=40):
            result.get()
            await asyncio.sleep(60)
            taken.append(source.taken - len(taken))
            if len(taken) == 200:
                break
        return taken

    assert max(run_with_loop_checks(collect_some())) <= 41
    assert source.closed


@pytest.mark.parametrize("asynchronous_source", [False, True])
@pytest.mark.parametrize("how", ["break", "raise", "close", "cancel", "drop"])
def test_leaving_the_loop_cancels_all_items(how: str, asynchronous_source: bool) -> None:
    source = CountingSource()

    async def leave_loop(results: tidegate.Map[int, str]) -> None:
        async for _ in results:
            raise ZeroDivisionError

    async def left() -> None:
        gate = tidegate.Gate(targets={"small": 4})
        results = gate.map(calls_model(gate), source.slowly() if asynchronous_source else source)
        if how == "break":
            async for _ in results:
                break
        elif how == "raise":
            with pytest.raises(ZeroDivisionError):
                await leave_loop(results)
        elif how == "close":
            async with contextlib.aclosing(aiter(results)) as handed:
                await anext(handed)
            assert gate.snapshot()["active"] == 0
            assert source.closed
        elif how == "cancel":
            reading = asyncio.ensure_future(anext(aiter(results)))
            await asyncio.sleep(5)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert gate.snapshot()["active"] == 0
        else:
            await anext(aiter(results))

    with FakeTarget(otherwise=ok(after=10)).installed() as target:
        run_with_loop_checks(left(), debug=True)
        target.assert_no_call_in_flight()
    assert target.cancelled
    assert source.closed


def test_error_of_the_source_is_raised_after_all_results() -> None:
    def broken() -> Iterator[int]:
        yield from range(20)
        raise OSError("the disk is gone")

    async def collect_all() -> list[int]:
        gate = tidegate.Gate(targets={"small": 2})
        handed: list[int] = []
        with pytest.raises(OSError, match="the disk is gone"):
            await read(gate.map(calls_model(gate), broken(), ordered=True), handed)
        return handed

    with FakeTarget(otherwise=ok(after=10)).installed():
        assert run_with_loop_checks(collect_all()) == list(range(20))


def test_fatal_exception_ends_the_map() -> None:
    class Fatal(BaseException):
        pass

    async def work(item: int) -> None:
        await asyncio.sleep(item)
        if item == 3:
            raise Fatal

    async def collect_all() -> list[int]:
        handed: list[int] = []
        with pytest.raises(Fatal):
            await read(tidegate.Gate().map(work, CountingSource()), handed)
        return handed

    assert run_with_loop_checks(collect_all()) == [0, 1, 2]


def test_calls_have_the_batch_lane_and_the_outer_context() -> None:
    async def collect_all() -> list[Any]:
        gate = tidegate.Gate()
        with tidegate.context(tenant="acme", lane="interactive", call="around", deadline=60):
            maps = [
                gate.map(calls_model(gate), [1]),
                gate.map(calls_model(gate), [2], tenant="nightly"),
                gate.map(calls_model(gate), [3], lane=None),
            ]
        for results in maps:
            _ = [result.get() async for result in results]
        with tidegate.context(deadline=5):
            late = gate.map(calls_model(gate), [4])
        [result] = [result async for result in late]
        assert isinstance(result.error, openai.APIStatusError)
        return [(call["tenant"], call["lane"], call["label"]) for call in gate.calls()]

    with FakeTarget(otherwise=ok(after=10)).installed():
        assert run_with_loop_checks(collect_all()) == [
            ("acme", "batch", "around"),
            ("nightly", "batch", "around"),
            ("acme", "interactive", "around"),
            ("default", "batch", None),
        ]


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_eight_items_run_at_once_if_no_call_waits(mode: Any) -> None:
    async def most_at_once() -> int:
        gate = tidegate.Gate(mode=mode)
        slots = gate.httpx_async_client() if mode == "observe" else None
        running = most = 0

        async def work(_: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if slots is not None:
                await slots.post(f"{URL}/chat/completions", json={"model": "small", "messages": MESSAGES})
            await asyncio.sleep(1)
            running -= 1

        async for result in gate.map(work, range(100)):
            result.get()
        return most

    with FakeTarget(otherwise=ok(after=1)).installed():
        assert run_with_loop_checks(most_at_once()) == 8


def test_nested_map_ends_with_the_outer_one() -> None:
    async def collect_all() -> float:
        gate = tidegate.Gate(targets={"small": {"cap": 30, "url": "none"}})
        hold = holds_slot_for(gate, 10)

        async def summarise_chapter(number: int) -> int:
            return len([result.get() async for result in gate.map(hold, range(number % 7))])

        lengths = [result.get() async for result in gate.map(summarise_chapter, range(140), ordered=True)]
        assert lengths == [number % 7 for number in range(140)]
        return now()

    assert run_with_loop_checks(collect_all()) <= 420 / 30 * 10 + 20


def test_invalid_arguments_are_errors() -> None:
    async def work(item: int) -> int:
        return item

    gate = tidegate.Gate()
    with pytest.raises(TypeError, match="the first argument must be a function, not range"):
        gate.map(range(3), work)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="items must be an iterable"):
        gate.map(work, 3)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="give 1 or more"):
        gate.map(work, [1], ahead=0)
    with pytest.raises(ValueError, match="give one of interactive, standard, batch"):
        gate.map(work, [1], lane="slow")  # type: ignore[call-overload]

    async def inside() -> None:
        with pytest.raises(RuntimeError, match="use `async for"):
            iter(gate.map(work, [1]))

    run(inside())
    results = gate.map(work, [1])
    assert [result.get() for result in results] == [1]
    with pytest.raises(RuntimeError, match="iterated already"):
        iter(results)
