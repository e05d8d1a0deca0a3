"""Tests of explanations of why calls wait."""

from __future__ import annotations

import asyncio
import pickle
import re
from pathlib import Path
from typing import Any, get_args

import openai
import pytest

import tidegate
from provider_payloads import MESSAGES
from tidegate._explain import Rule
from tidegate.testing import FakeTarget, ok, run

URL = "https://models.example.com/v1"
RULES = Path(__file__).parents[2] / "core/policy/src/schedule/rule.rs"


def explanations_of(script: Any) -> list[Any]:
    """Runs `script` on virtual time, and returns its result.

    `script` is called with a gate whose target `small` has one slot, and with a function that makes
    a call with a given label. The answer to each call takes a minute.
    """
    gate = tidegate.Gate({"small": {"cap": 1, "wait": 90}}, tools={"db": 1})
    sdk = gate.wrap(openai.AsyncOpenAI(base_url=URL, api_key="k"))

    async def call(name: str) -> Any:
        with tidegate.context(call=name, tenant="acme"):
            return await sdk.chat.completions.create(model="small", messages=MESSAGES)

    target = FakeTarget(otherwise=ok("hi", after=60))
    with target.installed():
        return run(script(gate, call))  # type: ignore[no-any-return]


def test_rule_type_lists_the_rules_of_the_core() -> None:
    of_core = re.findall(r'^ +(?:Rule::\w+ => )?\(\s*"(\w+)",', RULES.read_text(encoding="utf-8"), re.MULTILINE)
    assert list(get_args(Rule)) == of_core


def test_call_is_explained_by_label_and_by_number() -> None:
    async def script(gate: tidegate.Gate, call: Any) -> None:
        first = asyncio.ensure_future(call("first"))
        await asyncio.sleep(1)
        second = asyncio.ensure_future(call("job-17"))
        await asyncio.sleep(4)
        found = gate.explain("job-17")
        assert isinstance(found, tidegate.Explanation)
        assert (found.state, found.rule, found.target, found.tool) == (
            "waiting",
            "slots",
            "small",
            None,
        )
        assert (found.label, found.tenant, found.lane, found.ahead) == (
            "job-17",
            "acme",
            "standard",
            0,
        )
        assert found.waited == pytest.approx(4, abs=0.1)
        assert "a slot of small" in str(found)
        assert "job-17" in str(found)
        assert gate.explain(found.call) is not None
        assert [found.label for found in gate.explain()] == ["job-17", "first"]
        assert [found.state for found in gate.explain()] == ["waiting", "in_flight"]
        assert len(gate.explain(limit=1)) == 1
        await asyncio.gather(first, second)
        assert gate.explain("job-17") is None
        assert gate.explain(2**63) is None
        assert gate.explain() == []
        assert [call["label"] for call in gate.calls()] == ["first", "job-17"]

    explanations_of(script)


def test_call_that_waits_for_first_tokens_is_explained() -> None:
    async def script() -> None:
        gate = tidegate.Gate({"small": {"limit": {"awaiting": 1}}})
        sdk = gate.wrap(openai.AsyncOpenAI(base_url=URL, api_key="k"))

        async def call(name: str) -> None:
            with tidegate.context(call=name):
                async for _ in await sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True):
                    pass

        calls = [asyncio.ensure_future(call(name)) for name in ("first", "second")]
        await asyncio.sleep(1)
        found = gate.explain("second")
        assert isinstance(found, tidegate.Explanation)
        assert (found.state, found.rule) == ("waiting", "first_tokens")
        await asyncio.gather(*calls)

    with FakeTarget(otherwise=ok("hi", after=60)).installed():
        run(script())


def test_wait_for_a_tool_is_explained() -> None:
    async def script(gate: tidegate.Gate, _: Any) -> None:
        async def wants() -> None:
            with tidegate.context(call="query") as entered:
                assert entered.call == "query"
                async with gate.tool("db"):
                    pass

        has = asyncio.ensure_future(asyncio.sleep(5))

        async def holds() -> None:
            async with gate.tool("db"):
                await has

        holder = asyncio.ensure_future(holds())
        await asyncio.sleep(1)
        waiting = asyncio.ensure_future(wants())
        await asyncio.sleep(2)
        found = gate.explain("query")
        assert found is not None
        assert (found.state, found.tool, found.target, found.rule) == (
            "waiting",
            "db",
            None,
            "slots",
        )
        await asyncio.gather(holder, waiting)

    explanations_of(script)


def test_error_has_the_number_of_its_call() -> None:
    async def script(gate: tidegate.Gate, call: Any) -> None:
        calls = [asyncio.ensure_future(call(f"job-{n}")) for n in range(3)]
        await asyncio.wait(calls)
        with pytest.raises(openai.APIStatusError) as refused:
            calls[2].result()
        (record,) = [call for call in gate.calls() if call["outcome"] == "refused"]
        assert refused.value.body["call"] == record["id"]  # type: ignore[index]
        assert record["label"] == "job-2"

        async with gate.slot("small"):
            with pytest.raises(tidegate.Refused) as raised:
                async with gate.slot("small", deadline=1):
                    pass
        assert raised.value.call == gate.calls()[-2]["id"]
        again = pickle.loads(pickle.dumps(raised.value))
        assert (again.call, again.why) == (raised.value.call, raised.value.why)

    explanations_of(script)
