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
    """Number, mean and quantiles of the durations that a histogram has collected.

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


Cause = Literal["slow_start", "headroom", "late", "slow", "queued", "refused", "overloaded", "timed_out"]
"""Why an adaptive limit changed.

- `slow_start`: raised, usually by one, for each call in time, until the slots are too many.
- `headroom`: raised as a trial, because calls were in time.
- `late`: decreased, because first tokens were late.
- `slow`: decreased, because tokens were slow.
- `queued`: decreased, because the engine reported that calls wait in its queue.
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
        awaiting: Number of calls in flight that await their first token now.
        awaiting_limit: Maximum number of calls that may await their first token at the same time.
        awaiting_tokens: Prompt tokens of these calls now, plus 256 for each of them.
        first_token_capacity: Value of `awaiting_tokens` that keeps the upstream busy without a
            queue; None until it is known. When it is reached, no call of a tenant that uses its
            share of it is sent.
        slow_start: Whether the slots have not been found to be too many. Each call that meets the
            objective while all slots are used then increases them, usually by one. Always False
            with a percentile detector.
        objective: Objective, in seconds, for the time from sending to the first token (targets) or
            to the end of the call (tools); None without an objective.
        late: Share of the recent calls that missed the objective, 0 to 1; None if no recent call
            could be compared with it.
        evidence: Evidence that the limit is too high, from 0. At 1, the limit is decreased. With a
            percentile detector: the measured quantile of the time to first token, divided by the
            highest value that is tolerated.
        cuts: Number of decreases since the limit was created.
        raises: Number of increases since the limit was created.
        saturated: Whether no slot is free, and within the last minute too many calls were in
            flight, even if the limit is at its minimum. The upstream then needs more replicas.
        decisions: The latest changes of the limit, oldest first.

    """

    limit: int
    ceiling: int
    awaiting: int
    awaiting_limit: int
    awaiting_tokens: int
    first_token_capacity: int | None
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
        level: Requests or tokens that may be used now; 0 if there is a debt. The level rises at the
            rate, up to what the rate allows in `burst` seconds.
        debt: Requests or tokens by which calls have exceeded the rate. New calls wait until the
            rate has made up for them.
        source: Where the rate comes from: the configuration, or the headers of the provider's
            responses.
        burst: Maximum burst: the time, in seconds, for which the whole rate may be used at once.
        counting: How many tokens of a call the rate counts: input plus maximum output (`sum`), the
            larger of the two (`larger`), the actual usage (`actual`) or the input only (`input`).
        processes: The number of processes that share the limit, as last heard; `None` if it is not
            shared.

    """

    limit: int
    window: float
    level: int
    debt: int
    source: Literal["configured", "headers"]
    burst: float
    counting: Literal["auto", "sum", "larger", "actual", "input"]
    processes: int | None


class KvSnapshot(TypedDict):
    """KV-cache memory of an inference engine. All numbers are in tokens, input and output together.

    Attributes:
        capacity: Size of the memory.
        usable: Size minus the configured headroom.
        held: Tokens that the calls in flight occupy now, as far as the gate knows.
        peak: Predicted maximum number of tokens that the calls in flight will occupy together.

    """

    capacity: int
    usable: int
    held: int
    peak: int


class LaneSnapshot(TypedDict):
    """State of one lane (priority class) of a target.

    Attributes:
        in_flight: Number of slots that calls of the lane hold now.
        queue_depth: Number of calls of the lane that wait for a slot now.
        floor: Number of slots of the current limit that are reserved for the lane; 0 if none are.

    """

    in_flight: int
    queue_depth: int
    floor: int


