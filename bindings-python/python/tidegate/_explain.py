"""Explanations of why a call waits or was rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tidegate._types import Lane

Rule = Literal[
    "slots",
    "share",
    "first_tokens",
    "tenant_share",
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
"""The rule that blocks a call.

- `slots`: all slots of the target are in use.
- `share`: this process uses all that it may of a limit that several processes share.
- `first_tokens`: the limit of calls that await their first token is reached.
- `tenant_share`: the tenant uses its share, and the rest is kept for the first tokens of other
  tenants.
- `tenant_cap`: the tenant holds its maximum number of slots.
- `requests`, `tokens`, `input_tokens`, `output_tokens`, `requests_per_day`, `tokens_per_day`: this
  rate of the provider is used up.
- `tenant_tokens`: the tenant's own token rate is used up.
- `kv`: the engine's KV memory is full.
- `replicas`: no replica of the pool can serve the call now.
- `cool_down`: the provider asked to wait.
- `outage`: the target fails, and one call probes it.
- `turn`: other calls are ahead.
- `held`: capacity is reserved for a call that has waited longer.
"""


@dataclass(frozen=True)
class Why:
    """The rule that blocked a rejected call, and how long the call waited. Times are in seconds.

    Attributes:
        rule: Stable name of the rule.
        text: The rule in a sentence for people.
        since: How long the rule had blocked the call when it was rejected.
        waited: How long the call had waited in total.
        expected: Expected time until admission, or None if there is not enough data.
        ahead: Number of calls that were ahead in the queue.

    """

    rule: Rule
    text: str
    since: float
    waited: float
    expected: float | None
    ahead: int


@dataclass(frozen=True)
class Explanation:
    """The state of an active call, and the rule that blocks it. All times are in seconds.

    Attributes:
        call: Number of the call, the same as in `Gate.calls` and in errors.
        label: Label from `tidegate.context(call=...)`, or None without a label.
        target: Name of the target, or None if the call waits for a tool.
        tool: Name of the tool that the call waits for, or None for calls of a target.
        tenant: Fairness key.
        lane: Priority class.
        state: `waiting` (in a queue), `backing_off` (before a retry is queued) or `in_flight`.
        rule: The rule that blocks the call, or None unless `state` is `waiting`.
        text: The whole explanation for people.
        waited: Time since the call was made.
        since: How long the rule has blocked the call, or how long the state has lasted if `rule` is
            None.
        expected: Expected time until admission, or None if there is not enough data.
        ahead: Number of calls ahead in the queue, or None unless `state` is `waiting`.

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
        """Returns one line with the call's number, label and tenant, and the explanation."""
        name = f"call {self.call}" if self.label is None else f"call {self.call} ({self.label})"
        return f"{name} of {self.tenant}: {self.text}"
