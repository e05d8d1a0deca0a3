/**
 * The types of `Gate.snapshot` and `Gate.calls`: plain data with the same keys in every language.
 * All times are in seconds.
 *
 * @module
 */

/** Summary of the values in a histogram. */
export interface Quantiles {
  /** Number of samples in the histogram. */
  count: number;
  /** Mean of the samples in seconds; null if there are none. */
  mean: number | null;
  /** Median of the samples in seconds; null if there are none. */
  p50: number | null;
  /** 99th percentile of the samples in seconds; null if there are none. */
  p99: number | null;
}

/** State of a gate, its targets and its tools at one moment. */
export interface Snapshot {
  /** Mode of the gate, as in {@link Mode}. */
  mode: "enforce" | "observe" | "off";
  /** `true` if new calls are rejected because {@link Gate.drain} was called. */
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
   * calls. `trial`: gets one call at a time, as a test, or one every 5 s. `starting`: in slow
   * start, with a share of its slots. `draining`: was removed from the pool, and leaves when its
   * last call ends.
   */
  state: "in" | "suspect" | "down" | "trial" | "starting" | "draining";
  /**
   * Configured weight: the share of calls that the replica gets in relation to the other replicas.
   */
  weight: number;
  /** Usable part of the replica's weight and slots, 0 to 1. Below 1 only during slow start. */
  share: number;
  /** Number of times that calls were no longer sent to the replica because it had failed. */
  ejections: number;
  /**
   * Current limit: the maximum number of slots of the replica in use at the same time. 0 if the
   * gate does not count slots of single replicas.
   */
  limit: number;
  /** State of the adaptive limit of the replica, or null if the limit is fixed. */
  adaptive: LimitSnapshot | null;
  /** Number of slots of the replica that are in use now. */
  in_flight: number;
  /** KV memory (key-value cache) of the replica's engine, or null if its size is not known. */
  kv: KvSnapshot | null;
  /** Number of requests of this gate at the replica now, including those that need no slot. */
  requests: number;
  /** Prompt tokens plus expected output tokens of the requests that `requests` counts. */
  tokens: number;
  /**
   * Number of requests of other clients at the replica: those at the latest poll of its metrics, and the
   * current ones of processes that share the pool; null if there was no recent poll and none of the latter.
   */
  others: number | null;
  /** Used share of the KV memory, 0 to 1, as the engine reports it; null if not known. */
  kv_usage: number | null;
  /** Names of the models that the replica serves, or null if they are not known. */
  models: string[] | null;
  /**
   * HTTP status of the latest answer to `GET /v1/models`, if it was no list of models; otherwise
   * null. 401 means that the replica needs a key (`pool.key_env`).
   */
  models_status: number | null;
  /** Why the replica gets no calls now, in words; null if it gets calls. */
  problem: string | null;
}

