"""The load of the demo: the three tenants of the noisy-neighbour blog post, scaled down.

Times are in seconds of the blog post's clock, which runs `time_scale` times as fast as real time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Tenant:
    """The traffic of one tenant: `calls` calls, `per_second` of them a second, from `start` on.

    `cap` is the maximum number of its concurrent calls in the phase with Tidegate.
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

    def arrivals(self) -> list[tuple[float, Tenant]]:
        """Returns the time of each call, in seconds since the start of the phase, and its tenant.

        The times come from a seeded generator, so they are the same in both phases.
        """
        rng = random.Random(1)
        times = []
        for tenant in self.tenants:
            phase = rng.random()
            times += [(tenant.start + (n + phase) / tenant.per_second, tenant) for n in range(tenant.calls)]
        return sorted(times, key=lambda pair: pair[0])

    def prompt(self, number: int) -> str:
        """Returns a prompt of `prompt_tokens` tokens of four bytes each, with a unique prefix."""
        text = f"Call {number}. " + "The tide comes in, the tide goes out, and the gate follows. " * self.prompt_tokens
        return text[: 4 * self.prompt_tokens]


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
        prompt_tokens=512,
        output_tokens=128,
        wait=30,
        time_scale=time_scale,
        load=0.5,
    )


def real(load: float) -> Plan:
    """Returns a small load for a real server. `load` multiplies the calls and their rates."""

    def times(calls: int) -> int:
        return max(1, round(calls * load))

    return Plan(
        tenants=(
            Tenant("A", per_second=1.0 * load, calls=times(30), start=0, cap=16),
            Tenant("B", per_second=8.0 * load, calls=times(40), start=10, cap=2),
            Tenant("C", per_second=0.5 * load, calls=times(15), start=0, cap=16),
        ),
        prompt_tokens=128,
        output_tokens=32,
        wait=10,
        time_scale=1,
        load=load,
    )
