"""How an agent behaves under overload, as a test: no network, hours in milliseconds, the same each run.

Run it with pytest, or as it is. With pytest the fixtures `tidegate_target` and `tidegate_clock` and the marker
`@pytest.mark.tidegate(virtual_time=True)` do what `installed()` and `run` do here.
"""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI

import tidegate
from tidegate.testing import FakeTarget, ok, rate_limited, run, stall

# The program under test: a gate and a client made once, and an agent that knows nothing of either.
gate = tidegate.Gate(targets={"models": {"cap": 8}})
client = gate.wrap(AsyncOpenAI(base_url="https://models.example.com/v1", api_key="sk-none"))


async def agent(number: int) -> str:
    """Summarise a document."""
    completion = await client.chat.completions.create(
        model="gpt-4o-mini", messages=[{"role": "user", "content": f"Summarise document {number}."}]
    )
    return completion.choices[0].message.content or ""


async def fan_out() -> list[str]:
    """Summarise two hundred at once."""
    return await asyncio.gather(*(agent(number) for number in range(200)))


async def impatient() -> bool:
    """Give a summary half a minute."""
    try:
        await asyncio.wait_for(agent(0), 30)
    except asyncio.TimeoutError:
        return False
    return True


def test_a_storm_passes() -> None:
    """A model that serves 8 at once, and sends everybody away for 90 s at first."""
    target = FakeTarget(
        rate_limited(retry_after=90, after=0.2).times(8), otherwise=ok("a summary", after=5), capacity=8
    )
    with target.installed():
        assert run(fan_out()) == ["a summary"] * 200
    assert target.max_in_flight <= 8
    assert all(call.statuses in ([200], [429, 200]) for call in target.calls), "nobody is sent away twice"
    target.assert_no_call_in_flight()


def test_a_stalled_model_is_given_up() -> None:
    """A model that goes silent: the upstream call ends with the agent's patience, and costs nothing more."""
    target = FakeTarget(stall())
    with target.installed():
        assert not run(impatient())
        target.assert_no_call_in_flight()
    assert [attempt.ended for attempt in target.cancelled] == [30.0]


if __name__ == "__main__":
    test_a_storm_passes()
    test_a_stalled_model_is_given_up()
    print("two tests passed, minutes of virtual time, no network")
