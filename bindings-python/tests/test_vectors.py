"""Runs the shared vectors of configuration, targets, errors, estimates and backoff."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate
from httpx_packages import INSTALLED
from tidegate import _native
from upstream import WAIT, Upstream, answer, hang_up, stall_after
from vectors import FOLDER, RUN, Case, body, every, http


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


def test_every_file_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == RUN


@every("config_errors")
def test_config_errors(case: Case, tmp_path: Path) -> None:
    path, lines = tmp_path / "tidegate.toml", case["errors"]
    if "toml" in case:
        path.write_bytes(case["toml"].encode())
        lines = [line.replace("line ", f"{path}:", 1) for line in lines]
    with pytest.raises(tidegate.ConfigError) as raised:
        configured(case, path)
    assert str(raised.value).splitlines() == lines
    assert raised.value.kind == "config"


def configured(case: Case, path: Path) -> None:
    if "toml" in case:
        tidegate.Gate.from_file(path)
    elif isinstance(case["config"], dict) and None not in case["config"].values():
        tidegate.Gate(**case["config"])
    else:
        # Keyword arguments cannot express it: None means an argument that is not given.
        _native.Gate(json.dumps(case["config"]))


@every("target_matching")
def test_target_matching(case: Case) -> None:
    gate = tidegate.Gate(**case["config"])
    for request in case["requests"]:
        assert gate.target_for(request["url"], request["model"]) == request["target"], request


@every("limits")
def test_limits(case: Case) -> None:
    seen = tidegate.Gate(**case["config"]).snapshot()
    places: list[tuple[Any, Any]] = [(seen["targets"], case["targets"]), (seen["tools"], case["tools"])]
    for snapshots, expected in places:
        for name, limit in expected.items():
            adaptive = snapshots[name]["adaptive"] or dict.fromkeys(limit)
            assert {**{key: adaptive[key] for key in limit}, "limit": snapshots[name]["limit"]} == limit, name


def test_calls_count_for_the_target_of_target_for(server: Upstream) -> None:
    gate = tidegate.Gate(targets={"small": {"url": server.url, "models": ["small-*"]}, "all": {"url": server.url}})
    server.handler = answer({})
    for model in ["small-1", "large"]:
        url = f"{server.url}/v1/chat/completions"
        http(gate).post(url, json={"model": model})
        assert gate.calls()[-1]["target"] == gate.target_for(url, model)
    with pytest.raises(tidegate.RequestError, match="malformed") as raised:
        gate.target_for("https://not a URL/?key=secret")
    assert "secret" not in str(raised.value)


@every("errors")
def test_errors(case: Case) -> None:
    given, expected_error = case["error"], case["body"]["error"]
    error = _native.error(**given)
    assert error is not None
    assert type(error) is getattr(tidegate, case["class"])
    assert str(error) == expected_error["message"]
    assert (error.kind, error.reason) == (given["kind"], given.get("reason"))
    assert (error.status, error.retryable) == (case["status"], case["retryable"])
    assert (error.target, error.retry_after, error.queue_position) == (
        expected_error["target"],
        expected_error["retry_after"],
        expected_error["queue_position"],
    )


REFUSALS: dict[str, Any] = {
    "no_slot": {"on_full": "refuse"},
    "queue_full": {"queue": 0},
    "wait_budget": {"wait": "1ms"},
    "deadline": {},
}


def assert_response_equals(response: Any, code: str) -> None:
    """Compares an error with the vector of its code."""
    cases = json.loads((FOLDER / "errors.json").read_text(encoding="utf-8"))["cases"]
    case = next(case for case in cases if case["body"]["error"]["code"] == code)
    content, expected = response.json(), case["body"]
    assert response.status_code == case["status"]
    assert response.headers["content-type"] == case["headers"]["content-type"]
    assert response.headers["x-should-retry"] == case["headers"]["x-should-retry"]
    # The call's number, and the rule that blocked it, are not part of the vectors.
    assert content["error"].keys() - {"call", "why"} == expected["error"].keys()
    if code in REFUSALS:
        assert isinstance(content["error"]["call"], int)
        assert content["error"]["why"].keys() == {"rule", "text", "since", "waited", "expected", "ahead"}
    assert (content["type"], content["error"]["type"]) == (expected["type"], expected["error"]["type"])


@pytest.mark.parametrize("code", REFUSALS)
def test_rejection_responses_equal_the_vectors(code: str, server: Upstream) -> None:
    gate = tidegate.Gate(targets={"up": {"url": server.url, "cap": 1, **REFUSALS[code]}})
    url = f"{server.url}/v1/chat/completions"
    server.handler = stall_after({"choices": []})
    with http(gate) as client, client.stream("POST", url, json={"model": "m", "stream": True}) as held:
        assert held.status_code == 200
        with tidegate.context(deadline=0.02 if code == "deadline" else None):
            assert_response_equals(client.post(url, json={"model": "m"}), code)


def test_failure_responses_equal_the_vectors(server: Upstream) -> None:
    gate = tidegate.Gate(defaults={"retry": {"attempts": 1}})
    client = http(gate)
    client.headers["x-stainless-lang"] = "python"  # an SDK that would retry an exception
    url = f"{server.url}/v1/chat/completions"
    server.handler = hang_up
    assert_response_equals(client.post(url, json={}), "transport")
    server.handler = answer({}, status=429, retry_after="3600")
    client.post(url, json={})
    with tidegate.context(deadline=60):
        assert_response_equals(client.post(url, json={}), "cool_down")
    gate.drain(0)
    assert_response_equals(client.post(url, json={}), "draining")


@every("estimate")
def test_estimate(case: Case, server: Upstream) -> None:
    gate = tidegate.Gate()
    server.handler = answer({"usage": {"prompt_tokens": 7, "completion_tokens": 5}})
    path = case.get("path", "/v1/chat/completions")
    http(gate).post(server.url + path, content=body(case["body"]))
    (call,) = gate.calls()
    assert (call["estimated_input_tokens"], call["max_output_tokens"]) == (case["input"], case["max_output"])
    if path == "/v1/chat/completions":
        assert (call["input_tokens"], call["output_tokens"]) == (7, 5)


# Seconds. Tests wait for shorter backoffs and cancel the call in the first longer one.
MAX_WAIT_MS = 20


@every("backoff")
async def test_backoff(case: Case, server: Upstream) -> None:
    settings = {"cap": 1, "deadline": "7d", "retry": case["retry"] | {"reserve": 100}}
    gate = tidegate.Gate(defaults=settings)
    headers = {"retry_after": str(case["retry_after"])} if "retry_after" in case else {}
    server.handler = answer({}, status=500, **headers)
    bounds = case["bounds"]
    short = next((at for at, (_, most) in enumerate(bounds) if most > MAX_WAIT_MS), len(bounds))
    async with gate.httpx_async_client(family=INSTALLED[-1]) as client:
        call = asyncio.ensure_future(client.post(f"{server.url}/v1/chat/completions", json={"model": "m"}))
        if short < len(bounds):
            await asyncio.wait_for(retried(gate, short + 1), WAIT)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
        else:
            assert (await call).status_code == 500
        await gate.adrain()
    (record,) = gate.calls()
    slept = [attempt["backoff"] for attempt in record["attempts"]]
    assert slept[-1] is None or short < len(bounds)
    slept = slept[: short + 1 if short < len(bounds) else short]
    assert len(slept) == min(short + 1, len(bounds))
    for backoff, (least, most) in zip(slept, bounds, strict=False):
        assert least <= backoff * 1000 <= most


async def retried(gate: tidegate.Gate, times: int) -> None:
    """Waits until a number of retries were scheduled."""
    while sum(sum(target["retries"].values()) for target in gate.snapshot()["targets"].values()) < times:
        await asyncio.sleep(0.001)
