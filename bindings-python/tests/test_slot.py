"""Tests of `Gate.slot`: slots of targets for calls that make no HTTP request through the gate."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import openai
import pytest

import tidegate
from provider_payloads import CHAT, MESSAGES
from upstream import Upstream, answer

TOO_MANY = 429
BAD_REQUEST = 400
OVERLOADED = 503


@pytest.fixture
def gate() -> tidegate.Gate:
    return tidegate.Gate({"bedrock": {"cap": 1, "url": "none"}, "openai": 8})


def slot_state(gate: tidegate.Gate) -> dict[str, Any]:
    target: dict[str, Any] = gate.snapshot()["targets"]["bedrock"]
    return target


def outcomes(gate: tidegate.Gate) -> list[str]:
    return [call["outcome"] for call in gate.calls()]


async def test_slot_is_held_in_with_and_async_with(gate: tidegate.Gate) -> None:
    async with gate.slot("bedrock", tenant="acme") as slot:
        assert isinstance(slot, tidegate.Slot)
        assert slot_state(gate)["in_flight"] == 1
    with gate.slot("bedrock"):
        assert slot_state(gate)["in_flight"] == 1
    assert slot_state(gate)["in_flight"] == 0
    assert [(call["tenant"], call["outcome"]) for call in gate.calls()] == [
        ("acme", "completed"),
        ("default", "completed"),
    ]


async def test_decorator_limits_calls_to_the_cap(gate: tidegate.Gate) -> None:
    inside = most = 0

    @gate.slot("bedrock")
    async def converse(n: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        return n

    assert await asyncio.gather(*(converse(n) for n in range(20))) == list(range(20))
    assert (most, outcomes(gate)) == (1, ["completed"] * 20)
    with pytest.raises(TypeError, match="gate.slot"):

        @gate.slot("bedrock")
        def stream() -> object:
            yield 1


def test_cap_limits_threads(gate: tidegate.Gate) -> None:
    lock = threading.Lock()

    @gate.slot("bedrock")
    def converse() -> None:
        assert lock.acquire(blocking=False)
        lock.release()

    threads = [threading.Thread(target=converse) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes(gate) == ["completed"] * 20


async def test_reported_failure_cools_down_and_an_exception_does_not(gate: tidegate.Gate) -> None:
    with pytest.raises(KeyError):
        async with gate.slot("bedrock"):
            raise KeyError
    assert (slot_state(gate)["state"], outcomes(gate)) == ("open", ["cancelled"])
    async with gate.slot("bedrock") as slot:
        assert not slot.failed(BAD_REQUEST)
    assert slot_state(gate)["state"] == "open"
    async with gate.slot("bedrock") as slot:
        assert slot.failed(TOO_MANY, retry_after=60)
    assert (slot_state(gate)["state"], outcomes(gate)) == ("cooling", ["cancelled", "failed", "failed"])
    with pytest.raises(tidegate.Refused) as refused:
        async with gate.slot("bedrock", deadline=1):
            pass
    error = refused.value
    assert (error.reason, error.target) == ("cool_down", "bedrock")
    assert error.retry_after is not None
    assert error.retry_after > 1
    # After its release, a slot has no replica and rejects reports.
    with pytest.raises(RuntimeError, match="this slot was released"):
        slot.succeeded()
    slot.close()


async def test_arguments_of_failed_are_checked(gate: tidegate.Gate) -> None:
    async with gate.slot("bedrock") as slot:
        with pytest.raises(ValueError, match="status"):
            slot.failed(7)
        for wrong in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="retry_after"):
                slot.failed(OVERLOADED, wrong)
    assert outcomes(gate) == ["completed"]


async def test_unknown_target_and_full_queue_are_errors(gate: tidegate.Gate) -> None:
    with pytest.raises(tidegate.UnknownNameError, match="bedrock"):
        async with gate.slot("bedrok"):
            pass
    with gate.slot("bedrock"), pytest.raises(tidegate.Refused) as refused:
        gate.slot("bedrock", deadline=0.01).__enter__()
    assert refused.value.reason == "deadline"


async def test_cancelled_wait_leaves_the_queue(gate: tidegate.Gate) -> None:
    async with gate.slot("bedrock"):
        waiting = gate.slot("bedrock").__aenter__()
        task = contextvars.Context().run(asyncio.ensure_future, waiting)
        while not slot_state(gate)["queue_depth"]:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with gate.slot("bedrock"):
        pass


async def test_slot_for_a_cancelled_task_is_released(gate: tidegate.Gate) -> None:
    for turns in range(30):
        task = asyncio.create_task(gate.slot("bedrock").__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            (await task).close()
        while slot_state(gate)["in_flight"]:
            await asyncio.sleep(0)


async def test_slot_sets_the_context_and_is_recorded(upstream: Upstream) -> None:
    gate = tidegate.Gate({"bedrock": {"cap": 1, "url": "none"}, "llm": {"url": upstream.url}})
    upstream.handler = answer(CHAT)
    sdk = gate.wrap(openai.AsyncOpenAI(base_url=upstream.url, api_key="k"))
    async with gate.slot("bedrock", tenant="acme", lane="batch"):
        await sdk.chat.completions.create(model="small", messages=MESSAGES)
    recorded = [(call["target"], call["tenant"], call["lane"]) for call in gate.calls()]
    assert recorded == [("llm", "acme", "batch"), ("bedrock", "acme", "batch")]


async def test_off_and_observe_modes_do_not_wait() -> None:
    for mode in ("observe", "off"):
        gate = tidegate.Gate({"bedrock": {"cap": 1, "url": "none"}}, mode=mode)  # type: ignore[arg-type]
        async with gate.slot("bedrock"), gate.slot("bedrock") as slot:
            assert slot.failed(OVERLOADED)
        assert slot_state(gate)["in_flight"] == 0
        assert slot_state(gate)["would"] == ({"wait": 1} if mode == "observe" else {})
