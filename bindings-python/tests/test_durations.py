"""Tests that each duration that users can set is used, reduced to the maximum, or rejected."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest

import tidegate
from httpx_packages import INSTALLED, module
from tidegate.testing import FakeTarget, VirtualClock, ok, overloaded, status, stream
from upstream import Upstream, answer

# Ten years in seconds: the maximum duration of a gate.
LONGEST = 10 * 365 * 24 * 3600

HUGE = [sys.maxsize, 1e19, 1e300, sys.float_info.max]
INVALID_NUMBERS = [-1, -1e308, math.nan]
# An integer that is too large for a float, and the smallest floats.
EXTREME_NUMBERS = [10**400, 5e-324, -0.0, math.inf, -math.inf]
ANY = [*HUGE, *INVALID_NUMBERS, *EXTREME_NUMBERS, 0, 1]


def error_of(use: Callable[[], object]) -> type[BaseException] | None:
    """Returns the class of the exception that the function raises, or None if it raises none.

    A panic of the core is not an `Exception`, so it fails the test.
    """
    try:
        use()
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("timeout", [*HUGE, math.inf, None])
@pytest.mark.parametrize("transport", ["native", "keep"])
async def test_huge_timeout_sets_no_limit(name: str, timeout: float | None, transport: Any, upstream: Upstream) -> None:
    gate = tidegate.Gate()
    upstream.handler = answer({"ok": True})
    body = {"model": "m"}
    url = f"{upstream.url}/chat/completions"
    async with gate.httpx_async_client(family=name, transport=transport, timeout=timeout) as http:
        assert (await http.post(url, json=body)).json() == {"ok": True}


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("timeout", [*HUGE, math.inf])
@pytest.mark.parametrize("idle", [False, True])
def test_huge_timeout_sets_no_limit_for_threads(name: str, timeout: float, idle: bool, upstream: Upstream) -> None:
    # With an `idle` limit, the shorter of the two limits applies.
    gate = tidegate.Gate(defaults={"idle": "30 days"} if idle else {})
    upstream.handler = answer({"ok": True})
    with gate.httpx_client(family=name, timeout=timeout) as http:
        url = f"{upstream.url}/chat/completions"
        assert http.post(url, json={"model": "m", "stream": True}).json() == {"ok": True}


@pytest.mark.parametrize("name", INSTALLED)
def test_no_timeout_panics(name: str, upstream: Upstream) -> None:
    gate, httpx = tidegate.Gate(), module(name)
    upstream.handler = answer({"ok": True})
    for transport in ("native", "keep"):
        for value in ANY:
            for phase in ("read", "pool"):
                with gate.httpx_client(family=name, transport=transport) as http:
                    limits = httpx.Timeout(30.0, **{phase: value})
                    error_of(lambda: http.post(f"{upstream.url}/chat/completions", json={}, timeout=limits))  # noqa: B023


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("phase", ["read", "pool"])
async def test_timeout_that_is_not_a_number_is_an_error(name: str, phase: str, gate: tidegate.Gate) -> None:
    limits = module(name).Timeout(30.0, **{phase: math.nan})
    with gate.httpx_client(family=name) as http, pytest.raises(ValueError, match=phase):
        http.get("http://127.0.0.1:9", timeout=limits)
    async with gate.httpx_async_client(family=name) as http:
        with pytest.raises(ValueError, match=phase):
            await http.get("http://127.0.0.1:9", timeout=limits)


@pytest.mark.parametrize("seconds", HUGE)
async def test_huge_deadline_is_reduced_to_ten_years(seconds: float) -> None:
    gate = tidegate.Gate(targets={"bedrock": {"cap": 1, "url": "none"}}, tools={"db": 1})
    with tidegate.context(deadline=seconds) as context:
        assert context.remaining == pytest.approx(LONGEST, rel=1e-6)
        with gate.slot("bedrock"), gate.tool("db"):
            pass
    async with gate.tool("db", deadline=seconds), gate.slot("bedrock", deadline=seconds):
        pass
    # A call waits until then.
    with gate.slot("bedrock"), pytest.raises(tidegate.Refused), tidegate.context(deadline=0.001):
        gate.slot("bedrock", deadline=seconds).__enter__()


@pytest.mark.parametrize("seconds", HUGE)
async def test_huge_retry_after_affects_only_its_call(seconds: float) -> None:
    pool = {"replicas": ["http://127.0.0.1:9"]}
    gate = tidegate.Gate(targets={"bedrock": {"cap": 1, "url": "none"}, "llama": {"pool": pool}})
    with gate.slot("bedrock") as slot:
        assert slot.failed(429, seconds)
    with gate.slot("llama", deadline=1) as slot:
        assert slot.failed(503, seconds)
    assert gate.snapshot()["targets"]["bedrock"]["state"] == "open"


@pytest.mark.parametrize("seconds", HUGE)
async def test_drain_accepts_a_huge_patience(seconds: float) -> None:
    assert await tidegate.Gate().adrain(seconds) == 0
    assert tidegate.Gate().drain(seconds) == 0


@pytest.mark.parametrize("seconds", [*INVALID_NUMBERS, math.inf])
async def test_invalid_durations_are_errors(seconds: float) -> None:
    gate = tidegate.Gate(tools={"db": 1})
    with pytest.raises(ValueError, match="deadline"), tidegate.context(deadline=seconds):
        pass
    with pytest.raises(ValueError, match="deadline"):
        gate.tool("db", deadline=seconds).__enter__()
    with pytest.raises(ValueError, match="number of seconds"):
        await gate.adrain(seconds)
    with pytest.raises(ValueError, match="number of seconds"):
        gate.drain(seconds)


async def test_duration_of_a_wrong_type_is_an_error_that_names_it() -> None:
    gate = tidegate.Gate(targets={"bedrock": {"url": "none"}}, tools={"db": 1})
    text: Any = "30s"
    with pytest.raises(TypeError, match=r"^deadline: .*not str; give a number of seconds$"):
        tidegate.context(deadline=text).__enter__()
    with pytest.raises(ValueError, match=r"^deadline: .*too large"):
        tidegate.context(deadline=10**400).__enter__()
    for slot in (gate.slot("bedrock", deadline=text), gate.tool("db", deadline=text)):
        with pytest.raises(TypeError, match=r"^deadline: "):
            slot.__enter__()
    with gate.slot("bedrock") as held, pytest.raises(TypeError, match=r"^retry_after: "):
        held.failed(429, text)
    with pytest.raises(TypeError, match=r"^patience: "):
        gate.drain(text)
    with pytest.raises(TypeError, match=r"^patience: "):
        await gate.adrain(text)
    with gate.httpx_client(timeout=text) as http, pytest.raises(TypeError, match=r"^timeout: read: "):
        http.get("http://127.0.0.1:9")


def test_invalid_virtual_time_is_an_error_that_names_it() -> None:
    text: Any = "30s"
    with VirtualClock() as clock:
        with pytest.raises(TypeError, match=r"^seconds: "):
            clock.advance(text)
        with pytest.raises(ValueError, match=r"^seconds: -1 is out of range"):
            clock.advance(-1)


@pytest.mark.parametrize("seconds", ANY)
def test_virtual_time_accepts_any_duration(seconds: float) -> None:
    with VirtualClock() as clock:
        error_of(lambda: clock.advance(seconds))
        error_of(lambda: clock.advance(seconds))


@pytest.mark.parametrize("seconds", ANY)
def test_scripts_accept_any_duration(seconds: float) -> None:
    gate = tidegate.Gate()
    makes: list[Callable[[], Any]] = [
        lambda: ok("a", after=seconds),
        lambda: stream("a", "b", after=seconds, every=seconds),
        lambda: overloaded(retry_after=seconds),
        lambda: status(429, retry_after=seconds),
    ]

    def use(make: Callable[[], Any]) -> None:
        with FakeTarget(make()).installed(), VirtualClock(), gate.httpx_client(timeout=None) as http:
            http.post("http://model.example/v1/chat/completions", json={"model": "m", "stream": True})

    for make in makes:
        error_of(lambda: use(make))  # noqa: B023


def test_configured_durations_are_used_or_rejected() -> None:
    for value in ANY:
        for config in (
            {"defaults": {"deadline": value}},
            {"defaults": {"retry": {"max": value}}},
            {"defaults": {"aging": value}},
            {"targets": {"llama": {"pool": {"replicas": ["http://127.0.0.1:9"], "slow_start": value}}}},
            {"tools": {"db": {"cap": 1, "wait": value}}},
            {"transport": {"connect": value}},
        ):
            assert error_of(lambda: tidegate.Gate(**config)) in (None, tidegate.ConfigError, ValueError)  # noqa: B023
