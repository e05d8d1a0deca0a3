"""Tests of `gate.map` with plain functions, and without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

import tidegate
from test_map import URL, CountingSource, assert_no_thread_is_left, calls_model, run_with_loop_checks
from tidegate.testing import FakeTarget, VirtualClock, ok, run


def test_plain_functions_run_in_threads_and_lambdas_on_the_loop() -> None:
    threads: set[str] = set()

    def blocks(item: int) -> str:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        sdk = gate.wrap(openai.OpenAI(base_url=URL, api_key="k"))
        messages: Any = [{"role": "user", "content": f"item {item}"}]
        return sdk.chat.completions.create(model="small", messages=messages).choices[0].message.content or ""

    async def all_of_them(function: Any) -> list[str]:
        results = [result.get() async for result in gate.map(function, range(30), ordered=True, tenant="acme")]
        assert {call["tenant"] for call in gate.calls()} == {"acme"}
        return results

    gate = tidegate.Gate(targets={"small": 4})
    with FakeTarget(otherwise=ok("hi", after=1)).installed() as target:
        assert run(all_of_them(blocks)) == ["hi"] * 30
    assert target.max_in_flight == 4
    assert threads == {"tidegate-map"}
    with FakeTarget(otherwise=ok("hi", after=1)).installed():
        ask = calls_model(gate)
        assert run_with_loop_checks(all_of_them(lambda item: ask(item))) == ["hi"] * 30  # noqa: PLW0108


@pytest.mark.parametrize("asynchronous_function", [False, True])
def test_map_without_an_event_loop(asynchronous_function: bool) -> None:
    gate = tidegate.Gate(targets={"small": {"cap": 10}})
    here = threading.get_ident()

    def source() -> Iterator[int]:
        try:
            for number in range(50):
                assert threading.get_ident() == here
                yield number
        finally:
            closed.append(True)

    def blocks(item: int) -> str:
        sdk = gate.wrap(openai.OpenAI(base_url=URL, api_key="k"))
        messages: Any = [{"role": "user", "content": f"item {item}"}]
        return sdk.chat.completions.create(model="small", messages=messages).choices[0].message.content or ""

    closed: list[bool] = []
    with VirtualClock() as clock, FakeTarget(otherwise=ok("hi", after=10)).installed() as target:
        function: Any = calls_model(gate) if asynchronous_function else blocks
        results = list(gate.map(function, source(), ordered=True))
        assert [(result.index, result.value) for result in results] == [(n, "hi") for n in range(50)]
        assert clock.time() == pytest.approx(50, abs=1)
        for result in gate.map(function, source()):
            assert result.get() == "hi"
            break
        assert closed == [True, True]
        assert_no_thread_is_left()
        target.assert_no_call_in_flight()


def test_leaving_the_loop_ends_waits_in_threads() -> None:
    """Leaving a map with plain functions cancels the calls that its threads wait for.

    Otherwise, the calls would take an hour. The test runs in real time. One item runs a nested map.
    """
    gate = tidegate.Gate(targets={"small": {"cap": 4, "models": ["small"]}, "quick": {"cap": 4, "models": ["quick"]}})
    caught: list[type[BaseException]] = []

    def blocks(item: int) -> int:
        sdk = gate.wrap(openai.OpenAI(base_url=URL, api_key="k"))
        messages: Any = [{"role": "user", "content": "hi"}]
        sdk.chat.completions.create(model="small" if item else "quick", messages=messages)
        return item

    def catch_cancellation(item: int) -> int:
        try:
            return next(iter(gate.map(blocks, [1]))).get() if item == 2 else blocks(item)
        except BaseException as error:
            caught.append(type(error))
            raise

    with FakeTarget(otherwise=ok("hi", after=3600)).installed() as target:
        target.route(model="quick", otherwise=ok("hi", after=0.5))
        for result in gate.map(catch_cancellation, range(20)):
            assert result.get() == 0
            break
        assert_no_thread_is_left()
        target.assert_no_call_in_flight()
    assert set(caught) == {asyncio.CancelledError}
    assert gate.snapshot()["active"] == 0


def test_map_without_an_event_loop_in_real_time() -> None:
    """A map in a thread without an event loop creates a loop and closes it."""
    gate = tidegate.Gate(targets={"small": 4})
    with FakeTarget(otherwise=ok("hi")).installed():
        assert [result.get() for result in gate.map(calls_model(gate), range(40), ordered=True)] == ["hi"] * 40
        for result in gate.map(calls_model(gate), CountingSource()):
            assert result.get() == "hi"
            if result.index > 20:
                break


def test_stop_iteration_of_a_plain_function_is_the_error_of_its_item() -> None:
    def raises(_: int) -> str:
        return next(iter(()))

    gate = tidegate.Gate(tools={"db": 1})
    (result,) = gate.map(raises, [1])
    assert isinstance(result.error, RuntimeError)
    assert isinstance(result.error.__cause__, StopIteration)


def test_interrupt_of_a_map_without_an_event_loop_reaches_the_caller() -> None:
    ended: list[int] = []

    async def function(item: int) -> int:
        if item == 1:
            raise KeyboardInterrupt
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(item)
        return item

    gate = tidegate.Gate(tools={"db": 1})
    with pytest.raises(KeyboardInterrupt):
        list(gate.map(function, [0, 1]))
    assert ended == [0]


def test_source_that_is_cancelled_by_itself_does_not_end_the_map_as_if_complete() -> None:
    async def source() -> Any:
        yield 1
        raise asyncio.CancelledError

    async def function(item: int) -> int:
        return item

    seen: set[int] = set()

    async def read() -> None:
        async for result in tidegate.Gate(tools={"db": 1}).map(function, source()):
            seen.add(result.get())

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(read())
    assert seen == {1}
