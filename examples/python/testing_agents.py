"""Tests of an agent under overload, without a network and on virtual time.

Run the file with pytest or directly. With pytest, the fixtures `tidegate_target` and
`tidegate_clock` and the marker `@pytest.mark.tidegate(virtual_time=True)` can replace `installed()`
and `run`.
"""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI

import tidegate
from tidegate.testing import FakeTarget, ok, rate_limited, run, stall

# The program under test: a gate, a client, and an agent that uses the client.
gate = tidegate.Gate(targets={"models": {"cap": 8}})
client = gate.wrap(AsyncOpenAI(base_url="https://models.example.com/v1", api_key="sk-none"))


async def agent(number: int) -> str:
    """The agent under test: returns the summary of a document."""
    completion = await client.chat.completions.create(
        model="gpt-4o-mini", messages=[{"role": "user", "content": f"Summarise document {number}."}]
    )
    return completion.choices[0].message.content or ""


async def fan_out() -> list[str]:
    """Summarises two hundred documents at once, and returns the summaries."""
    return await asyncio.gather(*(agent(number) for number in range(200)))


async def impatient() -> bool:
    """Returns `True` if a summary is ready within 30 s. Otherwise, cancels its call."""
    try:
        await asyncio.wait_for(agent(0), 30)
    except asyncio.TimeoutError:
        return False
    return True


def test_fan_out_survives_rate_limits() -> None:
    """All calls succeed although the model serves 8 calls at a time and first answers 429.

    The 429 has a Retry-After of 90 s, which takes no real time.
    """
    target = FakeTarget(
        rate_limited(retry_after=90, after=0.2).times(8), otherwise=ok("a summary", after=5), capacity=8
    )
    with target.installed():
        assert run(fan_out()) == ["a summary"] * 200
    assert target.max_in_flight <= 8
    assert all(call.statuses in ([200], [429, 200]) for call in target.calls), "no call gets 429 twice"
    target.assert_no_call_in_flight()


def test_call_of_a_stalled_model_is_cancelled() -> None:
    """If the model sends nothing, the call is cancelled after the agent's timeout of 30 s."""
    target = FakeTarget(stall())
    with target.installed():
        assert not run(impatient())
        target.assert_no_call_in_flight()
    assert [attempt.ended for attempt in target.cancelled] == [30.0]


if __name__ == "__main__":
    test_fan_out_survives_rate_limits()
    test_call_of_a_stalled_model_is_cancelled()
    print("two tests passed, minutes of virtual time, no network")
