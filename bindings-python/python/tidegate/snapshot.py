"""The types of `Gate.snapshot` and `Gate.calls`: plain data with the same keys in every language.

All times are in seconds. The types serve type checkers and editors; at run time each value is a
dict.
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
    "ReplicaSnapshot",
    "Snapshot",
    "TargetSnapshot",
    "TenantSnapshot",
    "ToolSnapshot",
]


class Quantiles(TypedDict):
    """Summary of a histogram. Each value is None if the histogram is empty.

    Attributes:
        count: Number of samples.
        mean: Mean in seconds.
        p50: Median in seconds.
        p99: 99th percentile in seconds.

    """

    count: int
    mean: float | None
    p50: float | None
    p99: float | None


Cause = Literal["slow_start", "headroom", "late", "slow", "refused", "overloaded", "timed_out"]
"""Why an adaptive limit changed.

- `slow_start`: raised by one for each call in time, before a first decrease.
- `headroom`: raised as a trial, because calls were in time.
- `late`: decreased, because first tokens were late.
- `slow`: decreased, because tokens were slow.
- `refused`: decreased, because the upstream answered 429.
- `overloaded`: decreased, because the upstream answered 503 or 529.
- `timed_out`: decreased, because attempts timed out.
"""

DecisionSnapshot = TypedDict(
    "DecisionSnapshot", {"ago": float, "from": int, "to": int, "awaiting": int, "cause": Cause}
)
"""One change of an adaptive limit.

Consecutive increases for one cause are one change.

Attributes:
    ago: Seconds since the change.
    from: Slots before.
    to: Slots after. They are equal to `from` if only `awaiting` was decreased.
    awaiting: Maximum number of calls that may await their first token, since the change.
    cause: Why the limit changed.

"""


class LimitSnapshot(TypedDict):
    """State of an adaptive limit.

    Attributes:
        limit: Slots in force.
        ceiling: The cap, which the limit never exceeds.
        awaiting: Calls that await their first token.
        awaiting_limit: Maximum number of calls that may await their first token.
        slow_start: Whether no limit was too high so far, so that each call in time raises it by
            one. Always False with a percentile detector.
        objective: Objective in seconds from sending to the first token, or to the end for tools;
            None without one.
        late: Share of the recently judged calls that were late, 0 to 1; None if none was judged.
        evidence: Evidence against the limit; at 1 the limit is decreased. With a percentile
            detector: the quantile divided by the objective with its dead band.
        cuts: Number of decreases.
        raises: Number of increases.
        saturated: Whether calls wait although the limit was too high within the last minute, or is
            at its floor. Another replica would help.
        decisions: The last changes, the newest last.

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
    """State of one rate of a provider.

    Attributes:
        limit: Requests or tokens per window.
        window: Length of the window in seconds.
        level: Requests or tokens that can be used now. The level rises at the rate, up to `burst`
            seconds of it.
        debt: Requests or tokens that calls used beyond their estimates and that are still to be
            made up for.
        source: Whether the rate is configured or from the provider's headers.
        burst: Maximum burst, in seconds of the rate.
        counting: What a call counts for: input plus maximum output (`sum`), the larger of the two
            (`larger`), actual usage (`actual`) or `input` only.

    """

    limit: int
    window: float
    level: int
    debt: int
    source: Literal["configured", "headers"]
    burst: float
    counting: Literal["auto", "sum", "larger", "actual", "input"]


class KvSnapshot(TypedDict):
    """KV memory of an engine, in tokens.

    Attributes:
        capacity: Size of the memory.
        usable: Size without the headroom.
        held: Tokens that calls in flight hold now, as far as known.
        peak: Tokens that calls in flight will hold at most.

    """

    capacity: int
    usable: int
    held: int
    peak: int


class LaneSnapshot(TypedDict):
    """State of one lane of a target.

    Attributes:
        in_flight: Slots in use.
        queue_depth: Waiting calls.
        floor: Reserved slots, within the limit in force.

    """

    in_flight: int
    queue_depth: int
    floor: int