/** State of a cap that several processes share. */
export interface ShareSnapshot {
  /** Number of slots that this process may use now without asking. */
  slots: number;
  /** The cap that all processes share: the smallest that any of them has configured. */
  cap: number;
  /** Number of processes that share the cap, as last heard. */
  processes: number;
  /** Number of slots that the other processes hold, as last heard. */
  elsewhere: number;
  /** `true` if another process waits for a slot. */
  others_wait: boolean;
  /**
   * `true` if the broker of the share is lost, so that this process uses a part of the cap, or
   * cannot be reached, so that it uses the whole cap alone.
   */
  safe_mode: boolean;
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
  /** The part of the cap that this process may use, or null if other processes do not share the cap. */
  share: ShareSnapshot | null;
  /** Number of slots of the target that are in use now. */
  in_flight: number;
  /** Maximum number of slots in use at the same time so far. */
  peak_in_flight: number;
  /**
   * Number of calls that wait for a slot, or for the end of a cool-down of their model and API
   * key.
   */
  queue_depth: number;
  /**
   * `open`: calls are admitted. `cooling`: no call is admitted until a cool-down ends. `probing`:
   * one call tests whether the target has recovered. `ramping`: attempts are admitted at a growing
   * rate after a cool-down.
   */
  state: "open" | "cooling" | "probing" | "ramping";
  /**
   * Seconds until the cool-down ends, or null if there is none or its end is not known. If several
   * models or keys use the target, until the longest cool-down of them ends.
   */
  cool_for: number | null;
  /**
   * Seconds for which capacity has been reserved for a call that waited long and does not fit yet,
   * or null without a reservation.
   */
  held_for: number | null;
  /**
   * Share of the time since the creation of the target in which a waiting call met every rule and
   * was not sent, 0 to 1. Near 0 unless the scheduler has a defect.
   */
  gap_fraction: number;
  /**
   * Number of retries that the retry budget allows now. The fractional part counts toward the next
   * retry.
   */
  retry_budget: number;
  /**
   * Rates that the provider allows, by kind (`requests`, `tokens`, `input_tokens`, `output_tokens`,
   * `requests_per_day`, `tokens_per_day`): configured ones, and those from the provider's headers.
   * Empty if there are none.
   */
  budgets: Partial<Record<BudgetKind, BudgetSnapshot>>;
  /** KV memory (key-value cache) of the target's engine, or null if `kv_tokens` is not set. */
  kv: KvSnapshot | null;
  /** Replicas of a pool; empty for other targets. */
  replicas: ReplicaSnapshot[];
  /**
   * Why the latest lookup of the replicas in DNS or in the file failed. The replicas found before,
   * if there are any, stay in use. Null if the lookup succeeded, or if replicas are not looked up.
   */
  replicas_problem: string | null;
  /** State of each lane of the target, by name. */
  lanes: Record<"interactive" | "standard" | "batch", LaneSnapshot>;
  /** Total number of attempts that were sent. */
  attempts: number;
  /**
   * Total number of retries, by cause: the class of the failed attempt's failure, or another cause.
   */
  retries: Record<string, number>;
  /** Total number of failed attempts, by the class of the failure. */
  failed_attempts: Record<string, number>;
  /**
   * Total number of calls that failed at the target, by the reason why no retry was made. The
   * caller does not see the failure if a fallback answers.
   */
  gave_up: Record<string, number>;
  /**
   * Total number of failures that started a cool-down or occurred during one, by kind:
   * `retry_after` (the provider asked to wait) or `outage` (repeated failures).
   */
  cool_downs: Record<string, number>;
  /**
   * Total number of calls that were sent to the fallback target, by the reason of their rejection,
   * or `outage` if no connection could be made.
   */
  fallbacks: Record<string, number>;
  /**
   * Total number of second attempts (hedges) for calls whose first token was late, by outcome:
   * `sent`, `won` (the hedge produced the first token), `no_slot` and `no_budget` (the hedge was
   * not sent). Empty if the target is not a pool.
   */
  hedges: Record<string, number>;
  /**
   * Number of calls in mode `observe` that mode `enforce` would have queued (`wait`) or rejected
   * (the reason), by that decision.
   */
  would: Record<string, number>;
  /** Time from sending an attempt to its first token, in seconds. */
  upstream_ttft: Quantiles;
  /** Mean time per output token of a response, without its first token, in seconds. */
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
 * - `slow_start`: increased, usually by one, for each call in time, until there are too many slots.
 * - `headroom`: increased as a trial, because calls were in time.
 * - `late`: decreased, because calls missed the objective.
 * - `slow`: decreased, because output tokens were slower than `tpot`.
 * - `queued`: decreased, because the engine reported that calls wait in its queue.
 * - `refused`: decreased, because the upstream answered 429.
 * - `overloaded`: decreased, because the upstream answered 503 or 529.
 * - `timed_out`: decreased, because attempts timed out.
 */
export type Cause = "slow_start" | "headroom" | "late" | "slow" | "queued" | "refused" | "overloaded" | "timed_out";

/** One change of an adaptive limit. Consecutive increases with the same cause are one change. */
export interface DecisionSnapshot {
  /** Seconds since the change. */
  ago: number;
  /** Value of the limit before the change, in slots. */
  from: number;
  /**
   * Value of the limit after the change, in slots. Equal to `from` if only `awaiting` was
   * decreased.
   */
  to: number;
  /**
   * Maximum number of calls that may await their first token at the same time, after the change.
   */
  awaiting: number;
  /** Why the limit was changed. */
  cause: Cause;
}

/** State of the adaptive limit of a target, replica or tool. */
export interface LimitSnapshot {
  /** Current value of the limit, in slots. */
  limit: number;
  /** The configured cap, which the limit never exceeds. */
  ceiling: number;
  /** Number of calls that await their first token now. */
  awaiting: number;
  /** Maximum number of calls that may await their first token at the same time. */
  awaiting_limit: number;
  /** Prompt tokens of the calls that await their first token now, plus 256 for each of them. */
  awaiting_tokens: number;
  /**
   * Value of `awaiting_tokens` that keeps the upstream busy without a queue, or `null` until it is
   * known. When it is reached, no call of a tenant that uses its share of it is sent.
   */
  first_token_capacity: number | null;
  /**
   * `true` while the slots have not been found to be too many. During this time, each call that
   * meets the objective while all slots are used increases them, usually by one. Always false with a
   * percentile detector.
   */
  slow_start: boolean;
  /**
   * Objective in seconds: for targets, the part of the objective for the time to first token that
   * the upstream may use; for tools, the duration of a call. Null without an objective.
   */
  objective: number | null;
  /**
   * Share of the recent calls that missed the objective, 0 to 1; null if no recent call could be
   * compared with the objective.
   */
  late: number | null;
  /**
   * Evidence that the objective is missed, from 0. The limit is decreased when the evidence reaches
   * 1. With a percentile detector: the measured quantile, divided by the upper bound of the
   * tolerated range around the objective.
   */
  evidence: number;
  /** Number of times that the limit was decreased so far. */
  cuts: number;
  /** Number of times that the limit was increased so far. */
  raises: number;
  /**
   * `true` if two conditions hold. First, no slot is free, or the maximum number of calls await
   * their first token. Second, the limit detected within the last minute that too many calls were
   * in flight, even if the limit was already at its minimum. The upstream then needs more replicas.
   */
  saturated: boolean;
  /** The latest changes of the limit, oldest first. */
  decisions: DecisionSnapshot[];
}

/**
 * What a rate of a provider counts. `requests_per_day` and `tokens_per_day` are rates per day, the
 * others are rates per minute.
 */
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
   * Number of requests or tokens that can be used now; 0 if there is a debt. Over time, the number
   * increases up to the quota of `burst` seconds.
   */
  level: number;
  /**
   * Number of requests or tokens by which calls have exceeded the rate. New calls wait until the
   * debt is repaid over time.
   */
  debt: number;
  /** Source of `limit`: the configuration, or the headers of the provider's responses. */
  source: "configured" | "headers";
  /** Maximum burst, in seconds: the quota of this time can be used at the same moment. */
  burst: number;
  /**
   * What counts as the tokens of a call: input plus maximum output (`sum`), the larger of the two
   * (`larger`), the input plus the output as it is produced (`actual`), or `input` only.
   */
  counting: "auto" | "sum" | "larger" | "actual" | "input";
  /** Number of processes that share the limit, as last heard; `null` if it is not shared. */
  processes: number | null;
}

