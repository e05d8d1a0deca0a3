"""What is sent: the three tenants of the post, scaled. Times are seconds of the post's clock."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Tenant:
    """One tenant's traffic, and its cap where caps are on."""

    name: str
    per_second: float
    calls: int
    start: float
    cap: int

    @property
    def end(self) -> float:
        """When its last call is sent."""
        return self.start + self.calls / self.per_second


@dataclass(frozen=True)
class Plan:
    """All of it."""

    tenants: tuple[Tenant, ...]
    prompt_tokens: int
    output_tokens: int
    #: How long a call waits at its cap before it fails with 504.
    wait: float
    #: Seconds of the post in one real second.
    time_scale: float
    #: The share of the post's load.
    load: float

    @property
    def calls(self) -> int:
        """Calls of one phase."""
        return sum(tenant.calls for tenant in self.tenants)

    @property
    def burst(self) -> tuple[float, float]:
        """When the bursting tenant begins and ends."""
        tenant = self.tenants[1]
        return tenant.start, tenant.end

    def arrivals(self) -> list[tuple[float, Tenant]]:
        """When each call is sent: paced, from a fixed random phase, so that both phases send the same."""
        rng = random.Random(1)
        times = []
        for tenant in self.tenants:
            phase = rng.random()
            times += [(tenant.start + (n + phase) / tenant.per_second, tenant) for n in range(tenant.calls)]
        return sorted(times, key=lambda pair: pair[0])

    def prompt(self, number: int) -> str:
        """Return a prompt of `prompt_tokens` at four bytes each. Each begins differently: no prefix cache serves it."""
        text = f"Call {number}. " + "The tide comes in, the tide goes out, and the gate follows. " * self.prompt_tokens
        return text[: 4 * self.prompt_tokens]


def simulated(time_scale: float) -> Plan:
    """Half of the post's load, for one of its two workers: prompts, answers, waits and speeds are the post's."""
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
    """Return a small load for a server that may cost money; `load` multiplies the calls and their rates."""

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
