"""The load of the demo: the three tenants of the noisy-neighbour blog post, scaled down.

For a real server, the load and the caps are scaled to what the server serves at once. Times are in
seconds of the blog post's clock, which runs `time_scale` times as fast as real time.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capacity import Capacity

#: Tokens of each prompt and of each answer on a real server.
REAL_PROMPT_TOKENS, REAL_OUTPUT_TOKENS = 128, 32
#: Calls of B per slot of a real server, and the minimum and maximum of all its calls.
B_CALLS_PER_SLOT, MIN_B_CALLS, MAX_B_CALLS = 8, 40, 200
#: Duration of B's burst on a real server, in seconds.
BURST_S = 5
#: Calls of A and C on a real server. A sends at most one a second, and C half as many.
A_CALLS, C_CALLS = 30, 15
#: Minimum and maximum time that a call waits at its cap on a real server, in seconds.
MIN_WAIT_S, MAX_WAIT_S = 10, 300


@dataclass(frozen=True)
class Tenant:
    """The traffic of one tenant: `calls` calls, `per_second` of them a second, from `start` on.

    `cap` is the maximum number of its concurrent calls in the phase with caps.
    """

    name: str
    per_second: float
    calls: int
    start: float
    cap: int

    @property
    def end(self) -> float:
        """Time at which the tenant's last call is sent, in seconds since the start of the phase."""
        return self.start + self.calls / self.per_second


@dataclass(frozen=True)
class Plan:
    """The load of the demo: the calls of each tenant, their lengths, and the time scale."""

    tenants: tuple[Tenant, ...]
    #: Maximum number of concurrent calls of all tenants in the phase with caps.
    cap: int
    prompt_tokens: int
    output_tokens: int
    #: Seconds that a call waits at its cap before it fails with 504.
    wait: float
    #: Seconds of the blog post's clock in one real second.
    time_scale: float
    #: Load relative to the blog post's (simulator), or to the default load (real server).
    load: float

    @property
    def calls(self) -> int:
        """Number of calls of all tenants in one phase."""
        return sum(tenant.calls for tenant in self.tenants)

    @property
    def burst(self) -> tuple[float, float]:
        """The start and end of tenant B's burst, in seconds since the start of the phase."""
        tenant = self.tenants[1]
        return tenant.start, tenant.end

    @property
    def speed(self) -> str:
        """How fast the blog post's clock runs, as the end of a sentence. Empty in real time."""
        return "" if self.time_scale == 1 else f", {self.time_scale:g} times as fast"

    def arrivals(self) -> list[tuple[float, Tenant]]:
        """Returns the time of each call, in seconds since the start of the phase, and its tenant.

        The times come from a seeded generator, so they are the same in each phase.
        """
        rng = random.Random(1)
        times = []
        for tenant in self.tenants:
            phase = rng.random()
            times += [(tenant.start + (n + phase) / tenant.per_second, tenant) for n in range(tenant.calls)]
        return sorted(times, key=lambda pair: pair[0])


def simulated(time_scale: float) -> Plan:
    """Returns the load for the simulator: half of the blog post's.

    The simulator has one worker, and the post has two. `time_scale` is as in `Plan`.
    """
    return Plan(
        tenants=(
            Tenant("A", per_second=1.0, calls=120, start=0, cap=32),
            Tenant("B", per_second=15.0, calls=225, start=30, cap=4),
            Tenant("C", per_second=0.5, calls=60, start=0, cap=32),
        ),
        cap=68,
        prompt_tokens=512,
        output_tokens=128,
        wait=30,
        time_scale=time_scale,
        load=0.5,
    )


def real(capacity: Capacity, load: float) -> Plan:
    """Returns a load for a real server that its tenant B overloads for a short time.

    The caps together are what the server serves at once, and B may use three quarters of it. A call may wait
    twice as long as the server needs for all calls of B at their cap, so that no call fails. `load`
    multiplies the calls and their rates.
    """
    slots, seconds = capacity.slots, capacity.seconds
    # A and C together use at most a fifth of the slots.
    rate = min(1.0, slots / (8 * seconds)) * load
    burst = real_b_calls(slots, load)
    cap = max(1, 3 * slots // 4)
    wait = math.ceil(2 * burst * seconds / cap)
    return Plan(
        tenants=(
            Tenant("A", per_second=rate, calls=times(A_CALLS, load), start=0, cap=slots),
            Tenant("B", per_second=burst / BURST_S, calls=burst, start=10, cap=cap),
            Tenant("C", per_second=rate / 2, calls=times(C_CALLS, load), start=0, cap=slots),
        ),
        cap=slots,
        prompt_tokens=REAL_PROMPT_TOKENS,
        output_tokens=REAL_OUTPUT_TOKENS,
        wait=min(max(wait, MIN_WAIT_S), MAX_WAIT_S),
        time_scale=1,
        load=load,
    )


def times(calls: int, load: float) -> int:
    """Returns a number of calls times the load, at least 1."""
    return max(1, round(calls * load))


def real_b_calls(slots: int, load: float) -> int:
    """Returns the number of calls of tenant B on a real server that serves `slots` calls at once."""
    return times(min(max(B_CALLS_PER_SLOT * slots, MIN_B_CALLS), MAX_B_CALLS), load)


def max_real_calls(load: float) -> int:
    """Returns the maximum number of calls of one phase on any real server."""
    return times(A_CALLS, load) + times(MAX_B_CALLS, load) + times(C_CALLS, load)


def prompt(number: int, tokens: int) -> str:
    """Returns a prompt of `tokens` tokens of four bytes each, with a unique prefix."""
    text = f"Call {number}. " + "The tide comes in, the tide goes out, and the gate follows. " * tokens
    return text[: 4 * tokens]