/** State of the KV memory (key-value cache) of an inference engine, in tokens. */
export interface KvSnapshot {
  /** Size of the KV memory, in tokens. */
  capacity: number;
  /** Number of tokens that calls may occupy: `capacity` minus the configured headroom. */
  usable: number;
  /** Number of tokens that the calls in flight occupy now, as far as the gate has observed. */
  held: number;
  /** Predicted maximum number of tokens that the calls in flight will occupy at the same time. */
  peak: number;
}

/** State of one lane (priority class) of a target at one moment. */
export interface LaneSnapshot {
  /** Number of slots that calls of the lane use now. */
  in_flight: number;
  /** Number of calls of the lane that wait for a slot now. */
  queue_depth: number;
  /** Number of slots that are reserved for the lane, at most the current limit. */
  floor: number;
}

/** State of one tenant of a target at one moment, and its totals so far. */
export interface TenantSnapshot {
  /** Number of slots that calls of the tenant hold now. */
  in_flight: number;
  /** Maximum number of slots that calls of the tenant used at the same time so far. */
  peak_in_flight: number;
  /** Number of calls of the tenant that wait for a slot now. */
  queue_depth: number;
  /** Number of slots that are reserved for the tenant now, at most the current limit. */
  floor: number;
  /**
   * Number of tokens by which calls of the tenant exceeded its `tpm`. New calls of the tenant wait
   * until the debt is repaid over time. 0 if `tpm` is not set.
   */
  debt: number;
  /**
   * For how long, in seconds, no call of the tenant has been sent because the tenant uses its share
   * of an adaptive limit or of its first-token capacity. `null` if its calls may be sent.
   */
  held_for: number | null;
  /** Total number of attempts that got a slot. */
  admitted: number;
  /**
   * Total number of completed calls that met the objective for the time to first token (`ttft`) of
   * their lane or, if the lane has none, of the target. Calls that do not stream count if their
   * duration is within the objective. 0 without an objective.
   */
  objective_met: number;
  /** Total number of ended calls by outcome; for the outcomes, see {@link CallRecord}. */
  outcomes: Record<string, number>;
  /** Total number of rejected calls by reason; for the reasons, see {@link Reason}. */
  refused: Record<string, number>;
  /** Total number of input tokens that the provider reported. */
  input_tokens: number;
  /** Total number of output tokens that the provider reported. */
  output_tokens: number;
  /** Time that admitted calls spent in the queue, in seconds. */
  queue_wait: Quantiles;
  /**
   * Time from the start of a call to its first token, including the time in the queue, in seconds.
   */
  ttft: Quantiles;
  /** Duration of completed calls, including the time in the queue, in seconds. */
  duration: Quantiles;
}

