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
    """Summary of the values in a histogram.

    `mean`, `p50` and `p99` are None if the histogram is empty.

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
    """State of the adaptive limit of a target, replica or tool.

    Attributes:
        limit: Current number of slots.
        ceiling: The configured cap, which the limit never exceeds.
        awaiting: Number of calls that await their first token now.
        awaiting_limit: Maximum number of calls that may await their first token.
        slow_start: Whether the limit has never been decreased. Each call that meets the objective
            then raises it by one. Always False with a percentile detector.
        objective: Objective in seconds from sending to the first token (targets) or to the end
            (tools); None without an objective.
        late: Share of the recent calls that missed the objective, 0 to 1; None if no recent call
            could be compared with it.
        evidence: Evidence that the limit is too high, from 0. At 1, the limit is decreased. With a
            percentile detector: the measured quantile divided by the highest value that is
            tolerated.
        cuts: Number of decreases so far.
        raises: Number of increases so far.
        saturated: Whether calls need more slots than the limit, although the limit was too high
            within the last minute. The upstream then needs more replicas. A minimum limit that is
            too high counts, too.
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
    """State of one rate of a provider: a token bucket of requests or tokens.

    Attributes:
        limit: Requests or tokens per window.
        window: Length of the window in seconds.
        level: Requests or tokens that can be used now. The level rises at the rate, up to `burst`
            seconds of it.
        debt: Requests or tokens that calls used beyond their estimates. New calls wait until the
            rate has made up for them.
        source: Where the rate comes from: the configuration, or the headers of the provider's
            responses.
        burst: Maximum burst, in seconds of the rate.
        counting: How many tokens a call counts for: input plus maximum output (`sum`), the larger
            of the two (`larger`), actual usage (`actual`) or `input` only.

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
        usable: Size minus the configured headroom.
        held: Tokens that calls in flight occupy now, as far as the gate knows.
        peak: Tokens that calls in flight will occupy at most.

    """

    capacity: int
    usable: int
    held: int
    peak: int


class LaneSnapshot(TypedDict):
    """State of one lane of a target.

    Attributes:
        in_flight: Number of slots that calls of the lane hold.
        queue_depth: Number of calls in the lane's queue.
        floor: Number of slots that are reserved for the lane, at most the current limit.

    """

    in_flight: int
    queue_depth: int
    floor: int


