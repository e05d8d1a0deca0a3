/**
 * The types of `Gate.snapshot` and `Gate.calls`: plain data with the same keys in every language.
 * All times are in seconds.
 *
 * @module
 */

/**
 * Summary of the values in a histogram. `mean`, `p50` and `p99` are null if the histogram is empty.
 */
export interface Quantiles {
  /** Number of samples in the histogram. */
  count: number;
  /** Mean of the samples in seconds. */
  mean: number | null;
  /** Median of the samples in seconds. */
  p50: number | null;
  /** 99th percentile of the samples in seconds. */
  p99: number | null;
}

/** State of a gate, its targets and its tools at one moment. */
export interface Snapshot {
  /** Mode of the gate, as in {@link Mode}. */
  mode: "enforce" | "observe" | "off";
  /** Whether new calls are rejected because {@link Gate.drain} was called. */
  draining: boolean;
  /** Number of calls in progress, including queued calls and calls that wait for a retry. */
  active: number;
  /** State of each target, by name. */
  targets: Record<string, TargetSnapshot>;
  /** State of each tool, by name. */
  tools: Record<string, ToolSnapshot>;
}

/** State of one replica of a pool at one moment. */
export interface ReplicaSnapshot {
  /** Base URL of the replica. */
  url: string;
  /**
   * `in`: gets calls. `suspect`: gets no calls until it responds. `down`: has failed and gets no
   * calls. `trial`: gets one call at a time, as a test. `starting`: in slow start, with a share of
   * its slots. `draining`: was removed from the pool, and leaves when its last call ends.
   */
  state: "in" | "suspect" | "down" | "trial" | "starting" | "draining";
  /** Configured weight, relative to the other replicas. */
  weight: number;
  /** Usable share of the replica's weight and slots, 0 to 1. Below 1 only during slow start. */
  share: number;
  /** Number of times that the replica got no more calls because it had failed. */
  ejections: number;
  /**
   * Current limit: the maximum number of slots of the replica in use at the same time. 0 if slots
   * are not counted per replica.
   */
  limit: number;
  /** State of the adaptive limit of the replica, or null if the limit is fixed. */
  adaptive: LimitSnapshot | null;
  /** Number of slots of the replica that are in use now. */
  in_flight: number;
  /** KV memory of the replica, or null if its size is not known. */
  kv: KvSnapshot | null;
  /** Number of requests of this gate at the replica now, including those that need no slot. */
  requests: number;
  /** Estimated number of tokens of the requests that `requests` counts. */
  tokens: number;
  /**
   * Number of requests of other clients at the replica, from the latest read of its metrics; null
   * if there was no recent one.
   */
  others: number | null;
  /** Used share of the KV memory as the engine reports it, 0 to 1, or null if not known. */
  kv_usage: number | null;
  /** Models that the replica serves, or null if not known. */
  models: string[] | null;
}