class TenantSnapshot(TypedDict):
    """State of one tenant of a target.

    Counts without "now" are totals since the target was created.

    Attributes:
        in_flight: Number of slots that calls of the tenant hold now.
        peak_in_flight: Maximum of `in_flight` since the target was created.
        queue_depth: Number of calls of the tenant that wait for a slot now.
        floor: Number of slots of the limit that are reserved for the tenant now; 0 if none are.
        debt: Tokens now by which calls of the tenant have exceeded its own `tpm`. Its calls wait
            until the rate has made up for them. 0 if the tenant has no `tpm`.
        held_for: Seconds since when no call of the tenant has been sent because the tenant uses its
            share of an adaptive limit or of its first-token capacity; None if its calls may be sent.
        admitted: Number of attempts that got a slot.
        objective_met: Number of completed calls that met the objective for the time to first token
            (`ttft`) of their lane or, if the lane has none, of the target. Calls that do not stream
            count if their duration is within the objective. 0 without an objective.
        outcomes: Number of ended calls by outcome; for the outcomes, see `CallRecord.outcome`.
        refused: Number of rejected calls by reason; for the reasons, see `tidegate.Error`.
        input_tokens: Number of input tokens that the provider reported.
        output_tokens: Number of output tokens that the provider reported.
        queue_wait: Times that admitted attempts waited in the queue, in seconds.
        ttft: Times from queueing a call to its first token, in seconds.
        duration: Times from queueing a call to its end, for completed calls, in seconds.

    """

    in_flight: int
    peak_in_flight: int
    queue_depth: int
    floor: int
    debt: int
    held_for: float | None
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
        state: `in`: healthy. `suspect`: it failed, and gets no calls until it responds or is found
            to be down. `down`: it is down, and gets no calls. `trial`: it gets one call at a time,
            as a test, or one every 5 s. `starting`: healthy, in slow start. `draining`: it was
            removed from the pool, and leaves when its last call ends.
        weight: Configured weight: the share of calls that the replica gets, relative to the weights
            of the other replicas.
        share: Usable share of the replica's weight and slots, 0 to 1. Below 1 during slow start.
        ejections: Number of times that the replica was excluded from selection because it failed.
        limit: Current number of slots.
        adaptive: State of the adaptive limit, or None if the limit is fixed.
        in_flight: Number of slots in use now.
        kv: KV-cache memory, or None if its size is not known.
        requests: Number of calls of this gate that are at the replica now.
        tokens: Prompt tokens plus expected output tokens of the calls that `requests` counts.
        others: Number of calls of other clients at the replica: those at the latest poll of its
            metrics, and the current ones of processes that share the pool. None without a recent
            poll and without the latter.
        kv_usage: Used share of the KV memory as the engine reports it, 0 to 1, or None if not
            known.
        models: Models that the replica serves, or None if not known.
        models_status: HTTP status of the latest answer to `GET /v1/models`, if it was no list of
            models; otherwise None. 401 means that the replica needs a key (`pool.key_env`).
        problem: Why the replica gets no calls now, in words, or None if it gets calls.

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
    models_status: int | None
    problem: str | None


class ShareSnapshot(TypedDict):
    """State of a cap that several processes share.

    Attributes:
        slots: Number of slots that this process may use now without asking.
        cap: The cap that all processes share: the smallest that any of them has configured.
        processes: Number of processes that share the cap, as last heard.
        elsewhere: Number of slots that the other processes hold, as last heard.
        others_wait: Whether another process waits for a slot.
        safe_mode: Whether the broker of the share is lost, so that this process uses a part of the
            cap, or cannot be reached, so that it uses the whole cap alone.

    """

    slots: int
    cap: int
    processes: int
    elsewhere: int
    others_wait: bool
    safe_mode: bool