class TenantSnapshot(TypedDict):
    """State of one tenant of a target.

    Counts without "now" are totals since the target was created.

    Attributes:
        in_flight: Number of slots that calls of the tenant hold now.
        peak_in_flight: Maximum of `in_flight` so far.
        queue_depth: Number of calls of the tenant that wait for a slot now.
        floor: Number of slots that are reserved for the tenant now, at most the current limit.
        debt: Tokens that the tenant used above its own `tpm`. Its calls wait until the rate has
            made up for them.
        admitted: Number of attempts that got a slot.
        objective_met: Number of completed calls that met the objective for the time to first token.
        outcomes: Number of ended calls by outcome; for the outcomes, see `CallRecord.outcome`.
        refused: Number of rejected calls by reason; for the reasons, see `tidegate.Error`.
        input_tokens: Input tokens of ended calls.
        output_tokens: Output tokens of ended calls.
        queue_wait: Time in the queue, in seconds.
        ttft: Time from queueing to the first token, in seconds.
        duration: Time from queueing to the end, in seconds.

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
        state: `in`: selected normally. `suspect`: gets no calls until it responds or is found to be
            down. `down`: unreachable. `trial`: gets one call at a time. `starting`: in slow start.
            `draining`: removed when its last call ends.
        weight: Configured weight, relative to the other replicas.
        share: Usable share of the replica's slots, 0 to 1. Below 1 during slow start.
        ejections: Number of times that the replica was excluded from selection.
        limit: Current number of slots.
        adaptive: State of the adaptive limit, or None if the limit is fixed.
        in_flight: Number of slots in use.
        kv: KV memory, or None if its size is not known.
        requests: Number of calls of this gate that are at the replica now.
        tokens: Tokens of the calls that `requests` counts.
        others: Number of calls of other clients at the replica, or None if not known.
        kv_usage: Used share of the KV memory as the engine reports it, 0 to 1, or None if not
            known.
        models: Models that the replica serves, or None if not known.

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

    Numbers by reason, cause or kind are totals since the target was created.

    Attributes:
        limit: Current number of slots.
        adaptive: State of the adaptive limit, or None if the limit is fixed.
        in_flight: Number of slots in use.
        peak_in_flight: Maximum of `in_flight` so far.
        queue_depth: Number of calls that wait for a slot, or for the cool-down of their key.
        state: `open`: admits calls. `cooling`: in a cool-down. `probing`: one call tests whether
            the target has recovered. `ramping`: attempts are admitted at a growing rate after a
            cool-down.
        cool_for: Remaining seconds of the cool-down, or None without one.
        held_for: Seconds for which capacity has been reserved for a call that waited long and does
            not fit yet, or None without a reservation.
        gap_fraction: Share of the time in which calls waited although slots were free, 0 to 1.
        retry_budget: Number of retries that may be scheduled now.
        budgets: Rates of the provider by kind (`requests`, `tokens`, `input_tokens`,
            `output_tokens`, `requests_per_day`, `tokens_per_day`): configured ones, and those in
            the provider's headers.
        kv: KV memory, or None if `kv_tokens` is not set.
        replicas: Replicas of a pool; empty for other targets.
        replicas_problem: Why the replicas could not be read from DNS or the file, or None without a
            problem. The known replicas stay in use.
        lanes: State by lane.
        attempts: Number of attempts that were sent.
        retries: Number of retries by reason.
        failed_attempts: Number of failed attempts by cause.
        gave_up: Number of failed calls that were not retried, by reason.
        cool_downs: Number of failures that began a cool-down or occurred during one, by kind:
            `retry_after` (requested by the provider) or `outage` (repeated failures).
        fallbacks: Number of rejected calls that were sent to the fallback target, by reason.
        hedges: Number of hedged attempts of a pool: `sent`, `won` (the hedge answered first),
            `no_slot` and `no_budget` (no hedge was sent).
        would: Number of calls that mode `observe` would have delayed (`wait`) or rejected (by
            reason).
        upstream_ttft: Time from sending to the first token, in seconds.
        tpot: Time per output token after the first, in seconds.
        tenants: State by tenant. Tenants without a configuration share the entry `other`.

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

    Numbers by reason or action are totals since the gate was opened.

    Attributes:
        limit: Current number of slots.
        adaptive: State of the adaptive limit, or None if the limit is fixed.
        in_flight: Number of slots in use.
        peak_in_flight: Maximum of `in_flight` so far.
        queue_depth: Number of calls that wait for the tool.
        wait: Time in the queue, in seconds.
        refused: Number of rejected calls by reason; for the reasons, see `tidegate.Error`.
        would: Number of calls that mode `observe` would have delayed (`wait`) or rejected (by
            reason).
        slot_held: Number of model slots that tasks held when they requested the tool, by target and
            result: `got` (the tool was free), `waited`, or `yielded` (the slot was released).

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
        draining: Whether new calls are rejected because `Gate.drain` was called.
        active: Number of active calls, including waiting ones.
        targets: State by name of the target.
        tools: State by name of the tool.

    """

    mode: Literal["enforce", "observe", "off"]
    draining: bool
    active: int
    targets: dict[str, TargetSnapshot]
    tools: dict[str, ToolSnapshot]


class AttemptRecord(TypedDict):
    """One attempt of a call.

    Times are in seconds since the call's `queued_at`. A time is None if the attempt ended before it
    was reached.

    Attributes:
        queued_at: When the attempt was queued.
        admitted_at: When the attempt got a slot.
        in_flight: Slots of the target in use just after the admission, including that of the
            attempt; None if the attempt got no slot.
        replica: Base URL of the replica, or None if the target is not a pool.
        sent_at: When the request was sent.
        first_token_at: When the first token arrived.
        released_at: When the slot was released.
        status: HTTP status of the upstream, or None if no response arrived.
        backoff: Seconds of backoff before the next attempt was queued, or None for the last
            attempt.

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
        id: Number of the call, as in `Gate.explain` and in errors.
        label: Label from `tidegate.context(call=...)`, or None without a label.
        target: Name of the target.
        fallback_from: Name of the target that rejected the call before it was sent to `target` as a
            fallback, or None.
        tenant: Fairness key.
        lane: Priority class.
        model: Model that the request names, or None if it names none.
        outcome: `completed`; `failed` (error response); `refused` (rejected by the gate);
            `cancelled` (by the caller); `truncated` (ended without the provider's final event);
            `timed_out` (a deadline or timeout passed, or the reader stopped reading); `broken` (the
            exchange with the upstream failed).
        queued_at: When the call was queued, in seconds since the Unix epoch.
        duration: Seconds from queueing to the end.
        estimated_input_tokens: Estimated input tokens when the last attempt was queued, or None if
            the body is not JSON.
        estimated_output_tokens: Estimated output tokens of all answers together when the last
            attempt was queued, or None if the body is not JSON.
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