/** State of one target at one moment, and its totals since it was created. */
export interface TargetSnapshot {
  /** Current limit: the maximum number of slots of the target in use at the same time. */
  limit: number;
  /**
   * State of the adaptive limit of the target. Null if the limit is fixed or, in a pool, if each
   * replica has a limit of its own.
   */
  adaptive: LimitSnapshot | null;
  /** Number of slots of the target that are in use now. */
  in_flight: number;
  /** Maximum of `in_flight` so far. */
  peak_in_flight: number;
  /**
   * Number of calls that wait for a slot. In the target `others`, which further API keys share,
   * also calls that wait for the end of a cool-down of their key.
   */
  queue_depth: number;
  /**
   * `open`: admits calls. `cooling`: in a cool-down. `probing`: one call tests whether the target
   * has recovered. `ramping`: attempts are admitted at a growing rate after a cool-down.
   */
  state: "open" | "cooling" | "probing" | "ramping";
  /** Remaining seconds of the cool-down, or null without one. */
  cool_for: number | null;
  /**
   * Seconds for which capacity has been reserved for a call that waited long and does not fit yet,
   * or null without a reservation.
   */
  held_for: number | null;
  /**
   * Share of the time since the creation of the target in which calls waited although slots were
   * free, 0 to 1.
   */
  gap_fraction: number;
  /**
   * Number of retries that the retry budget allows now. A fraction counts toward the next retry.
   */
  retry_budget: number;
  /**
   * Rates that the provider allows, by kind (`requests`, `tokens`, `input_tokens`, `output_tokens`,
   * `requests_per_day`, `tokens_per_day`): configured ones, and those in the provider's headers.
   */
  budgets: Partial<Record<BudgetKind, BudgetSnapshot>>;
  /** KV memory of the target, or null if `kv_tokens` is not set. */
  kv: KvSnapshot | null;
  /** Replicas of a pool; empty for other targets. */
  replicas: ReplicaSnapshot[];
  /**
   * Why the latest lookup of the replicas in DNS or in the file failed. The known replicas stay in
   * use. Null if it succeeded, or if replicas are not looked up.
   */
  replicas_problem: string | null;
  /** State of each lane of the target, by name. */
  lanes: Record<"interactive" | "standard" | "batch", LaneSnapshot>;
  /** Total number of attempts that were sent. */
  attempts: number;
  /** Total number of retries, by the class of the failure or another cause. */
  retries: Record<string, number>;
  /** Total number of failed attempts, by the class of the failure. */
  failed_attempts: Record<string, number>;
  /** Total number of failed calls that were not retried, by reason. */
  gave_up: Record<string, number>;
  /**
   * Total number of failures that started a cool-down or occurred during one, by kind:
   * `retry_after` (the provider asked to wait) or `outage` (repeated failures).
   */
  cool_downs: Record<string, number>;
  /** Total number of rejected calls that were sent to the fallback target, by reason. */
  fallbacks: Record<string, number>;
  /**
   * Total number of second attempts for calls whose first token was late (hedges), by outcome:
   * `sent`, `won` (produced the first token), `no_slot` and `no_budget` (not sent). Empty if the
   * target is not a pool.
   */
  hedges: Record<string, number>;
  /** Number of calls that mode `observe` would have delayed (`wait`) or rejected (by reason). */
  would: Record<string, number>;
  /** Time from sending an attempt to its first token, in seconds. */
  upstream_ttft: Quantiles;
  /** Time per output token after the first, in seconds. */
  tpot: Quantiles;
  /**
   * State of each tenant of the target, by name. Tenants without a configuration share the totals
   * in the entry `other`. They have entries of their own only while they use or await slots.
   */
  tenants: Record<string, TenantSnapshot>;
}

/**
 * Why an adaptive limit changed. A call that meets the objective is *in time*.
 *
 * - `slow_start`: increased by one for each call in time, before the first decrease.
 * - `headroom`: increased as a trial, because calls were in time.
 * - `late`: decreased, because calls missed the objective.
 * - `slow`: decreased, because output tokens were slower than `tpot`.
 * - `refused`: decreased, because the upstream answered 429.
 * - `overloaded`: decreased, because the upstream answered 503 or 529.
 * - `timed_out`: decreased, because attempts timed out.
 */
export type Cause = "slow_start" | "headroom" | "late" | "slow" | "refused" | "overloaded" | "timed_out";

/** One change of an adaptive limit. Consecutive increases with the same cause are one change. */
export interface DecisionSnapshot {
  /** Seconds since the limit changed. */
  ago: number;
  /** Number of slots before the change. */
  from: number;
  /** Number of slots after the change: equal to `from` if only `awaiting` was decreased. */
  to: number;
  /** Maximum number of calls that may await their first token after the change. */
  awaiting: number;
  /** Why the limit was changed. */
  cause: Cause;
}

/** State of the adaptive limit of a target, replica or tool. */
export interface LimitSnapshot {
  /** Current number of slots: the value of the limit. */
  limit: number;
  /** The configured cap, which the limit never exceeds. */
  ceiling: number;
  /** Number of calls that await their first token now. */
  awaiting: number;
  /** Maximum number of calls that may await their first token at the same time. */
  awaiting_limit: number;
  /**
   * Whether the limit was never decreased, so that each call that meets the objective increases it
   * by one. Always false with a percentile detector.
   */
  slow_start: boolean;
  /**
   * Objective in seconds from sending to the first token (targets) or to the end (tools); null
   * without an objective.
   */
  objective: number | null;
  /**
   * Share of the recent calls that missed the objective, 0 to 1; null if no recent call could be
   * compared with it.
   */
  late: number | null;
  /**
   * Evidence that the limit is too high, from 0. At 1 the limit is decreased. With a percentile
   * detector: the measured quantile divided by the highest value that is tolerated.
   */
  evidence: number;
  /** Number of times that the limit was decreased so far. */
  cuts: number;
  /** Number of times that the limit was increased so far. */
  raises: number;
  /**
   * Whether calls need more slots than the limit, although the limit was too high within the last
   * minute or is at its minimum. If so, the upstream needs more replicas.
   */
  saturated: boolean;
  /** The latest changes of the limit, oldest first. */
  decisions: DecisionSnapshot[];
}

