"""What `gate.snapshot()` and `gate.calls()` return, as types: plain data, the same in every language.

Times are seconds. The types are for type checkers and editors: at run time each is a dict.
"""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = [
    "AttemptRecord",
    "BudgetSnapshot",
    "CallRecord",
    "Cause",
    "DecisionSnapshot",
    "KvSnapshot",
    "LaneSnapshot",
    "LimitSnapshot",
    "Quantiles",
    "Snapshot",
    "TargetSnapshot",
    "TenantSnapshot",
    "ToolSnapshot",
]


class Quantiles(TypedDict):
    """What a histogram saw; None where it saw nothing."""

    count: int
    mean: float | None
    p50: float | None
    p99: float | None


Cause = Literal["slow_start", "headroom", "late", "slow", "refused", "overloaded", "timed_out"]
"""Why a limit moved.

Upwards, since calls pressed on it and were answered in time: `slow_start` (each raises it by one) and `headroom` (by
trial, where a level is known that was too much). Downwards: first tokens came too `late`, or tokens too `slow`; 429s
`refused` so many at once; 503 or 529 (`overloaded`); attempts `timed_out`.
"""

DecisionSnapshot = TypedDict(
    "DecisionSnapshot", {"ago": float, "from": int, "to": int, "awaiting": int, "cause": Cause}
)
"""One move of a limit, so many seconds ago, in slots. `awaiting`: the most calls that may await a first token, since.

Raises for one cause, one after the other, are one move. A cut may leave the slots as they were, where it was of
`awaiting`.
"""


class LimitSnapshot(TypedDict):
    """What an adaptive limit sees, and what it did.

    `limit`: slots in force. `ceiling`: the cap. `awaiting`: calls that await their first token, of at most
    `awaiting_limit`. `slow_start`: whether no level is known yet that was too much. `objective`: what it keeps to, from
    sending to the first token, or of a tool to the end; None where none is set. `late`: the share of calls judged of
    late that were late, 0 to 1; None where none was judged. `evidence`: of a breach; at 1 the limit is cut (under a
    percentile, where there is no `slow_start`: the quantile over the objective with its dead band). `cuts`, `raises`:
    so far.
    `saturated`: whether calls press on it though they were found to be too many in the last minute, also at its floor;
    what helps then is another replica.
    `decisions`: the last moves, the youngest last.
    """

    limit: int
    ceiling: int
    awaiting: int
    awaiting_limit: int
    slow_start: bool
    objective: float | None
    late: float | None
    evidence: float
    cuts: int
    raises: int
    saturated: bool
    decisions: list[DecisionSnapshot]


class BudgetSnapshot(TypedDict):
    """One of a provider's rates, as it stands.

    `limit`: requests or tokens in each `window`. `level`: what may go at once; it fills up at the rate, to `burst`
    seconds of it. `debt`: what is owed, since calls took more than was expected of them. `source`: who says so.
    `counting`: what of a call counts: input and the most output it asks for (`sum`), the larger of the two, what it
    took in the end (`actual`), or its input alone.
    """

    limit: int
    window: float
    level: int
    debt: int
    source: Literal["configured", "headers"]
    burst: float
    counting: Literal["auto", "sum", "larger", "actual", "input"]


class KvSnapshot(TypedDict):
    """The engine's memory, in tokens.

    `capacity`: what it has. `usable`: of that, less the headroom. `held`: what the calls in flight hold, as far as
    it is seen. `peak`: the most that they will come to hold together.
    """

    capacity: int
    usable: int
    held: int
    peak: int


class LaneSnapshot(TypedDict):
    """One lane's part of a target. `floor`: slots that are its own, of the limit in force."""

    in_flight: int
    queue_depth: int
    floor: int


class TenantSnapshot(TypedDict):
    """One tenant's part of a target.

    `floor`: slots that are its own, of the limit in force. `debt`: tokens that it owes of its own `tpm`.
    `objective_met`: completed calls that met the TTFT objective. `ttft`: as its caller saw it, waiting included.
    """

    in_flight: int
    peak_in_flight: int
    queue_depth: int
    floor: int
    debt: int
    admitted: int
    objective_met: int
    outcomes: dict[str, int]
    refused: dict[str, int]
    input_tokens: int
    output_tokens: int
    queue_wait: Quantiles
    ttft: Quantiles
    duration: Quantiles


class ReplicaSnapshot(TypedDict):
    """One replica of a pool.

    `state`: `in` the choice, `suspect` (it gets no calls until it is heard of), `down`, `trial` (one call at a time),
    `starting` (slow start), `draining` (it leaves with its last call). `share`: the share of its slots that is in
    force. `ejections`: how often it has left the choice. `limit`, `adaptive`, `in_flight`, `kv`: as of a target.
    `requests`, `tokens`: of this gate's calls there. `others`: calls of other clients. `kv_usage`: the share of
    its memory that is taken, by itself. `models`: what it serves. Each of these three is None while it is not known.
    """

    url: str
    state: Literal["in", "suspect", "down", "trial", "starting", "draining"]
    weight: float
    share: float
    ejections: int
    limit: int
    adaptive: LimitSnapshot | None
    in_flight: int
    kv: KvSnapshot | None
    requests: int
    tokens: int
    others: float | None
    kv_usage: float | None
    models: list[str] | None