class TenantSnapshot(TypedDict):
    """State of one tenant of a target.

    Attributes:
        in_flight: Slots in use.
        peak_in_flight: Maximum number of slots in use so far.
        queue_depth: Waiting calls.
        floor: Reserved slots, within the limit in force.
        debt: Tokens above the tenant's own `tpm` that are still to be made up for.
        admitted: Admitted attempts.
        objective_met: Completed calls that met the TTFT objective.
        outcomes: Ended calls by outcome.
        refused: Rejected calls by reason.
        input_tokens: Input tokens of ended calls.
        output_tokens: Output tokens of ended calls.
        queue_wait: Time in the queue.
        ttft: Time from queueing to the first token (user TTFT).
        duration: Time from queueing to the end.

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
    """State of one replica of a pool.

    Attributes:
        url: Base URL.
        state: `in`: selected normally. `suspect`: gets no calls until it answers. `down`:
            unreachable. `trial`: gets one call at a time. `starting`: in slow start. `draining`:
            removed when its last call ends.
        weight: Configured weight.
        share: Share of its slots that is in force, 0 to 1.
        ejections: Number of times that it was excluded from selection.
        limit: Slots in force.
        adaptive: State of the adaptive limit, or None if the limit is fixed.
        in_flight: Slots in use.
        kv: KV memory, or None if its size is not known.
        requests: Calls of this gate at the replica now.
        tokens: Tokens of these calls.
        others: Calls of other clients, or None if not known.
        kv_usage: Used share of the KV memory as the engine reports it, 0 to 1, or None if not
            known.
        models: Models that it serves, or None if not known.

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
    """State of one target.

    Attributes:
        limit: Slots in force.
        adaptive: State of the adaptive limit, or None if the limit is fixed.
        in_flight: Slots in use.
        peak_in_flight: Maximum number of slots in use so far.
        queue_depth: Calls that wait for a slot, or for the cool-down of their key.
        state: `open`; `cooling` (cool-down); `probing` (one call tests it); `ramping` (the limit
            rises again).
        cool_for: Remaining seconds of the cool-down, or None.
        held_for: Seconds since which capacity is reserved for an aged call that does not fit yet,
            or None.
        gap_fraction: Share of the time in which calls waited although slots were free, 0 to 1.
        retry_budget: Retries that may be scheduled now.
        budgets: Rates of the provider by kind (`requests`, `tokens`, `input_tokens`,
            `output_tokens`, `requests_per_day`, `tokens_per_day`): configured ones, and those in
            its headers.
        kv: KV memory, or None if `kv_tokens` is not set.
        replicas: Replicas of a pool, otherwise empty.
        replicas_problem: Why DNS or the file could not be read, or None. The known replicas stay in
            use.
        lanes: State by lane.
        attempts: Attempts sent.
        retries: Retries by reason.
        failed_attempts: Failed attempts by cause.
        gave_up: Calls that were not retried, by reason.
        cool_downs: Cool-downs by cause.
        fallbacks: Rejected calls that were sent to the fallback target, by reason.
        hedges: Hedged attempts of a pool: `sent`, `won`, `no_slot`, `no_budget`.
        would: Actions that mode `observe` did not take.
        upstream_ttft: Time from sending to the first token.
        tpot: Time per output token.
        tenants: State by tenant.

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
    """State of one tool.

    Attributes:
        limit: Slots in force.
        adaptive: State of the adaptive limit, or None if the limit is fixed.
        in_flight: Slots in use.
        peak_in_flight: Maximum number of slots in use so far.
        queue_depth: Waiting calls.
        wait: Time in the queue.
        refused: Rejected calls by reason.
        would: Actions that mode `observe` did not take.
        slot_held: Model slots that tasks held when they asked for the tool, by target and result:
            `got` (the tool was free), `waited`, or `yielded` (the slot was released).

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
    """State of a gate.

    Attributes:
        mode: Mode of the gate.
        draining: Whether new calls are rejected because the gate drains.
        active: Active calls, including waiting ones.
        targets: State by target.
        tools: State by tool.

    """

    mode: Literal["enforce", "observe", "off"]
    draining: bool
    active: int
    targets: dict[str, TargetSnapshot]
    tools: dict[str, ToolSnapshot]


class AttemptRecord(TypedDict):
    """One attempt of a call.

    Times are in seconds since the call's `queued_at`, or None if the attempt ended before.

    Attributes:
        queued_at: When the attempt was queued.
        admitted_at: When a slot was acquired.
        in_flight: Slots of the target in use just after the admission, including its own, or None.
        replica: Base URL of the replica, or None if the target is not a pool.
        sent_at: When the request was sent.
        first_token_at: When the first token arrived.
        released_at: When the slot was released.
        status: HTTP status of the upstream, or None.
        backoff: Seconds of backoff before the next attempt was queued, or None.

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
    """A call that has ended.

    Attributes:
        id: Number of the call.
        label: Label from `tidegate.context(call=...)`, or None.
        target: Name of the target.
        fallback_from: Target that rejected the call before it was sent here as a fallback, or None.
        tenant: Fairness key.
        lane: Priority class.
        model: Model that the request names, or None.
        outcome: How the call ended.
        queued_at: Seconds since the Unix epoch.
        duration: Seconds from queueing to the end.
        estimated_input_tokens: Estimated input tokens at the last admission attempt, or None if the
            body is not JSON.
        estimated_output_tokens: Estimated output tokens, of all answers together, at that time, or
            None if the body is not JSON.
        max_output_tokens: Maximum output tokens of all answers together, or None without a maximum.
        input_tokens: Input tokens as the provider counted them, including cached ones, or None if
            it did not report them.
        output_tokens: Output tokens as the provider counted them, including reasoning, or None if
            it did not report them.
        attempts: The attempts in order.

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
