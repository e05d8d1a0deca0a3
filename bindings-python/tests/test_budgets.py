"""Tests of rate budgets with the `openai` client, at a simulator with limits per minute."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import openai
import pytest

import tidegate
from provider_payloads import MESSAGES
from simulator import LENGTH, Provider, simulated
from tidegate import config
from tidegate import snapshot as declared

#: Tokens per minute: ten thousand per second, so that waits are short.
TOKENS = 600_000
CAUSES = Path(__file__).parents[2] / "core/policy/src/adaptive/view.rs"
#: Tokens that the provider reserves for a call, whatever its usage.
RESERVED = 1_000


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    with simulated(tmp_path, tokens_per_minute=TOKENS, requests_per_minute=60_000) as running:
        yield running


def client(provider: Provider) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=provider.base_url, api_key="k", max_retries=0, default_headers={LENGTH: "4"}, timeout=60
    )


async def ask(sdk: openai.AsyncOpenAI, reserved: int = RESERVED, **options: Any) -> Any:
    return await sdk.chat.completions.create(model="sim", messages=MESSAGES, max_tokens=reserved, **options)


async def wait_until_idle(gate: tidegate.Gate) -> None:
    while gate.snapshot()["active"]:
        await asyncio.sleep(0)


async def burst(sdk: openai.AsyncOpenAI) -> list[Any]:
    """Uses up all but 10,000 tokens of the provider's budget, then makes 40 concurrent calls.

    The provider reserves 1,000 tokens for each of them, four times the rest of the budget in total.
    Returns the answers and exceptions of the 40 calls.
    """
    await ask(sdk, TOKENS - 10 * RESERVED)
    return await asyncio.gather(*(ask(sdk) for _ in range(40)), return_exceptions=True)


async def test_burst_without_a_gate_is_rate_limited(provider: Provider) -> None:
    async with client(provider) as sdk:
        answers = await burst(sdk)
    assert sum(isinstance(answer, openai.RateLimitError) for answer in answers) >= 10


async def test_budgets_are_learned_from_headers_without_a_429(provider: Provider) -> None:
    gate = tidegate.Gate({"provider": 64})
    assert gate.snapshot()["targets"]["provider"]["budgets"] == {}
    answers = await burst(gate.wrap(client(provider)))
    assert [answer.choices[0].finish_reason for answer in answers] == ["stop"] * 40
    assert provider.statuses() == {"200": 41}
    budgets = gate.snapshot()["targets"]["provider"]["budgets"]
    tokens, requests = budgets["tokens"], budgets["requests"]
    assert (tokens["limit"], tokens["window"], tokens["source"], tokens["counting"]) == (TOKENS, 60, "headers", "sum")
    assert tokens["level"] < 10 * RESERVED
    assert (requests["limit"], requests["window"], requests["source"]) == (60_000, 60, "headers")
    await wait_until_idle(gate)
    calls = gate.calls()
    assert {call["output_tokens"] for call in calls} == {4}
    assert {call["max_output_tokens"] for call in calls[1:]} == {RESERVED}
    # The first response makes both known.
    assert all(0 < (calls[-1]["estimated_output_tokens"] or 0) <= RESERVED for call in calls)
    assert calls[-1]["estimated_input_tokens"] is not None


@pytest.mark.parametrize("configured", [2 * TOKENS, TOKENS // 2])
async def test_wrong_configured_rate_is_corrected_within_three_responses(provider: Provider, configured: int) -> None:
    gate = tidegate.Gate({"provider": {"tpm": configured}})
    sdk = gate.wrap(client(provider))

    def reported_limits() -> tuple[int, str]:
        tokens = gate.snapshot()["targets"]["provider"]["budgets"]["tokens"]
        return tokens["limit"], tokens["source"]

    assert reported_limits() == (configured, "configured")
    for _ in range(3):
        await ask(sdk)
    assert reported_limits() == (TOKENS, "headers")


async def test_call_that_can_never_fit_is_rejected_at_once_with_advice(provider: Provider) -> None:
    gate = tidegate.Gate({"provider": {"max_prompt": 100, "tpm": TOKENS, "counting": "sum"}})
    sdk = gate.wrap(client(provider))
    with pytest.raises(openai.APIStatusError) as refused:
        await sdk.chat.completions.create(model="sim", messages=[{"role": "user", "content": "tide " * 1_000}])
    assert type(refused.value) is openai.APIStatusError
    assert (refused.value.status_code, refused.value.code) == (413, "too_large")
    assert "`max_prompt` of 100" in refused.value.message
    assert "shorten the prompt" in refused.value.message
    with pytest.raises(openai.APIStatusError) as refused:
        await ask(sdk, TOKENS + 1)
    assert (refused.value.status_code, refused.value.code) == (413, "too_large")
    assert "lower `max_tokens`" in refused.value.message
    assert provider.statuses() == {}
    assert gate.snapshot()["targets"]["provider"]["tenants"]["default"]["refused"] == {"too_large": 2}


async def test_tenant_above_its_token_rate_delays_only_itself(provider: Provider) -> None:
    # 100 tokens per second, with a burst of 600.
    gate = tidegate.Gate({"provider": 8}, tenants={"acme": {"tpm": 6_000}})
    sdk = gate.wrap(client(provider))
    with tidegate.context(tenant="acme"):
        await ask(sdk, 5_000, extra_headers={LENGTH: "3000"})
    await wait_until_idle(gate)
    owed = gate.snapshot()["targets"]["provider"]["tenants"]["acme"]["debt"]
    assert 1_000 < owed < 3_100
    with tidegate.context(tenant="acme", call="later"):
        later = asyncio.ensure_future(ask(sdk))
    # The call is queued only after a moment, and the rule applies from then on.
    while (explanation := gate.explain("later")) is None or explanation.rule is None:
        await asyncio.sleep(0)
    assert (explanation.rule, "own tokens" in explanation.text) == ("tenant_tokens", True)
    with tidegate.context(tenant="initech"):
        await ask(sdk)
    assert not later.done()
    later.cancel()
    with pytest.raises(asyncio.CancelledError):
        await later
    await wait_until_idle(gate)
    assert provider.statuses() == {"200": 2}


async def test_wait_for_a_tools_rate_holds_no_slot(provider: Provider) -> None:
    gate = tidegate.Gate({"provider": 1}, tools={"search": {"cap": 4, "rpm": 1}})
    sdk = gate.wrap(client(provider))

    @gate.tool("search")
    async def search() -> str:
        return "tides"

    async def agent(name: str) -> None:
        with tidegate.context(call=name):
            await ask(sdk)
            await search()
            await ask(sdk)

    await agent("first")
    second = asyncio.ensure_future(agent("second"))
    while (explanation := gate.explain("second")) is None or explanation.tool != "search" or explanation.rule is None:
        await asyncio.sleep(0)
    assert explanation.rule == "requests"
    assert "the rate limit of the tool is used up" in explanation.text
    await ask(sdk)  # the only slot is free meanwhile
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert provider.statuses() == {"200": 4}


def keys(shape: Any) -> list[str]:
    return sorted(shape.__annotations__)


def test_cause_type_lists_the_causes_of_the_core() -> None:
    text = CAUSES.read_text(encoding="utf-8")
    assert list(get_args(declared.Cause)) == re.findall(r'^ +\w+ = "(\w+)",', text, re.MULTILINE)


async def test_types_declare_exactly_the_keys_of_snapshots_and_calls(provider: Provider) -> None:
    provided: config.TargetConfig = {"cap": 8, "limit": {"start": 1}, "kv_tokens": "1.5M"}
    gate = tidegate.Gate({"provider": provided}, tools={"search": {"cap": 1, "latency": 1}})
    await ask(gate.wrap(client(provider)))
    await wait_until_idle(gate)
    seen = gate.snapshot()
    target, (call,) = seen["targets"]["provider"], gate.calls()
    assert sorted(seen) == keys(declared.Snapshot)
    assert sorted(target) == keys(declared.TargetSnapshot)
    assert sorted(target["budgets"]["tokens"]) == keys(declared.BudgetSnapshot)
    assert target["adaptive"]
    assert sorted(target["adaptive"]) == keys(declared.LimitSnapshot)
    # The only slot was in use, so the limit rises.
    decision = target["adaptive"]["decisions"][0]
    assert sorted(decision) == keys(declared.DecisionSnapshot)
    assert decision["cause"] in get_args(declared.Cause)
    assert target["kv"]
    assert sorted(target["kv"]) == keys(declared.KvSnapshot)
    assert (target["replicas"], target["replicas_problem"]) == ([], None)
    assert sorted(target["lanes"]["standard"]) == keys(declared.LaneSnapshot)
    assert sorted(target["tenants"]["default"]) == keys(declared.TenantSnapshot)
    assert sorted(target["tpot"]) == keys(declared.Quantiles)
    search = seen["tools"]["search"]
    assert sorted(search) == keys(declared.ToolSnapshot)
    assert search["adaptive"]
    assert sorted(search["adaptive"]) == keys(declared.LimitSnapshot)
    assert sorted(call) == keys(declared.CallRecord)
    assert sorted(call["attempts"][0]) == keys(declared.AttemptRecord)