/** State of one tool at one moment, and its totals so far. */
export interface ToolSnapshot {
  /** Current limit: the maximum number of slots of the tool in use at the same time. */
  limit: number;
  /** State of the adaptive limit of the tool, or null if the limit is fixed. */
  adaptive: LimitSnapshot | null;
  /** The part of the cap that this process may use, or null if other processes do not share the cap. */
  share: ShareSnapshot | null;
  /** Number of slots of the tool that are in use now. */
  in_flight: number;
  /** Maximum number of slots in use at the same time so far. */
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
   * Number of requests for the tool in mode `observe` that mode `enforce` would have queued
   * (`wait`) or rejected (the reason), by that decision.
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
  /** Name of the target to which the call was assigned. */
  target: string;
  /**
   * Name of the target that rejected the call, if the call was then sent to `target` as its
   * fallback. Null otherwise.
   */
  fallback_from: string | null;
  /** Tenant of the call. */
  tenant: string;
  /** Priority class (lane) of the call. */
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
  /** When the call was made, in seconds since the Unix epoch. */
  queued_at: number;
  /** Seconds from `queued_at` until the end of the call. */
  duration: number;
  /**
   * Estimated input tokens when the last attempt was queued, or null if the request body is not
   * JSON.
   */
  estimated_input_tokens: number | null;
  /**
   * Estimated output tokens when the last attempt was queued, summed over all choices of the
   * response. Null if the request body is not JSON.
   */
  estimated_output_tokens: number | null;
  /**
   * Maximum number of output tokens that the request allows, summed over all choices of the
   * response. Null if the request sets no maximum.
   */
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
 * One attempt of a call. Times are in seconds since the call's `queued_at`. If the attempt ended
 * before the event, the time is null.
 */
export interface AttemptRecord {
  /** When the attempt was queued, in seconds since `queued_at` of the call. */
  queued_at: number;
  /** Seconds from `queued_at` of the call until the attempt got a slot; null if it got none. */
  admitted_at: number | null;
  /**
   * Number of slots of the target in use just after the admission, including that of the attempt;
   * null if the attempt got no slot.
   */
  in_flight: number | null;
  /**
   * Base URL of the replica whose slot the attempt got. Null if the target is not a pool, or if the
   * attempt got no slot.
   */
  replica: string | null;
  /** Seconds from `queued_at` of the call until the request was sent; null if it was not sent. */
  sent_at: number | null;
  /** Seconds from `queued_at` of the call until the first token; null if none arrived. */
  first_token_at: number | null;
  /**
   * Seconds from `queued_at` of the call until the slot was released; null if the attempt got no
   * slot.
   */
  released_at: number | null;
  /** HTTP status of the upstream, or null if no response arrived. */
  status: number | null;
  /**
   * Duration of the backoff after the attempt, in seconds. Null if no retry with a backoff
   * followed.
   */
  backoff: number | null;
}
