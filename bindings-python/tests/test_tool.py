"""Tests of `Gate.tool` and of `tidegate.context`."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from datetime import timedelta
from typing import Any

import openai
import pytest

import tidegate
from provider_payloads import CHAT, MESSAGES
from upstream import WAIT, Upstream, answer


@pytest.fixture
def gate() -> tidegate.Gate:
    return tidegate.Gate(tools={"db": 1, "search": {"cap": 2, "on_full": "refuse"}})


def held(gate: tidegate.Gate, tool: str) -> int:
    in_flight: int = gate.snapshot()["tools"][tool]["in_flight"]
    return in_flight


async def test_tool_is_held_in_with_and_async_with(gate: tidegate.Gate) -> None:
    async with gate.tool("db"):
        assert held(gate, "db") == 1
    with gate.tool("db"):
        assert held(gate, "db") == 1
    assert held(gate, "db") == 0


async def test_cap_limits_tasks(gate: tidegate.Gate) -> None:
    inside = most = 0

    @gate.tool("db")
    async def query(n: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        return n

    assert await asyncio.gather(*(query(n) for n in range(20))) == list(range(20))
    assert most == 1
    assert held(gate, "db") == 0


def test_cap_limits_threads(gate: tidegate.Gate) -> None:
    lock = threading.Lock()

    @gate.tool("db")
    def query() -> None:
        """A decorated function."""
        assert lock.acquire(blocking=False)
        lock.release()

    threads = [threading.Thread(target=query) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert query.__doc__ == "A decorated function."
    assert held(gate, "db") == 0


async def test_callable_object_holds_its_slot_until_its_coroutine_ends(gate: tidegate.Gate) -> None:
    class Search:
        async def __call__(self) -> int:
            await asyncio.sleep(0)
            return held(gate, "db")

    assert await gate.tool("db")(Search())() == 1
    with pytest.raises(TypeError, match="async with"):
        gate.tool("db")(lambda: asyncio.sleep(0))()
    assert held(gate, "db") == 0


async def test_full_queue_rejects(gate: tidegate.Gate) -> None:
    search = gate.tool("search")
    async with search, search:
        with pytest.raises(tidegate.Refused) as refused:
            async with search:
                pass
    error = refused.value
    assert (error.kind, error.reason, error.target, error.status, error.retryable) == (
        "refused",
        "no_slot",
        "search",
        429,
        True,
    )
    assert held(gate, "search") == 0


async def test_cancelled_wait_leaves_the_queue(gate: tidegate.Gate) -> None:
    async with gate.tool("db"):
        task = in_own_task(gate.tool("db").__aenter__())
        while not gate.snapshot()["tools"]["db"]["queue_depth"]:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with gate.tool("db"):
        pass


async def test_slot_for_a_cancelled_task_is_released(gate: tidegate.Gate) -> None:
    for turns in range(30):
        task = asyncio.create_task(gate.tool("db").__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await (await task).__aexit__(None, None, None)
        while held(gate, "db"):
            await asyncio.sleep(0)


async def test_cycle_of_tools_is_rejected(gate: tidegate.Gate) -> None:
    async with gate.tool("db"):
        with pytest.raises(tidegate.Refused, match="db") as refused:
            async with gate.tool("db"):
                pass
    assert refused.value.reason == "deadlock"
    assert not refused.value.retryable


async def test_generator_functions_are_rejected(gate: tidegate.Gate) -> None:
    with pytest.raises(TypeError, match="generator"):

        @gate.tool("db")
        def rows() -> object:
            yield 1


async def test_blocks_that_are_entered_and_left_in_other_contexts_release_all_slots(gate: tidegate.Gate) -> None:
    shared = gate.tool("search")
    await asyncio.to_thread(shared.__enter__)
    async with shared:
        assert held(gate, "search") == 2
        await asyncio.to_thread(shared.__exit__, None, None, None)
        assert held(gate, "search") == 1
    assert held(gate, "search") == 0
    with shared, shared:
        assert held(gate, "search") == 2
    assert held(gate, "search") == 0


async def test_deadline_ends_a_wait(gate: tidegate.Gate) -> None:
    async with gate.tool("db"):

        async def other() -> None:
            async with gate.tool("db", deadline=0.01):
                pass

        with pytest.raises(tidegate.Refused) as refused:
            await in_own_task(other())
        assert refused.value.reason in ("deadline", "wait_budget")


def in_own_task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Runs a coroutine as a task with an empty context, in which no slot is held."""
    return contextvars.Context().run(asyncio.ensure_future, work)  # type: ignore[arg-type, return-value]