/** What a rate of a provider counts. The last two are rates per day, the others per minute. */
export type BudgetKind =
  | "requests"
  | "tokens"
  | "input_tokens"
  | "output_tokens"
  | "requests_per_day"
  | "tokens_per_day";

/** State of one rate of a provider: a token bucket of requests or tokens. */
export interface BudgetSnapshot {
  /** Maximum number of requests or tokens per window. */
  limit: number;
  /** Length of the window that `limit` applies to, in seconds. */
  window: number;
  /**
   * Number of requests or tokens that can be used now; 0 if there is a debt. The level rises at the
   * rate, up to the amount of `burst` seconds.
   */
  level: number;
  /**
   * Number of requests or tokens by which calls exceeded their estimates. New calls wait until the
   * rate has made up for them.
   */
  debt: number;
  /** Whether `limit` was configured or is from the provider's headers. */
  source: "configured" | "headers";
  /** Maximum burst: the time, in seconds, whose requests or tokens can be used at once. */
  burst: number;
  /**
   * What counts as the tokens of a call: input plus maximum output (`sum`), the larger of the two
   * (`larger`), actual usage (`actual`) or `input` only.
   */
  counting: "auto" | "sum" | "larger" | "actual" | "input";
}

/** KV memory of an engine, in tokens. */
export interface KvSnapshot {
  /** Size of the KV memory, in tokens. */
  capacity: number;
  /** Tokens that calls may occupy: `capacity` minus the configured headroom. */
  usable: number;
  /** Tokens that calls in flight occupy now, as far as the gate knows. */
  held: number;
  /** Maximum number of tokens that the calls in flight are expected to occupy. */
  peak: number;
}

/** State of one lane (priority class) of a target at one moment. */
export interface LaneSnapshot {
  /** Number of slots that calls of the lane use now. */
  in_flight: number;
  /** Number of calls in the lane's queue. */
  queue_depth: number;
  /** Number of slots that are reserved for the lane, at most the current limit. */
  floor: number;
}

/** State of one tenant of a target at one moment, and its totals so far. */
export interface TenantSnapshot {
  /** Number of slots that calls of the tenant hold now. */
  in_flight: number;
  /** Maximum of `in_flight` so far. */
  peak_in_flight: number;
  /** Number of calls of the tenant that wait for a slot now. */
  queue_depth: number;
  /** Number of slots that are reserved for the tenant now, at most the current limit. */
  floor: number;
  /**
   * Number of tokens by which the tenant exceeded its own `tpm`. Its calls wait until the rate has
   * made up for them.
   */
  debt: number;
  /** Total number of attempts that got a slot. */
  admitted: number;
  /** Total number of completed calls that met the objective for the time to first token. */
  objective_met: number;
  /** Total number of ended calls by outcome; for the outcomes, see {@link CallRecord}. */
  outcomes: Record<string, number>;
  /** Total number of rejected calls by reason; for the reasons, see {@link Reason}. */
  refused: Record<string, number>;
  /** Total number of input tokens of ended calls. */
  input_tokens: number;
  /** Total number of output tokens of ended calls. */
  output_tokens: number;
  /** Time that admitted calls spent in the queue, in seconds. */
  queue_wait: Quantiles;
  /** Time from queueing a call to its first token, in seconds. */
  ttft: Quantiles;
  /** Time from queueing a completed call to its end, in seconds. */
  duration: Quantiles;
}

