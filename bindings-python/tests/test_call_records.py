"""Tests of call records and snapshots."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest

import tidegate
from provider_payloads import CHAT, MESSAGES
from upstream import Upstream, answer

TIMES = ("queued_at", "admitted_at", "sent_at", "first_token_at", "released_at")


async def test_ended_calls_are_recorded(upstream: Upstream) -> None:
    gate = tidegate.Gate(targets={"llm": {"cap": 1, "retry": {"attempts": 2, "base": "1ms", "max": "1ms"}}})
    assert gate.calls() == []
    upstream.handler = answer({}, status=503)
    with tidegate.context(tenant="acme", lane="batch"):
        body = {"model": "small", "messages": MESSAGES}
        response = await gate.httpx_async_client().post(upstream.url + "/v1/chat/completions", json=body)
    assert response.status_code == 503
    while gate.snapshot()["active"]:
        await asyncio.sleep(0)
    (call,) = gate.calls()
    assert (call["target"], call["tenant"], call["lane"], call["model"]) == ("llm", "acme", "batch", "small")
    assert call["outcome"] == "failed"
    assert (call["estimated_input_tokens"], call["max_output_tokens"]) == (6, None)
    assert (call["input_tokens"], call["output_tokens"]) == (None, None)
    assert [attempt["status"] for attempt in call["attempts"]] == [503, 503]
    first, last = (attempt["backoff"] for attempt in call["attempts"])
    assert (0 <= first <= 0.001, last) == (True, None)
    for attempt in call["attempts"]:
        assert set(attempt) == {*TIMES, "status", "backoff", "replica", "in_flight"}
        assert attempt["first_token_at"] is None
        seen = [attempt[stamp] for stamp in TIMES if attempt[stamp] is not None]
        assert seen == sorted(seen)
        assert 0 <= seen[0] <= seen[-1] <= call["duration"]


async def test_number_of_recorded_calls_is_limited(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)
    http = gate.httpx_async_client(base_url=upstream.url)
    for _ in range(1030):
        await http.post("/v1/chat/completions", json={"model": "small", "messages": MESSAGES})
    while gate.snapshot()["active"]:
        await asyncio.sleep(0)
    ids = [call["id"] for call in gate.calls()]
    assert len(ids) == 1024
    assert ids == sorted(ids)


@pytest.fixture
def threads_switch_rarely() -> Iterator[None]:
    """Prevents timed thread switches. A thread then runs until it waits or releases the GIL."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("threads_switch_rarely")
@pytest.mark.parametrize("look", ["snapshot", "prometheus", "calls"])
def test_snapshots_let_other_threads_run(look: str, gate: tidegate.Gate) -> None:
    go, ran = threading.Lock(), []

    def other() -> None:
        with go:
            ran.append(True)

    with go:
        thread = threading.Thread(target=other)
        thread.start()
    for _ in range(100_000):
        getattr(gate, look)()
        if ran:
            break
    assert ran
    thread.join()