def test_nested_context_inherits_and_the_earlier_deadline_applies() -> None:
    with tidegate.context(tenant="acme", deadline=100) as outer:
        assert (outer.tenant, outer.lane) == ("acme", "standard")
        with tidegate.context(lane="batch", deadline=1000) as inner:
            assert (inner.tenant, inner.lane) == ("acme", "batch")
            assert inner.remaining is not None
            assert inner.remaining <= 100
        with tidegate.context(deadline=1) as inner:
            assert inner.remaining is not None
            assert inner.remaining <= 1
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="deadline"), tidegate.context(deadline=wrong):
            pass
    with pytest.raises(ValueError, match="interactive"), tidegate.context(lane="express"):  # type: ignore[arg-type]
        pass


async def test_context_decorates_functions_and_coroutine_functions() -> None:
    async def tenant() -> str | None:
        async with gate.slot("model"):
            return next(explanation.tenant for explanation in gate.explain())

    class Agent:
        async def __call__(self) -> str | None:
            return await tenant()

    gate = tidegate.Gate({"model": {"cap": 8, "url": "none"}})
    acme = tidegate.context(tenant="acme")
    with tidegate.context(tenant="outer"):
        assert await asyncio.gather(acme(tenant)(), tenant(), acme(Agent())()) == ["acme", "outer", "acme"]
        assert await acme(lambda: asyncio.create_task(tenant()))() == "acme"
        assert await tenant() == "outer"
    assert acme(tenant).__name__ == "tenant"


def test_context_as_a_decorator_rejects_generator_functions() -> None:
    def rows() -> Iterator[int]:
        yield 1

    async def events() -> AsyncIterator[int]:
        yield 1

    for function in (rows, events):
        with pytest.raises(TypeError, match=rf"^{function.__name__} is a generator function.*around the loop"):
            tidegate.context(tenant="acme")(function)


def test_context_object_can_be_entered_again() -> None:
    acme = tidegate.context(tenant="acme")
    with acme as outer, tidegate.context(tenant="inner"), acme as inner:
        assert outer.tenant == inner.tenant == "acme"
    with tidegate.context() as left:
        assert left.tenant is None


@pytest.mark.parametrize("name", ["tenant", "lane", "call"])
def test_context_with_another_type_than_a_string_is_rejected(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name}: give a string$"), tidegate.context(**{name: 5}):  # type: ignore[arg-type]
        pass


async def test_tenant_reaches_the_target(upstream: Upstream) -> None:
    gate = tidegate.Gate(tenants={"acme": {"weight": 2}})
    upstream.handler = answer(CHAT)
    sdk = gate.wrap(openai.AsyncOpenAI(base_url=upstream.url, api_key="k"))
    with tidegate.context(tenant="acme"):
        await sdk.chat.completions.create(model="small", messages=MESSAGES)
    (target,) = gate.snapshot()["targets"].values()
    assert "acme" in target["tenants"]


async def test_drain_rejects_new_calls_and_waits(upstream: Upstream, gate: tidegate.Gate) -> None:
    assert await gate.adrain(0.01) == 0
    with pytest.raises(tidegate.Refused) as refused:
        async with gate.tool("db"):
            pass
    assert refused.value.reason == "draining"
    sdk = gate.wrap(openai.AsyncOpenAI(base_url=upstream.url, api_key="k"))
    with pytest.raises(openai.InternalServerError) as closed:
        await sdk.chat.completions.create(model="small", messages=MESSAGES)
    assert closed.value.status_code == 503
    assert tidegate.Gate().drain(WAIT) == 0


def test_configuration_of_tools() -> None:
    gate = tidegate.Gate(
        targets={"openai": 32, "llama": {"url": "http://127.0.0.1:1/v1", "wait": timedelta(seconds=3)}},
        tools={"db": 8},
        mode="observe",
    )
    assert gate.mode == "observe"
    assert "tidegate" in gate.prometheus()
    assert set(gate.snapshot()["tools"]) == {"db"}
    assert repr(gate) == "<tidegate.Gate mode=observe>"
    with pytest.raises(TypeError, match="object"):
        tidegate.Gate(targets={"openai": object()})
