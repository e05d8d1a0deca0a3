"""Why a call waits, or was refused: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tidegate._types import Lane

Rule = Literal[
    "slots",
    "first_tokens",
    "tenant_cap",
    "requests",
    "tokens",
    "input_tokens",
    "output_tokens",
    "requests_per_day",
    "tokens_per_day",
    "tenant_tokens",
    "kv",
    "replicas",
    "cool_down",
    "outage",
    "turn",
    "held",
]
"""What stands in a call's way.

Its target's slots, as many calls as may await their first token, its tenant's cap, one of the provider's rates, its
tenant's own tokens, the engine's memory, a pool's replicas that serve it, a cool-down, an outage, others whose turn
it is, or room that is kept for a call that has waited longer.
"""


@dataclass(frozen=True)
class Why:
    """What stood in a refused call's way. Times are seconds.

    Attributes:
        rule: the rule's stable name.
        text: what it says, for people.
        since: for how long it had stood in the way.
        waited: for how long the call had waited in all.
        expected: in how long its turn was expected; None where too little was seen to say.
        ahead: how many calls went first.

    """

    rule: Rule
    text: str
    since: float
    waited: float
    expected: float | None
    ahead: int


@dataclass(frozen=True)
class Explanation:
    """Why a call waits now, or what it is at instead. Times are seconds.

    Attributes:
        call: its number, as in `gate.calls()` and in errors.
        label: what `tidegate.context(call=...)` named it.
        target: where it goes; None for a wait for a tool.
        tool: the tool that is waited for; None for calls.
        tenant: the fairness key.
        lane: the priority class.
        state: `waiting` in a queue; `backing_off` before it queues again; `in_flight`.
        rule: the rule that stands in its way, while it waits.
        text: all of it, for people.
        waited: since it was first asked for.
        since: for how long the rule has stood in its way; else for how long the state has lasted.
        expected: in how long its turn is expected; None where too little was seen to say.
        ahead: how many calls go first, while it waits.

    """

    call: int
    label: str | None
    target: str | None
    tool: str | None
    tenant: str
    lane: Lane
    state: Literal["waiting", "backing_off", "in_flight"]
    rule: Rule | None
    text: str
    waited: float
    since: float
    expected: float | None
    ahead: int | None

    def __str__(self) -> str:
        """Show it as a person would want to read it."""
        name = f"call {self.call}" if self.label is None else f"call {self.call} ({self.label})"
        return f"{name} of {self.tenant}: {self.text}"
