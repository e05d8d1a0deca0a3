"""Tests of virtual time: the order of events in asyncio, gates and fake targets is repeatable."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

import tidegate
from httpx_packages import INSTALLED, module
from provider_payloads import CHAT_STREAM, MESSAGES
from tidegate.testing import FakeTarget, VirtualClock, ok, rate_limited, run, stall, status
from upstream import Upstream, events

URL = "https://models.example.com/v1"
HOUR = 3600.0


def asynchronous(gate: tidegate.Gate) -> openai.AsyncOpenAI:
    return gate.wrap(openai.AsyncOpenAI(base_url=URL, api_key="k"))


def synchronous(gate: tidegate.Gate) -> openai.OpenAI:
    return gate.wrap(openai.OpenAI(base_url=URL, api_key="k"))


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    with VirtualClock() as clock:
        yield clock


def run_traffic(seed: int) -> tuple[list[str], float]:
    """Runs two hundred agents that call one fake model, on virtual time.

    The model serves 8 calls at a time. It answers the first five calls with 429, and some later
    ones with 500. Returns the trace of the fake target, and the virtual seconds of the run.
    """

    async def agent(sdk: openai.AsyncOpenAI, gate: tidegate.Gate, number: int) -> None:
        await asyncio.sleep(number * 0.25)
        async with gate.tool("search"):
            await asyncio.sleep(1.5)
        chunks = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in chunks]) == "the tide comes in"

    async def fan_out() -> float:
        gate = tidegate.Gate(
            targets={"small": {"cap": 10, "retry": {"attempts": 20}, "deadline": 3600}}, tools={"search": 12}
        )
        sdk = asynchronous(gate)
        await asyncio.gather(*(agent(sdk, gate, number) for number in range(200)))
        return asyncio.get_running_loop().time()

    good = ok("the tide comes in", after=2, every=0.5)
    script = [rate_limited(90).times(5), *[good.times(9), status(500)] * 9]
    target = FakeTarget(*script, otherwise=good, capacity=8, retry_after=7)
    with target.installed():
        took = run(fan_out(), seed=seed)
    target.assert_no_call_in_flight()
    assert len(target.calls) == 200
    return target.trace(), took


def test_runs_of_ten_minutes_have_equal_traces() -> None:
    first, took = run_traffic(1)
    again, took_again = run_traffic(1)
    assert took > 300
    assert (first, took) == (again, took_again)
    assert any("capacity 429" in line for line in first)
    other, _ = run_traffic(2)
    assert other != first, "the seed decides the jitter"


def test_sleeps_of_all_kinds_have_one_order() -> None:
    seen: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, round(asyncio.get_running_loop().time(), 3)))

    async def caller() -> None:
        await asynchronous(tidegate.Gate()).chat.completions.create(model="small", messages=MESSAGES)
        seen.append(("call", round(asyncio.get_running_loop().time(), 3)))

    async def all_of_them() -> None:
        await asyncio.gather(sleeper("year", 365 * 24 * HOUR), sleeper("late", 31), caller(), sleeper("early", 29))

    with FakeTarget(ok(after=30)).installed():
        run(all_of_them())
    assert seen == [("early", 29.0), ("call", 30.0), ("late", 31.0), ("year", 365 * 24 * HOUR)]


def test_plain_function_waits_on_virtual_time(clock: VirtualClock) -> None:
    with FakeTarget(rate_limited(90), ok("hi")).installed() as target:
        sdk = synchronous(tidegate.Gate())
        assert sdk.chat.completions.create(model="small", messages=MESSAGES).choices[0].message.content == "hi"
        assert clock.time() >= 90
        clock.advance(HOUR)
        assert clock.time() >= HOUR + 90
    assert target.calls[0].statuses == [429, 200]


def test_plain_function_reads_a_stream_on_virtual_time(clock: VirtualClock) -> None:
    with FakeTarget(ok("the tide", after=5, every=60)).installed():
        chunks = synchronous(tidegate.Gate()).chat.completions.create(model="small", messages=MESSAGES, stream=True)
        times = [clock.time() for chunk in chunks if chunk.choices[0].delta.content]
    assert times == pytest.approx([5, 65], abs=0.01)


def test_deadlines_and_timeouts_are_virtual() -> None:
    async def late() -> float:
        sdk = asynchronous(tidegate.Gate())
        with tidegate.context(deadline=20) as context:
            await asyncio.sleep(5)
            assert context.remaining == pytest.approx(15, abs=0.01)
            with pytest.raises(openai.APIStatusError, match="deadline"):
                await sdk.chat.completions.create(model="small", messages=MESSAGES)
        return asyncio.get_running_loop().time()

    async def wait_without_timer() -> None:
        sdk = asynchronous(tidegate.Gate(targets={"small": {"idle": 45}}))
        chunks = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
        # Within a stream, openai 2.x raises the transport's exception.
        with pytest.raises((openai.APIError, *(module(name).ReadTimeout for name in INSTALLED))):
            _ = [chunk async for chunk in chunks]
        assert asyncio.get_running_loop().time() == pytest.approx(45, abs=1)

    with FakeTarget(ok(after=60)).installed():
        assert run(late()) == pytest.approx(20, abs=0.01)
    with FakeTarget(stall("half")).installed():
        run(wait_without_timer())


def test_time_does_not_pass_while_a_thread_works() -> None:
    go = threading.Event()

    async def both() -> float:
        loop = asyncio.get_running_loop()
        work = asyncio.create_task(asyncio.to_thread(go.wait))
        timer = asyncio.create_task(asyncio.sleep(HOUR))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not timer.done()
        go.set()
        await work
        stood = loop.time()
        await timer
        return stood

    assert run(both()) == 0


def test_sync_call_in_a_thread_does_not_overtake_the_loop() -> None:
    seen: list[float] = []

    async def agent() -> None:
        sdk = synchronous(tidegate.Gate())
        call = asyncio.create_task(asyncio.to_thread(sdk.chat.completions.create, model="small", messages=MESSAGES))
        while not call.done():
            await asyncio.sleep(7)
            seen.append(asyncio.get_running_loop().time())
        assert (await call).choices[0].message.content == "hi"

    with FakeTarget(rate_limited(90), ok("hi", after=10)).installed():
        run(agent())
    assert seen == pytest.approx([7.0 * n for n in range(1, len(seen) + 1)], abs=0.1)
    assert 100 <= seen[-1] <= 115


def test_sync_clients_in_a_thread_pool_are_on_virtual_time() -> None:
    """Waits of synchronous clients take no real time if their threads belong to the executor.

    Virtual time may pass while threads outside of the event loop's executor compute.
    """

    async def all_of_them() -> float:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(8))
        gate = tidegate.Gate(targets={"small": {"cap": 8, "retry": {"attempts": 100, "reserve": 1_000}}})
        sdk = synchronous(gate)

        def ask_three_times() -> list[str | None]:
            answers = [sdk.chat.completions.create(model="small", messages=MESSAGES) for _ in range(3)]
            return [answer.choices[0].message.content for answer in answers]

        # As many as there are threads. Time does not pass for work that waits for a thread either.
        assert await asyncio.gather(*(asyncio.to_thread(ask_three_times) for _ in range(8))) == [["hi"] * 3] * 8
        return loop.time()

    with FakeTarget(rate_limited(30), otherwise=ok("hi", after=3), capacity=4, retry_after=2).installed() as target:
        assert run(all_of_them()) > 30
        target.assert_no_call_in_flight()


def test_sockets_are_rejected() -> None:
    async def connects() -> None:
        left, right = socket.socketpair()
        with left, right, pytest.raises(RuntimeError, match="virtual time and does not support sockets"):
            asyncio.get_running_loop().add_reader(left, print)

    run(connects())


def test_wait_that_can_never_end_is_an_error() -> None:
    async def wait_forever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match=r"nothing can wake this event loop(.|\n)*wait_forever"):
        run(wait_forever())


def test_nested_clocks_and_real_loops_are_rejected(clock: VirtualClock) -> None:
    async def call() -> None:
        async with tidegate.Gate().httpx_async_client() as http:
            await http.post(f"{URL}/chat/completions", json={"model": "small", "messages": MESSAGES})

    with pytest.raises(RuntimeError, match="cannot be nested"):
        run(asyncio.sleep(0))
    with FakeTarget().installed():
        with pytest.raises(RuntimeError, match="this event loop runs on real time"):
            asyncio.run(call())
        clock.run(call())


def test_calls_on_real_time_continue(upstream: Upstream) -> None:
    """A stream that began before virtual time was installed is read to its end, on its own loop."""
    upstream.handler = events(*CHAT_STREAM)
    sdk = tidegate.Gate().wrap(openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="k"))
    begun, virtual = threading.Event(), threading.Event()

    async def reads() -> list[Any]:
        chunks = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
        text = [(await anext(aiter(chunks))).choices[0].delta.content]
        begun.set()
        await asyncio.to_thread(virtual.wait)
        return text + [chunk.choices[0].delta.content async for chunk in chunks]

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(asyncio.run, reads())
        begun.wait()
        with VirtualClock() as clock, FakeTarget(otherwise=ok("fake")).installed():
            virtual.set()
            assert reading.result() == ["hel", "lo", None]
            clock.advance(1)


def test_loop_cannot_be_created_outside_the_clock() -> None:
    with pytest.raises(RuntimeError, match="inside `with` the clock"):
        VirtualClock().new_event_loop()


def test_asyncio_runner_waits_for_its_threads(clock: VirtualClock) -> None:
    """On virtual time, `asyncio.run` waits for its threads without a limit, and no time passes.

    Since Python 3.12, `asyncio.run` waits for them for at most five minutes, in time of the loop.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.events, "new_event_loop", clock.new_event_loop)
        assert asyncio.run(asyncio.to_thread(sum, [1, 2])) == 3
    assert clock.time() == 0


def test_left_clock_leaves_no_objects_behind() -> None:
    async def left_behind() -> None:
        asyncio.get_running_loop().create_task(
            asynchronous(tidegate.Gate()).chat.completions.create(model="small", messages=MESSAGES)
        )
        await asyncio.sleep(1)

    with FakeTarget(otherwise=ok(after=HOUR)).installed() as target:
        run(left_behind())
        target.assert_no_call_in_flight()
    assert [attempt.outcome for attempt in target.attempts] == ["cancelled"]
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
    assert asyncio.run(asyncio.sleep(0, "real")) == "real"