class TargetSnapshot(TypedDict):
    """State of one target.

    Numbers by reason, cause or kind are totals since the target was created.

    Attributes:
        limit: Current number of slots.
        adaptive: State of the adaptive limit. None if the limit is fixed, or if each replica of a
            pool has its own limit.
        share: The part of the cap that this process may use, or None if other processes do not share
            the cap.
        in_flight: Number of slots in use now.
        peak_in_flight: Maximum of `in_flight` since the target was created.
        queue_depth: Number of calls that wait now for a slot, or for the end of the cool-down of
            their API key.
        state: `open`: calls are admitted. `cooling`: no call is admitted until the cool-down ends.
            `probing`: single calls test whether the target has recovered. `ramping`: calls are
            admitted at a growing rate after a cool-down.
        cool_for: Remaining seconds of the cool-down, or None if there is none or its end is not
            known. If several models or keys use the target, those of the longest cool-down of them.
        held_for: Seconds for which free capacity has been reserved so far for a call that waited
            long and does not fit yet, or None without a reservation.
        gap_fraction: Share of the time since the target was created in which a waiting call met
            every rule and was not sent, 0 to 1. Near 0 unless the scheduler has a defect.
        retry_budget: Number of retries that the retry budget allows now. The fractional part counts
            toward the next retry.
        budgets: Rates of the provider by kind (`requests`, `tokens`, `input_tokens`,
            `output_tokens`, `requests_per_day`, `tokens_per_day`): configured ones, and those in
            the provider's headers.
        kv: KV-cache memory, or None if its size is not known.
        replicas: Replicas of a pool; empty for other targets.
        replicas_problem: Why the replicas could not be read from DNS or the file, or None without a
            problem. The known replicas, if there are any, stay in use.
        lanes: State by lane.
        attempts: Number of attempts that were sent since the target was created.
        retries: Number of retries by cause: the failure class of the failed attempt, or another
            cause.
        failed_attempts: Number of failed attempts by failure class.
        gave_up: Number of calls that failed at the target, by the reason why there was no retry.
            The caller does not see the failure if a fallback answers.
        cool_downs: Number of failures that began a cool-down or occurred during one, by kind:
            `retry_after` (requested by the provider) or `outage` (repeated failures).
        fallbacks: Number of calls that were sent to the fallback target, by the reason of their
            rejection, or `outage` if no connection could be made.
        hedges: Number of second attempts (hedges) for calls of a pool whose first token was late:
            `sent`, `won` (the hedge produced the first token), and not sent because of `no_slot` or
            `no_budget`. Empty if the target is not a pool.
        would: Number of calls in mode `observe` that mode `enforce` would have queued (`wait`) or
            rejected (the reason), by that decision.
        upstream_ttft: Times from sending an attempt to its first token, in seconds.
        tpot: Mean times per output token of the responses, without their first tokens, in seconds.
        tenants: State by tenant. Tenants without a configuration share the entry `other`.

    """

    limit: int
    adaptive: LimitSnapshot | None
    share: ShareSnapshot | None
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

    Numbers by reason, decision or result are totals since the gate was opened.

    Attributes:
        limit: Current number of slots.
        adaptive: State of the adaptive limit, or None if the limit is fixed.
        share: The part of the cap that this process may use, or None if other processes do not share
            the cap.
        in_flight: Number of slots in use now.
        peak_in_flight: Maximum of `in_flight` since the gate was opened.
        queue_depth: Number of tasks that wait for a slot of the tool now.
        wait: Times that admitted tasks waited for the tool, in seconds.
        refused: Number of rejected requests by reason; for the reasons, see `tidegate.Error`.
        would: Number of requests in other modes that mode `enforce` would have queued (`wait`) or
            rejected (the reason), by that decision.
        slot_held: Number of model slots that tasks held when they requested the tool, by target and
            then by result: `got` (the tool was free), `waited` (the task kept the slot while it
            waited), or `yielded` (the slot could be released early).

    """

    limit: int
    adaptive: LimitSnapshot | None
    share: ShareSnapshot | None
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
        active: Number of calls in progress, including queued ones and those that wait for a retry.
        targets: State by name of the target, including targets that were created for requests that
            no configured target matches.
        tools: State of the configured tools by name.

    """

    mode: Literal["enforce", "observe", "off"]
    draining: bool
    active: int
    targets: dict[str, TargetSnapshot]
    tools: dict[str, ToolSnapshot]


class AttemptRecord(TypedDict):
    """One attempt of a call.

    Times are in seconds since the call's `queued_at`. A time is None if the event did not happen.

    Attributes:
        queued_at: When the attempt was queued for a slot.
        admitted_at: When the attempt got a slot.
        in_flight: Number of slots of the target in use just after the admission, including the slot
            of the attempt; None if the attempt got no slot.
        replica: Base URL of the replica whose slot the attempt got. None if it got no slot, or if
            the target is not a pool.
        sent_at: When the request was sent.
        first_token_at: When the first token arrived.
        released_at: When the slot was released.
        status: HTTP status of the response, or None if no response arrived.
        backoff: Seconds of backoff after the attempt, or None if no retry with a backoff followed.

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
        fallback_from: Name of the target that rejected the call before the call fell back to
            `target`, or None if the call did not fall back. The rejection has its own record with
            the same `id`.
        tenant: Fairness key.
        lane: Priority class.
        model: Model that the request names, or None if it names none.
        outcome: `completed`; `failed` (error response); `refused` (rejected by the gate);
            `cancelled` (by the caller); `truncated` (ended without the provider's final event);
            `timed_out` (a deadline or timeout passed, or the reader stopped reading); `broken` (the
            exchange with the upstream failed).
        queued_at: When the call was made, in seconds since the Unix epoch.
        duration: Seconds from `queued_at` to the end of the call.
        estimated_input_tokens: Input tokens that were expected when the last attempt was queued, or
            None if the body is not JSON.
        estimated_output_tokens: Output tokens that were expected when the last attempt was queued,
            over all choices of the response, or None if the body is not JSON.
        max_output_tokens: Maximum output tokens that the request allows, over all choices of the
            response, or None without a maximum.
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