class TargetSnapshot(TypedDict):
    """One target's state.

    `limit`: slots in force. `adaptive`: what moves them; None where the limit is fixed.
    `queue_depth`: calls that wait for a slot, or for the cool-down of their key. `cool_for`: until
    the cool-down ends. `held_for`: for
    how long room has been kept for an aged call that does not fit yet; None where it is kept for nobody.
    `gap_fraction`: the share of time in which calls waited while slots were free. `retry_budget`: retries that may
    be scheduled now. `budgets`: the provider's rates by what they count (`requests`, `tokens`, `input_tokens`,
    `output_tokens`, `requests_per_day`, `tokens_per_day`), those configured and those that its headers spoke of.
    `kv`: None where `kv_tokens` is not set. `replicas`: of a pool. `replicas_problem`: why it is not known now which
    there are, where DNS or a file names them; those known before stay. `attempts`: attempts sent. `fallbacks`: calls
    refused here that went to the fallback target, by reason. `hedges`: second tries of calls whose first token was
    late, where a pool hedges: `sent`, `won`, `no_slot`, `no_budget`. `would`: what mode `observe` would have done.
    """

    limit: int
    adaptive: LimitSnapshot | None
    in_flight: int
    peak_in_flight: int
    queue_depth: int
    state: Literal["open", "cooling", "probing", "ramping"]
    cool_for: float | None
    held_for: float | None
    gap_fraction: float
    retry_budget: float
    budgets: dict[str, BudgetSnapshot]
    kv: KvSnapshot | None
    replicas: list[ReplicaSnapshot]
    replicas_problem: str | None
    lanes: dict[str, LaneSnapshot]
    attempts: int
    retries: dict[str, int]
    failed_attempts: dict[str, int]
    gave_up: dict[str, int]
    cool_downs: dict[str, int]
    fallbacks: dict[str, int]
    hedges: dict[str, int]
    would: dict[str, int]
    upstream_ttft: Quantiles
    tpot: Quantiles
    tenants: dict[str, TenantSnapshot]


class ToolSnapshot(TypedDict):
    """One tool's state.

    `limit`: slots in force. `adaptive`: what moves them; None where the limit is fixed. `slot_held`: model slots that a
    task held when it asked for this tool, by target: it `got` the tool at once, `waited` for it, or `yielded` the slot.
    """

    limit: int
    adaptive: LimitSnapshot | None
    in_flight: int
    peak_in_flight: int
    queue_depth: int
    wait: Quantiles
    refused: dict[str, int]
    would: dict[str, int]
    slot_held: dict[str, dict[str, int]]


class Snapshot(TypedDict):
    """A gate's state. `draining`: whether new calls are refused. `active`: calls under way, waiting ones included."""

    mode: Literal["enforce", "observe", "off"]
    draining: bool
    active: int
    targets: dict[str, TargetSnapshot]
    tools: dict[str, ToolSnapshot]


class AttemptRecord(TypedDict):
    """One attempt of a call. Moments are since the call's `queued_at`; None where it did not come to that.

    `in_flight`: slots of the target held just after it was admitted, its own included. `replica`: the base URL of the
    replica that it went to, where its target is a pool. `status`: the upstream's.
    `backoff`: how long the call then slept before it queued again.
    """

    queued_at: float
    admitted_at: float | None
    in_flight: int | None
    replica: str | None
    sent_at: float | None
    first_token_at: float | None
    released_at: float | None
    status: int | None
    backoff: float | None


class CallRecord(TypedDict):
    """A call that ended.

    `label`: what `tidegate.context(call=...)` named it. `fallback_from`: the target that refused it before, where
    it came to this one as its fallback. `model`: None where the request named none. `queued_at`: since the Unix
    epoch. `duration`: end to end. `estimated_input_tokens`, `estimated_output_tokens`: what it was expected to take
    when it last came to the door, by all that was learned until then; None where its body was no JSON.
    `max_output_tokens`: the most that it asked for, of all answers together; None where it set no bound.
    `input_tokens`, `output_tokens`: as the provider counted, cached input and reasoning included; None where it did
    not say.
    """

    id: int
    label: str | None
    target: str
    fallback_from: str | None
    tenant: str
    lane: Literal["interactive", "standard", "batch"]
    model: str | None
    outcome: Literal["completed", "failed", "refused", "cancelled", "truncated", "timed_out", "broken"]
    queued_at: float
    duration: float
    estimated_input_tokens: int | None
    estimated_output_tokens: int | None
    max_output_tokens: int | None
    input_tokens: int | None
    output_tokens: int | None
    attempts: list[AttemptRecord]
