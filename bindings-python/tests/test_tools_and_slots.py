"""Tests of tasks that hold a slot of a model and wait for a tool: warnings and released slots."""

from __future__ import annotations

import asyncio
import contextvars
import linecache
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import openai
import pytest

import tidegate
from provider_payloads import CHAT_STREAM, MESSAGES
from tidegate.testing import FakeTarget, ok, run
from upstream import WAIT, Exchange, Upstream, event, events

URL = "https://models.example.com/v1"
TEXT = "the tide comes in"
STREAMED = {"model": "small", "stream": True, "messages": MESSAGES}


@pytest.fixture
def gate(upstream: Upstream) -> tidegate.Gate:
    upstream.handler = events(*CHAT_STREAM)
    return tidegate.Gate({"small": {"cap": 1, "models": ["small"]}}, tools={"db": 1, "search": 8})


def asynchronous(gate: tidegate.Gate, url: str) -> openai.AsyncOpenAI:
    return gate.wrap(openai.AsyncOpenAI(base_url=url, api_key="k"))


def held(gate: tidegate.Gate) -> dict[str, int]:
    seen: dict[str, int] = gate.snapshot()["tools"]["db"]["slot_held"].get("small", {})
    return seen


def in_flight(gate: tidegate.Gate) -> int:
    count: int = gate.snapshot()["targets"]["small"]["in_flight"]
    return count


