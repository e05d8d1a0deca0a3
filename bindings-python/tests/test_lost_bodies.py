"""Tests that waiting calls collect the response bodies that the program has lost. Time is virtual."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

import tidegate
from provider_payloads import MESSAGES
from tidegate.testing import Answer, FakeTarget, VirtualClock, ok, run, stall

URL = "https://models.example.com/v1"
STALLED = stall("the", "tide")


@pytest.fixture(autouse=True)
def collections() -> Iterator[list[str]]:
    """Switches automatic collections off, and yields the list of the collections on demand."""
    found: list[str] = []

    def record(phase: str, _: Any) -> None:
        if phase == "start":
            found.append(phase)

    gc.collect()
    gc.disable()
    gc.callbacks.append(record)
    yield found
    gc.callbacks.remove(record)
    gc.enable()


@contextmanager
def one_slot(*answers: Answer, cap: int = 1) -> Iterator[tidegate.Gate]:
    """Installs a fake target that gives the answers, and yields a gate with `cap` slots for it."""
    with FakeTarget(*answers).installed():
        yield tidegate.Gate({"models": {"cap": cap, "url": URL}})


def asynchronous(gate: tidegate.Gate) -> openai.AsyncOpenAI:
    return gate.wrap(openai.AsyncOpenAI(base_url=URL, api_key="k"))


def synchronous(gate: tidegate.Gate) -> openai.OpenAI:
    return gate.wrap(openai.OpenAI(base_url=URL, api_key="k"))


def ask(sdk: Any, **more: Any) -> Any:
    return sdk.chat.completions.create(model="small", messages=MESSAGES, **more)


async def read_first_chunk(sdk: openai.AsyncOpenAI) -> None:
    async for _ in await ask(sdk, stream=True):
        break


@pytest.mark.parametrize("wait", ["call", "slot"])
def test_stream_that_was_left_is_collected_while_a_coroutine_waits(wait: str, collections: list[str]) -> None:
    async def main() -> None:
        sdk = asynchronous(gate)
        await read_first_chunk(sdk)
        assert gate.snapshot()["targets"]["models"]["in_flight"] == 1
        if wait == "call":
            answer = await asyncio.wait_for(ask(sdk), 10)
            assert answer.choices[0].message.content == "done"
        else:
            await asyncio.wait_for(gate.slot("models").__aenter__(), 10)

    with one_slot(STALLED, ok("done")) as gate:
        run(main())
    assert 1 <= len(collections) <= 2


@pytest.mark.parametrize("wait", ["call", "slot", "upload"])
def test_stream_that_was_left_is_collected_while_a_thread_waits(wait: str, collections: list[str]) -> None:
    with VirtualClock() as clock, one_slot(STALLED, ok("done")) as gate:
        sdk = synchronous(gate)
        lose_in_cycle(ask(sdk, stream=True))
        before = clock.time()
        if wait == "call":
            ask(sdk)
        elif wait == "slot":
            gate.slot("models").__enter__()
        else:
            gate.httpx_client().post(f"{URL}/chat/completions", content=iter([b"x" * 70_000] * 20))
        assert clock.time() - before < 10
    assert len(collections) == 1


def lose_in_cycle(stream: Any) -> None:
    """Reads one chunk of a stream, and loses it in a reference cycle."""
    holder: dict[str, Any] = {"stream": stream, "iterator": iter(stream)}
    next(holder["iterator"])
    holder["itself"] = holder


def test_nothing_is_collected_while_bodies_are_read(collections: list[str]) -> None:
    async def read(sdk: openai.AsyncOpenAI) -> None:
        async for _ in await ask(sdk, stream=True):
            pass

    async def main(*work: Callable[[], Any]) -> None:
        first, second = (asyncio.ensure_future(start()) for start in work)
        await asyncio.gather(first, second)
        assert asyncio.get_running_loop().time() > 60

    slow = ok("the tide comes in", after=2, every=20)
    with one_slot(slow, ok("done"), slow, ok("done")) as gate:
        sdk, sync_sdk = asynchronous(gate), synchronous(gate)
        run(main(lambda: read(sdk), lambda: ask(sdk)))
        read_all = lambda: list(ask(sync_sdk, stream=True))  # noqa: E731
        run(main(lambda: asyncio.to_thread(read_all), lambda: asyncio.to_thread(ask, sync_sdk)))
    assert collections == []


def test_answers_of_other_calls_postpone_a_collection(collections: list[str]) -> None:
    async def main() -> None:
        sdk = asynchronous(gate)
        held = await ask(sdk, stream=True)
        await asyncio.gather(*(ask(sdk) for _ in range(50)))
        assert collections == []
        await held.close()

    with one_slot(STALLED, ok("done", after=0.7).times(50), cap=2) as gate:
        run(main())


def test_collections_without_an_answer_are_repeated_at_growing_intervals(collections: list[str]) -> None:
    async def main() -> None:
        sdk = asynchronous(gate)
        held = await ask(sdk, stream=True)
        waiting = [asyncio.ensure_future(ask(sdk)) for _ in range(10)]
        await asyncio.sleep(100)
        assert 5 <= len(collections) <= 6
        await held.close()
        await asyncio.gather(*waiting)

    with one_slot(STALLED, ok().times(10)) as gate:
        run(main())
