"""Tests of the fake target: its answers, its records, and the gates that use it."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

import httpx_packages
import tidegate
from provider_payloads import CHAT, MESSAGES
from tidegate.testing import (
    FakeTarget,
    break_off,
    error_event,
    ok,
    overloaded,
    rate_limited,
    refuse_connection,
    run,
    stall,
    status,
    stream,
    tool_call,
    truncate,
)
from upstream import Upstream, answer

URL = "https://models.example.com/v1"
TOOLS: Any = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]


def client(gate: tidegate.Gate | None = None) -> openai.AsyncOpenAI:
    return (gate or tidegate.Gate()).wrap(openai.AsyncOpenAI(base_url=URL, api_key="sk-secret"))


async def ask(text: str = "hello", model: str = "small", gate: tidegate.Gate | None = None) -> str | None:
    messages: Any = [{"role": "user", "content": text}]
    completion = await client(gate).chat.completions.create(model=model, messages=messages)
    return completion.choices[0].message.content


async def streamed() -> str:
    chunks = await client().chat.completions.create(model="small", messages=MESSAGES, stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])


def test_target_answers_chat_completions() -> None:
    with FakeTarget(otherwise=stream("the ", "tide")).installed() as target:
        assert run(ask()) == "the tide"
        assert run(streamed()) == "the tide"
    assert [(attempt.stream, attempt.model) for attempt in target.attempts] == [(False, "small"), (True, "small")]


def test_target_answers_responses_completions_and_embeddings() -> None:
    async def ask_in_all_ways() -> list[Any]:
        sdk = client()
        whole = await sdk.responses.create(model="small", input="hello")
        events = await sdk.responses.create(model="small", input="hello", stream=True)
        deltas = [event.delta async for event in events if event.type == "response.output_text.delta"]
        legacy = await sdk.completions.create(model="small", prompt="hello")
        vectors = await sdk.embeddings.create(model="small", input=["a", "b"])
        return [whole.output_text, deltas, legacy.choices[0].text, [item.embedding for item in vectors.data]]

    with FakeTarget(otherwise=ok("the tide")).installed():
        read_answer = run(ask_in_all_ways())
    assert read_answer == ["the tide", ["the ", "tide"], "the tide", [[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]]]


def test_target_answers_anthropic_messages() -> None:
    anthropic = pytest.importorskip("anthropic")

    async def both() -> list[Any]:
        sdk = tidegate.Gate().wrap(anthropic.AsyncAnthropic(base_url="https://api.example.com", api_key="sk-secret"))
        asked: Any = {"model": "claude", "max_tokens": 9, "messages": MESSAGES}
        whole = await sdk.messages.create(**asked)
        async with sdk.messages.stream(**asked) as events:
            final = await events.get_final_message()
        return [whole.content[0].text, final.content[0].text, final.content[1].input]

    called = ok("the tide", tool_calls=[tool_call("search", text="moon")])
    with FakeTarget(overloaded(), otherwise=called).installed() as target:
        assert run(both()) == ["the tide", "the tide", {"text": "moon"}]
    assert target.calls[0].statuses == [529, 200]


def test_target_answers_with_tool_calls() -> None:
    async def agent() -> str | None:
        sdk = client()
        messages: Any = list(MESSAGES)
        while True:
            completion = await sdk.chat.completions.create(model="small", messages=messages, tools=TOOLS)
            message = completion.choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message.model_dump(exclude_none=True))
            messages += [{"role": "tool", "tool_call_id": c.id, "content": "12 m"} for c in message.tool_calls]

    searched = ok(tool_calls=[tool_call("search", text="tide"), tool_call("search", text="moon")])
    with FakeTarget(searched, ok("twelve metres")).installed() as target:
        assert run(agent()) == "twelve metres"
    messages = target.attempts[1].json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]


def test_answers_are_given_in_turn_and_repeated() -> None:
    with FakeTarget(rate_limited(3).times(2), status(500), ok("now")).installed() as target:
        assert run(ask()) == "now"
    (call,) = target.calls
    assert call.statuses == [429, 429, 500, 200]
    assert [attempt.attempt for attempt in call.attempts] == [1, 2, 3, 4]
    arrived = [attempt.arrived for attempt in call.attempts]
    assert arrived[1] >= 3
    assert arrived[2] >= 6


def test_unmatched_requests_fail_the_test() -> None:
    async def ignore_error() -> None:
        for _ in range(2):
            with pytest.raises(openai.APIError):
                await ask("second", "large")

    target = FakeTarget(ok("once"), otherwise=None)
    target.route(model="gpt-*")

    def suite() -> None:
        with target.installed():
            assert run(ask()) == "once"
            run(ignore_error())

    with pytest.raises(AssertionError, match=r"POST models.example.com/v1/chat/completions.*no answer left"):
        suite()
    assert len(target.unmatched) == 2


def test_first_matching_route_answers() -> None:
    target = FakeTarget(otherwise=ok("anything else"))
    target.route(otherwise=ok("weather"), contains="rain")
    target.route(rate_limited(1), otherwise=ok("small"), model="sm*", path="*/chat/completions")
    with target.installed():
        assert run(ask("will it rain?", "large")) == "weather"
        assert run(ask()) == "small"
        assert run(ask(model="large")) == "anything else"
        target.script(ok("new"))
        assert run(ask(model="large")) == "new"


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("http://localhost:8000/v1", {"url": "http://localhost:8000/v1", "tokenizer": "vllm"}),
        ("http://llm/v1", {"pool": ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]}),
    ],
)
def test_requests_of_the_gate_itself_use_no_answer(url: str, settings: Any) -> None:
    async def chat() -> str | None:
        sdk = tidegate.Gate(targets={"llm": settings}).wrap(openai.AsyncOpenAI(base_url=url, api_key="k"))
        completion = await sdk.chat.completions.create(model="small", messages=MESSAGES)
        await asyncio.sleep(5)
        return completion.choices[0].message.content

    with FakeTarget(rate_limited(90), ok("done"), otherwise=None).installed() as target:
        assert run(chat()) == "done"
    assert [attempt.status for attempt in target.attempts] == [429, 200]


def test_invalid_route_changes_nothing() -> None:
    target = FakeTarget()
    with pytest.raises(ValueError, match="status: 42 is not a status"):
        target.route(status(42))
    target.route(ok("small"), model="small")
    with target.installed():
        assert run(ask()) == "small"


def test_attempts_above_the_capacity_get_429() -> None:
    async def send_concurrently() -> None:
        gate = tidegate.Gate(targets={"small": {"cap": 5}})
        await asyncio.gather(*(ask(gate=gate) for _ in range(20)))

    with FakeTarget(otherwise=ok("fine", after=2), capacity=3, retry_after=1).installed() as target:
        run(send_concurrently())
    assert target.max_in_flight > 3
    served = [attempt for attempt in target.attempts if attempt.answer == "reply"]
    assert len(served) == 20
    for moment in (attempt.arrived for attempt in served):
        assert sum(one.arrived <= moment < (one.ended or 0) for one in served) <= 3
    assert {attempt.status for attempt in target.attempts if attempt.answer == "capacity"} == {429}


def test_attempts_above_the_rate_get_a_retry_after() -> None:
    async def send_three() -> None:
        for _ in range(3):
            await ask()

    with FakeTarget(rate=2).installed() as target:
        run(send_three())
    assert target.calls[2].statuses == [429, 200]
    assert target.calls[2].attempts[1].arrived >= target.calls[0].attempts[0].arrived + 60


@pytest.mark.parametrize("cut", [truncate("half "), break_off("half "), error_event("half ")])
def test_broken_streams_are_errors_after_the_first_token(cut: Any) -> None:
    with FakeTarget(cut).installed() as target, pytest.raises(Exception, match=r".") as caught:
        run(streamed())
    assert not isinstance(caught.value, AssertionError)
    assert len(target.attempts) == 1, "what was delivered in part is not repeated"
    target.assert_no_call_in_flight()


@pytest.mark.parametrize("cut", [error_event(), break_off(), refuse_connection(), overloaded(2), status(503)])
def test_failure_before_the_first_token_is_retried(cut: Any) -> None:
    with FakeTarget(cut, otherwise=ok("whole")).installed() as target:
        assert run(streamed()) == "whole"
    assert len(target.attempts) == 2
    assert len(target.calls) == 1


def test_stalled_stream_times_out_and_is_recorded() -> None:
    async def time_out() -> None:
        chunks = await client().chat.completions.create(model="small", messages=MESSAGES, stream=True)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(read(chunks), 30)

    async def read(chunks: Any) -> None:
        async for _ in chunks:
            pass

    with FakeTarget(stall("half ")).installed() as target:
        run(time_out())
        target.assert_no_call_in_flight()
    (attempt,) = target.cancelled
    assert attempt.ended == pytest.approx(30, abs=0.1)


def test_open_stream_is_named_in_the_error() -> None:
    async def leave_stream_open() -> None:
        chunks = await client().chat.completions.create(model="small", messages=MESSAGES, stream=True)
        await anext(aiter(chunks))
        with pytest.raises(AssertionError, match=r"call 0, attempt 1: POST /v1/chat/completions \(small\)"):
            target.assert_no_call_in_flight()
        await chunks.close()
        target.assert_no_call_in_flight()

    with FakeTarget(stall("half ")).installed() as target:
        run(leave_stream_open())


def test_cancelled_attempt_is_recorded() -> None:
    async def cancel_early() -> None:
        task = asyncio.create_task(ask())
        await asyncio.sleep(5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        target.assert_no_call_in_flight()

    with FakeTarget(ok(after=60)).installed() as target:
        run(cancel_early())
    assert [attempt.ended for attempt in target.cancelled] == [5.0]


def test_credentials_are_not_recorded() -> None:
    with FakeTarget().installed() as target:
        run(ask())
    assert ("authorization", "***") in target.attempts[0].headers
    assert "sk-secret" not in repr(target.attempts)


async def test_target_works_in_real_time() -> None:
    with FakeTarget(rate_limited(0.01), ok("hi")).installed() as target:
        assert await ask() == "hi"
    assert [attempt.status for attempt in target.attempts] == [429, 200]


async def test_gate_has_its_earlier_state_after_the_target_is_removed(upstream: Upstream) -> None:
    upstream.handler = answer(CHAT)
    gate = tidegate.Gate()
    sdk = gate.wrap(openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="k"))

    async def read_answer() -> str | None:
        return (await sdk.chat.completions.create(model="small", messages=MESSAGES)).choices[0].message.content

    assert await read_answer() == "hi"
    for text in ("first", "second"):
        with FakeTarget(ok(text)).installed():
            assert gate.calls() == []
            assert await read_answer() == text
            assert len(gate.calls()) == 1
    assert await read_answer() == "hi"
    assert len(gate.calls()) == 2
    assert len(upstream.exchanges) == 2


def test_target_replaces_a_custom_transport() -> None:
    def network(request: Any) -> Any:
        raise AssertionError(f"sent for real: {request.url}")

    for name in httpx_packages.INSTALLED:
        family = httpx_packages.module(name)
        kept = tidegate.Gate().httpx_client(family=name, transport=family.MockTransport(network))
        with FakeTarget(otherwise=ok("fake")).installed() as target, kept:
            assert kept.post(f"{URL}/chat/completions", json={"model": "small"}).status_code == 200
        assert len(target.attempts) == 1


def test_inner_target_answers() -> None:
    with FakeTarget(otherwise=ok("outer")).installed():
        with FakeTarget(otherwise=ok("inner")).installed():
            assert run(ask()) == "inner"
        assert run(ask()) == "outer"


def test_invalid_scripts_are_errors() -> None:
    with pytest.raises(ValueError, match="after: -1 is not a number of seconds"):
        FakeTarget(ok(after=-1.0))
    text: Any = "3s"
    for scripted, name in ((ok(every=text), "every"), (overloaded(text), "retry_after")):
        with pytest.raises(ValueError, match=f"{name}: invalid type: string"):
            FakeTarget(scripted)