def in_own_task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Runs a coroutine as a task with an empty context, in which no slot is held."""
    return contextvars.Context().run(asyncio.ensure_future, work)  # type: ignore[arg-type, return-value]


async def occupied(gate: tidegate.Gate) -> Callable[[], None]:
    """Starts a task that holds a slot of the tool `db`.

    Returns a function that makes the task release the slot.
    """
    done, has = asyncio.Event(), asyncio.Event()

    async def other() -> None:
        async with gate.tool("db"):
            has.set()
            await done.wait()

    task = in_own_task(other())
    await has.wait()
    done.__dict__["task"] = task
    return done.set


async def use(gate: tidegate.Gate) -> None:
    async with gate.tool("db"):  # the warning points here
        pass


async def begun(sdk: openai.AsyncOpenAI) -> openai.AsyncStream[Any]:
    stream = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
    await stream.__anext__()
    return stream


async def test_waiting_for_a_tool_with_an_open_response_warns_at_the_callers_line(
    gate: tidegate.Gate, upstream: Upstream
) -> None:
    free = await occupied(gate)
    stream = await begun(asynchronous(gate, upstream.url))
    asyncio.get_running_loop().call_later(0.01, free)
    with pytest.warns(tidegate.SlotHeldWarning, match=r"tool db .*slot of small.*yield_slot=True") as warned:
        await use(gate)
    (shown,) = warned
    assert shown.filename == __file__
    assert linecache.getline(__file__, shown.lineno).endswith("# the warning points here\n")
    assert held(gate) == {"waited": 1}
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "lo"


async def test_warning_as_an_error_prevents_the_wait(gate: tidegate.Gate, upstream: Upstream) -> None:
    free = await occupied(gate)
    stream = await begun(asynchronous(gate, upstream.url))
    # The suite turns warnings into errors.
    with pytest.raises(tidegate.SlotHeldWarning):
        await use(gate)
    free()
    await stream.close()
    async with gate.tool("db"):
        assert gate.snapshot()["tools"]["db"]["queue_depth"] == 0


async def test_decorated_function_warns_its_caller(gate: tidegate.Gate, upstream: Upstream) -> None:
    free = await occupied(gate)
    stream = await begun(asynchronous(gate, upstream.url))

    @gate.tool("db")
    async def query() -> None:
        pass

    asyncio.get_running_loop().call_later(0.01, free)
    with pytest.warns(tidegate.SlotHeldWarning) as warned:
        await query()
    assert [warning.filename for warning in warned] == [__file__]
    await stream.close()


async def test_warning_is_shown_once_for_each_line(gate: tidegate.Gate, upstream: Upstream) -> None:
    stream = await begun(asynchronous(gate, upstream.url))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(3):
            free = await occupied(gate)
            asyncio.get_running_loop().call_later(0.01, free)
            async with gate.tool("db"):
                pass
    assert len(shown) == 1
    assert held(gate) == {"waited": 3}
    await stream.close()


async def test_no_warning_without_a_held_slot(gate: tidegate.Gate, upstream: Upstream) -> None:
    sdk = asynchronous(gate, upstream.url)
    stream = await begun(sdk)
    async with gate.tool("search"):  # The tool is free, so there is no wait.
        pass
    assert gate.snapshot()["tools"]["search"]["slot_held"] == {"small": {"got": 1}}

    async def other() -> None:
        async with gate.tool("db"):
            pass

    free = await occupied(gate)
    waiting = in_own_task(other())  # The response of another task.
    while not gate.snapshot()["tools"]["db"]["queue_depth"]:
        await asyncio.sleep(0)
    await stream.close()
    own = asyncio.ensure_future(other())
    free()
    await asyncio.gather(waiting, own)
    async for _ in await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True):
        pass
    async with gate.tool("db"):
        pass
    assert held(gate) == {}


async def test_slot_of_a_target_warns(gate: tidegate.Gate) -> None:
    free = await occupied(gate)
    asyncio.get_running_loop().call_later(0.01, free)
    async with gate.slot("small"):
        with pytest.warns(tidegate.SlotHeldWarning, match="Release the slot"):
            await gate.tool("db", yield_slot=True)(asyncio.sleep)(0)


def test_sync_call_with_an_open_response_warns(gate: tidegate.Gate, upstream: Upstream) -> None:
    sdk = gate.wrap(openai.OpenAI(base_url=upstream.url, api_key="k"))
    has, done = threading.Event(), threading.Event()

    def other() -> None:
        with gate.tool("db"):
            has.set()
            assert done.wait(WAIT)

    thread = threading.Thread(target=other)
    thread.start()
    assert has.wait(WAIT)
    stream = sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
    next(stream)
    threading.Timer(0.01, done.set).start()
    with pytest.warns(tidegate.SlotHeldWarning) as warned, gate.tool("db"):
        pass
    assert [warning.filename for warning in warned] == [__file__]
    stream.close()
    thread.join()


def both_orders(*, yield_slot: bool, caller_first: bool) -> list[str]:
    """Runs two tasks that acquire a model slot and a tool in opposite orders.

    Returns, for each task, the text of its model answer or the class name of its exception. The
    first task acquires the model slot and then the tool. It starts before the second task if
    `caller_first` is true, otherwise after it. `yield_slot` is the setting of its tool.
    """
    gate = tidegate.Gate({"small": 1}, tools={"db": 1})
    sdk = asynchronous(gate, URL)

    async def holds_slot() -> str:
        await asyncio.sleep(0 if caller_first else 0.1)
        with tidegate.context(deadline=60):
            stream = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
            await asyncio.sleep(0.2)
            async with gate.tool("db", yield_slot=yield_slot):
                await asyncio.sleep(1)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def holds_tool() -> str:
        await asyncio.sleep(0.1 if caller_first else 0)
        with tidegate.context(deadline=60):
            async with gate.tool("db"):
                await asyncio.sleep(0.2)
                stream = await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def both() -> list[Any]:
        return await asyncio.gather(holds_slot(), holds_tool(), return_exceptions=True)

    target = FakeTarget(otherwise=ok(TEXT, after=0.01, every=0.1))
    with target.installed(), warnings.catch_warnings():
        warnings.simplefilter("ignore", tidegate.SlotHeldWarning)
        ended = run(both())
    target.assert_no_call_in_flight()
    return [end if isinstance(end, str) else type(end).__name__ for end in ended]


@pytest.mark.parametrize("caller_first", [True, False])
def test_two_tasks_in_opposite_orders_finish_with_yield_slot(caller_first: bool) -> None:
    assert both_orders(yield_slot=True, caller_first=caller_first) == [TEXT, TEXT]
    assert both_orders(yield_slot=False, caller_first=caller_first) != [TEXT, TEXT]


@pytest.mark.parametrize("transport", ["native", "keep"])
async def test_yielded_slot_is_free_while_the_tool_is_held(
    gate: tidegate.Gate, upstream: Upstream, transport: Any
) -> None:
    whole = b"".join(event(line) for line in CHAT_STREAM)
    cut = len(event(CHAT_STREAM[0])) + 7  # The head arrives with the first event.
    go = threading.Event()

    async def answer_slowly(exchange: Exchange) -> None:
        await exchange.head(content_type="text/event-stream", transfer_encoding="chunked")
        await exchange.chunk(whole[:cut])
        while not go.is_set():
            await asyncio.sleep(0)
        await exchange.chunk(whole[cut:])
        await exchange.chunk(b"")

    upstream.handler = answer_slowly
    async with (
        gate.httpx_async_client(family="httpx", transport=transport) as client,
        client.stream(
            "POST", upstream.url + "/v1/chat/completions", json={"model": "small", "stream": True}
        ) as response,
    ):
        assert isinstance(response, httpx.Response)
        async with gate.tool("db", yield_slot=True):
            assert in_flight(gate) == 1
            go.set()
            while in_flight(gate):
                await asyncio.sleep(0)
        assert await response.aread() == whole
    assert held(gate) == {"yielded": 1}


def test_tool_has_a_rate_and_a_cap() -> None:
    async def script() -> list[float]:
        gate = tidegate.Gate(tools={"db": {"cap": 8, "rps": 2}, "once": {"cap": 8, "rpm": 1, "on_full": "refuse"}})
        at = []
        for _ in range(9):
            async with gate.tool("db"):
                at.append(asyncio.get_running_loop().time())
        async with gate.tool("once"):
            pass
        with pytest.raises(tidegate.Refused, match="once") as refused:
            async with gate.tool("once"):
                pass
        assert refused.value.reason == "no_budget"
        assert refused.value.why is not None
        assert refused.value.why.rule == "requests"
        return [moment - at[0] for moment in at]

    at = run(script())
    assert all(later - earlier >= 1 for earlier, later in zip(at, at[4:], strict=False))
    assert 3 <= at[-1] <= 5
