"""Runs one phase of the demo: sends all calls of the plan as streams, with the official client.

Each phase has a process of its own, so that phases that run at the same time do not delay each other.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import openai
from cpu_usage import Usage
from load_plan import prompt
from progress import line

import tidegate

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import Queue
    from threading import Barrier

    from load_plan import Plan, Tenant
    from server import Server


@dataclass
class Call:
    """One call and its result. Times are in seconds since the start of the phase.

    They are on the blog post's clock (see `load_plan`). `first` and `last` are the times of the
    first and the last token, and `ended` is the time at which the call ended. `failure` is the HTTP
    status or the kind of the failure, or None if the call did not fail.
    """

    tenant: str
    sent: float
    first: float | None = None
    last: float | None = None
    tokens: int = 0
    ended: float | None = None
    failure: str | None = None

    @property
    def ttft(self) -> float | None:
        """Time from sending the call to its first token, in seconds. None without a token."""
        return None if self.first is None else self.first - self.sent

    @property
    def decode(self) -> float | None:
        """Mean time between two tokens, in seconds.

        None if the call failed or has fewer than two tokens.
        """
        if self.failure or self.first is None or self.last is None or self.tokens < 2:
            return None
        return (self.last - self.first) / (self.tokens - 1)


#: Time in which all phases are ready to begin, in seconds.
STARTS_WITHIN = 60
#: The phases of the demo, in order: the client as it is; through Tidegate, with caps of the tenants; and
#: through Tidegate, with nothing configured but the tenants' names.
PHASES = ("off", "caps", "names")


@dataclass
class Phase:
    """The calls and measurements of one of the `PHASES`."""

    name: str
    calls: list[Call] = field(default_factory=list)
    #: Maximum number of concurrent calls of each tenant at the server.
    peaks: dict[str, int] = field(default_factory=dict)
    cpu: Usage = field(default_factory=Usage)
    seconds: float = 0.0


def gate_of(plan: Plan, server: Server, phase: str) -> tidegate.Gate | None:
    """Returns the gate of a phase, or None for the phase without Tidegate.

    With `caps`, the gate has the caps of the plan. With `names`, it only knows the names of the
    tenants. Its maximum wait is that of the plan, converted to real time.
    """
    if phase == "off":
        return None
    target: dict[str, object] = {"url": server.base_url, "wait": plan.wait / plan.time_scale}
    if phase == "caps":
        target |= {"cap": plan.cap, "tenants": {tenant.name: {"cap": tenant.cap} for tenant in plan.tenants}}
    else:
        target |= {"tenants": {tenant.name: {} for tenant in plan.tenants}}
    return tidegate.Gate(targets={"demo": target})


def clients(plan: Plan, server: Server, gate: tidegate.Gate | None) -> dict[str, openai.AsyncOpenAI]:
    """Returns the client of each tenant by name, wrapped by the gate unless that is None."""
    stock = {t.name: openai.AsyncOpenAI(base_url=server.base_url, api_key=server.key(t.name)) for t in plan.tenants}
    return {name: gate.wrap(client) for name, client in stock.items()} if gate else stock


#: What a phase tells of its progress: its name, a line of text, and whether the line is the last one.
Message = tuple[str, str, bool]


def run_phase(plan: Plan, server: Server, name: str, messages: Queue[Message | None], begin: Barrier) -> Phase:
    """Runs a phase, which is one of the `PHASES`, in this process. It begins when all have reached `begin`."""
    return asyncio.run(play(plan, server, name, messages, begin))


async def play(plan: Plan, server: Server, name: str, messages: Queue[Message | None], begin: Barrier) -> Phase:
    """Sends all calls of a phase, waits until they have ended, and returns the phase."""
    gate = gate_of(plan, server, name)
    of = clients(plan, server, gate)
    # The first call imports modules, so it is sent before the measurement.
    size = (plan.prompt_tokens, plan.output_tokens)
    await send(of["A"], server, size, Call("A", 0.0), -1, time.perf_counter)
    if server.simulated:
        server.reset()
    begin.wait(STARTS_WITHIN)
    phase = Phase(name)
    start = time.perf_counter()

    def clock() -> float:
        return (time.perf_counter() - start) * plan.time_scale

    ticker = asyncio.create_task(report_every_second(plan, phase, clock, messages))
    tasks = []
    for number, (at, tenant) in enumerate(plan.arrivals()):
        await asyncio.sleep((at - clock()) / plan.time_scale)
        call = Call(tenant.name, clock())
        phase.calls.append(call)
        tasks.append(asyncio.create_task(make_call(of[tenant.name], server, size, call, number, clock, tenant)))
    await asyncio.gather(*tasks)
    ticker.cancel()
    phase.cpu.sample()
    phase.seconds = time.perf_counter() - start
    phase.peaks = peaks(phase, server, gate)
    for client in of.values():
        await client.close()
    messages.put((name, f"  {name:5} took {phase.seconds:.0f} s; the client used {phase.cpu}", True))
    return phase


async def make_call(
    client: openai.AsyncOpenAI,
    server: Server,
    size: tuple[int, int],
    call: Call,
    number: int,
    clock: Callable[[], float],
    tenant: Tenant,
) -> None:
    """Makes a call for its tenant. Records a failure in `call` instead of raising an exception."""
    try:
        with tidegate.context(tenant=tenant.name):
            await send(client, server, size, call, number, clock)
    except openai.APIStatusError as error:
        call.failure = str(error.status_code)
    except openai.OpenAIError as error:
        call.failure = type(error).__name__
    call.ended = clock()


async def send(
    client: openai.AsyncOpenAI,
    server: Server,
    size: tuple[int, int],
    call: Call,
    number: int,
    clock: Callable[[], float],
) -> None:
    """Streams the answer to one call, and records the number and the times of its tokens in `call`.

    `size` has the tokens of the prompt and the maximum tokens of the answer. A stream that ends
    without a finish reason is recorded as a failure. `number` makes the prompt unique. `clock`
    returns the time since the start of the phase.
    """
    prompt_tokens, output_tokens = size
    stream = await client.chat.completions.create(
        model=server.model,
        messages=[{"role": "user", "content": prompt(number, prompt_tokens)}],
        max_completion_tokens=output_tokens,
        stream=True,
        stream_options={"include_usage": True},
    )
    finished = False
    async for chunk in stream:
        if chunk.usage:
            call.tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            delta = choice.delta
            if delta.content or getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None):
                call.last = clock()
                call.first = call.first or call.last
                call.tokens += 1
            finished = finished or choice.finish_reason is not None
    if not finished:
        call.failure = "truncated"


async def report_every_second(
    plan: Plan, phase: Phase, clock: Callable[[], float], messages: Queue[Message | None]
) -> None:
    """Samples the CPU time and tells the progress, once a second until the task is cancelled."""
    while True:
        await asyncio.sleep(1)
        phase.cpu.sample()
        messages.put((phase.name, line(plan, phase, clock()), False))


def peaks(phase: Phase, server: Server, gate: tidegate.Gate | None) -> dict[str, int]:
    """Returns the maximum number of concurrent calls of each tenant.

    The number comes from the simulator's statistics. For a real server, it comes from the gate or,
    if that is None, from the start and end times of the calls.
    """
    if server.simulated:
        return server.peaks()
    if gate:
        tenants = gate.snapshot()["targets"]["demo"]["tenants"]
        return {name: seen["peak_in_flight"] for name, seen in tenants.items()}
    names = {call.tenant for call in phase.calls}
    return {name: max_concurrent([call for call in phase.calls if call.tenant == name]) for name in names}


def max_concurrent(calls: list[Call]) -> int:
    """Returns the maximum number of concurrent calls, computed from their start and end times.

    If one call ends when another starts, they are not concurrent.
    """
    edges = sorted([(c.sent, 1) for c in calls] + [(c.ended, -1) for c in calls if c.ended is not None])
    now = most = 0
    for _, change in edges:
        now += change
        most = max(most, now)
    return most