/** State of one tool at one moment, and its totals so far. */
export interface ToolSnapshot {
  /** Current limit: the maximum number of slots of the tool in use at the same time. */
  limit: number;
  /** State of the adaptive limit of the tool, or null if the limit is fixed. */
  adaptive: LimitSnapshot | null;
  /** Number of slots of the tool that are in use now. */
  in_flight: number;
  /** Maximum of `in_flight` so far. */
  peak_in_flight: number;
  /** Number of tasks that wait for a slot of the tool. */
  queue_depth: number;
  /** Time that admitted tasks waited for the tool, in seconds. */
  wait: Quantiles;
  /**
   * Total number of rejected requests for the tool by reason; for the reasons, see {@link Reason}.
   */
  refused: Record<string, number>;
  /**
   * Number of requests for the tool that mode `observe` would have delayed (`wait`) or rejected (by
   * reason).
   */
  would: Record<string, number>;
  /**
   * Number of model slots that tasks held when they requested the tool, by target and result: `got`
   * (the tool was free), `waited` (the task kept the slot while it waited), or `yielded` (the slot
   * could be released).
   */
  slot_held: Record<string, Partial<Record<"got" | "waited" | "yielded", number>>>;
}

/** What the gate recorded about a call that has ended. */
export interface CallRecord {
  /** Number of the call, as in {@link Gate.explain} and in errors. */
  id: number;
  /** Label from `gate.run({ call }, ...)`, or null without a label. */
  label: string | null;
  /** Name of the target that the call was assigned to. */
  target: string;
  /**
   * Name of the target that rejected the call before it was sent to `target` as a fallback, or
   * null.
   */
  fallback_from: string | null;
  /** Tenant of the call. */
  tenant: string;
  /** Priority class of the call. */
  lane: "interactive" | "standard" | "batch";
  /** Model that the request names, or null if it names none. */
  model: string | null;
  /**
   * `completed`; `failed` (error response); `refused` (rejected by the gate); `cancelled` (by the
   * caller); `truncated` (ended without the provider's final event); `timed_out` (a deadline or
   * timeout passed, or the reader stopped reading); `broken` (the exchange with the upstream
   * failed).
   */
  outcome: "completed" | "failed" | "refused" | "cancelled" | "truncated" | "timed_out" | "broken";
  /** When the call was queued, in seconds since the Unix epoch. */
  queued_at: number;
  /** Seconds from queueing the call to its end. */
  duration: number;
  /** Estimated input tokens when the last attempt was queued, or null if the body is not JSON. */
  estimated_input_tokens: number | null;
  /**
   * Estimated output tokens of all answers together when the last attempt was queued, or null if
   * the body is not JSON.
   */
  estimated_output_tokens: number | null;
  /** Maximum output tokens of all answers together, or null without a maximum. */
  max_output_tokens: number | null;
  /**
   * Input tokens as the provider counted them, including cached ones, or null if it did not report
   * them.
   */
  input_tokens: number | null;
  /**
   * Output tokens as the provider counted them, including reasoning, or null if it did not report
   * them.
   */
  output_tokens: number | null;
  /** The attempts of the call, in the order in which they were queued. */
  attempts: AttemptRecord[];
}

/**
 * One attempt of a call. Times are in seconds since the call's `queued_at`. A time is null if the
 * attempt ended before.
 */
export interface AttemptRecord {
  /** When the attempt was queued, in seconds since `queued_at` of the call. */
  queued_at: number;
  /** Seconds from `queued_at` of the call until the attempt got a slot; null if it got none. */
  admitted_at: number | null;
  /**
   * Slots of the target in use just after the admission, including that of the attempt; null if the
   * attempt got no slot.
   */
  in_flight: number | null;
  /** Base URL of the replica, or null if the target is not a pool. */
  replica: string | null;
  /** Seconds from `queued_at` of the call until the request was sent; null if it was not sent. */
  sent_at: number | null;
  /** Seconds from `queued_at` of the call until the first token; null if none arrived. */
  first_token_at: number | null;
  /**
   * Seconds from `queued_at` of the call until the slot was released; null if there was no slot.
   */
  released_at: number | null;
  /** HTTP status of the upstream, or null if no response arrived. */
  status: number | null;
  /** Seconds of backoff before the next attempt was queued, or null for the last attempt. */
  backoff: number | null;
}
