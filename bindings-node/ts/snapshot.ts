/**
 * The types of `Gate.snapshot` and `Gate.calls`: plain data with the same keys in every language.
 * All times are in seconds.
 *
 * @module
 */

/** Summary of a histogram. Each value is null if the histogram is empty. */
export interface Quantiles {
  /** Number of samples. */
  count: number;
  /** Mean in seconds. */
  mean: number | null;
  /** Median in seconds. */
  p50: number | null;
  /** 99th percentile in seconds. */
  p99: number | null;
}

/** State of a gate. */
export interface Snapshot {
  /** Mode of the gate. */
  mode: "enforce" | "observe" | "off";
  /** Whether new calls are rejected because the gate drains. */
  draining: boolean;
  /** Active calls, including waiting ones. */
  active: number;
  /** State by target. */
  targets: Record<string, TargetSnapshot>;
  /** State by tool. */
  tools: Record<string, ToolSnapshot>;
}

/** State of one replica of a pool. */
export interface ReplicaSnapshot {
  /** Base URL. */
  url: string;
  /**
   * `in`: selected normally. `suspect`: gets no calls until it answers. `down`: unreachable.
   * `trial`: gets one call at a time. `starting`: in slow start. `draining`: removed when its last
   * call ends.
   */
  state: "in" | "suspect" | "down" | "trial" | "starting" | "draining";
  /** Configured weight. */
  weight: number;
  /** Share of its slots that is in force, 0 to 1. */
  share: number;
  /** Number of times that it was excluded from selection. */
  ejections: number;
  /** Slots in force. */
  limit: number;
  /** State of the adaptive limit, or null if the limit is fixed. */
  adaptive: LimitSnapshot | null;
  /** Slots in use. */
  in_flight: number;
  /** KV memory, or null if its size is not known. */
  kv: KvSnapshot | null;
  /** Calls of this gate at the replica now. */
  requests: number;
  /** Tokens of these calls. */
  tokens: number;
  /** Calls of other clients, or null if not known. */
  others: number | null;
  /** Used share of the KV memory as the engine reports it, 0 to 1, or null if not known. */
  kv_usage: number | null;
  /** Models that it serves, or null if not known. */
  models: string[] | null;
}

/** State of one target. */
export interface TargetSnapshot {
  /** Slots in force. */
  limit: number;
  /** State of the adaptive limit, or null if the limit is fixed. */
  adaptive: LimitSnapshot | null;
  /** Slots in use. */
  in_flight: number;
  /** Maximum number of slots in use so far. */
  peak_in_flight: number;
  /** Calls that wait for a slot, or for the cool-down of their key. */
  queue_depth: number;
  /**
   * `open`; `cooling` (cool-down); `probing` (one call tests it); `ramping` (the limit rises
   * again).
   */
  state: "open" | "cooling" | "probing" | "ramping";
  /** Remaining seconds of the cool-down, or null. */
  cool_for: number | null;
  /** Seconds since which capacity is reserved for an aged call that does not fit yet, or null. */
  held_for: number | null;
  /** Share of the time in which calls waited although slots were free, 0 to 1. */
  gap_fraction: number;
  /** Retries that may be scheduled now. */
  retry_budget: number;
  /**
   * Rates of the provider by kind (`requests`, `tokens`, `input_tokens`, `output_tokens`,
   * `requests_per_day`, `tokens_per_day`): configured ones, and those in its headers.
   */
  budgets: Partial<Record<BudgetKind, BudgetSnapshot>>;
  /** KV memory, or null if `kv_tokens` is not set. */
  kv: KvSnapshot | null;
  /** Replicas of a pool, otherwise empty. */
  replicas: ReplicaSnapshot[];
  /** Why DNS or the file could not be read, or null. The known replicas stay in use. */
  replicas_problem: string | null;
  /** State by lane. */
  lanes: Record<"interactive" | "standard" | "batch", LaneSnapshot>;
  /** Attempts sent. */
  attempts: number;
  /** Retries by reason. */
  retries: Record<string, number>;
  /** Failed attempts by cause. */
  failed_attempts: Record<string, number>;
  /** Calls that were not retried, by reason. */
  gave_up: Record<string, number>;
  /** Cool-downs by cause. */
  cool_downs: Record<string, number>;
  /** Rejected calls that were sent to the fallback target, by reason. */
  fallbacks: Record<string, number>;
  /** Hedged attempts of a pool: `sent`, `won`, `no_slot`, `no_budget`. */
  hedges: Record<string, number>;
  /** Actions that mode `observe` did not take. */
  would: Record<string, number>;
  /** Time from sending to the first token. */
  upstream_ttft: Quantiles;
  /** Time per output token. */
  tpot: Quantiles;
  /** State by tenant. */
  tenants: Record<string, TenantSnapshot>;
}

/**
 * Why an adaptive limit changed.
 *
 * - `slow_start`: raised by one for each call in time, before a first decrease.
 * - `headroom`: raised as a trial, because calls were in time.
 * - `late`: decreased, because first tokens were late.
 * - `slow`: decreased, because tokens were slow.
 * - `refused`: decreased, because the upstream answered 429.
 * - `overloaded`: decreased, because the upstream answered 503 or 529.
 * - `timed_out`: decreased, because attempts timed out.
 */
export type Cause = "slow_start" | "headroom" | "late" | "slow" | "refused" | "overloaded" | "timed_out";

/** One change of an adaptive limit. Consecutive increases for one cause are one change. */
export interface DecisionSnapshot {
  /** Seconds since the change. */
  ago: number;
  /** Slots before. */
  from: number;
  /** Slots after. They are equal to `from` if only `awaiting` was decreased. */
  to: number;
  /** Maximum number of calls that may await their first token, since the change. */
  awaiting: number;
  /** Why the limit changed. */
  cause: Cause;
}

/** State of an adaptive limit. */
export interface LimitSnapshot {
  /** Slots in force. */
  limit: number;
  /** The cap, which the limit never exceeds. */
  ceiling: number;
  /** Calls that await their first token. */
  awaiting: number;
  /** Maximum number of calls that may await their first token. */
  awaiting_limit: number;
  /**
   * Whether no limit was too high so far, so that each call in time raises it by one. Always false
   * with a percentile detector.
   */
  slow_start: boolean;
  /**
   * Objective in seconds from sending to the first token, or to the end for tools; null without
   * one.
   */
  objective: number | null;
  /** Share of the recently judged calls that were late, 0 to 1; null if none was judged. */
  late: number | null;
  /**
   * Evidence against the limit; at 1 the limit is decreased. With a percentile detector: the
   * quantile divided by the objective with its dead band.
   */
  evidence: number;
  /** Number of decreases. */
  cuts: number;
  /** Number of increases. */
  raises: number;
  /**
   * Whether calls wait although the limit was too high within the last minute, or is at its floor.
   * Another replica would help.
   */
  saturated: boolean;
  /** The last changes, the newest last. */
  decisions: DecisionSnapshot[];
}

/** What a rate of a provider counts. */
export type BudgetKind =
  | "requests"
  | "tokens"
  | "input_tokens"
  | "output_tokens"
  | "requests_per_day"
  | "tokens_per_day";

/** State of one rate of a provider. */
export interface BudgetSnapshot {
  /** Requests or tokens per window. */
  limit: number;
  /** Length of the window in seconds. */
  window: number;
  /**
   * Requests or tokens that can be used now. The level rises at the rate, up to `burst` seconds of
   * it.
   */
  level: number;
  /**
   * Requests or tokens that calls used beyond their estimates and that are still to be made up for.
   */
  debt: number;
  /** Whether the rate is configured or from the provider's headers. */
  source: "configured" | "headers";
  /** Maximum burst, in seconds of the rate. */
  burst: number;
  /**
   * What a call counts for: input plus maximum output (`sum`), the larger of the two (`larger`),
   * actual usage (`actual`) or `input` only.
   */
  counting: "auto" | "sum" | "larger" | "actual" | "input";
}

/** KV memory of an engine, in tokens. */
export interface KvSnapshot {
  /** Size of the memory. */
  capacity: number;
  /** Size without the headroom. */
  usable: number;
  /** Tokens that calls in flight hold now, as far as known. */
  held: number;
  /** Tokens that calls in flight will hold at most. */
  peak: number;
}

/** State of one lane of a target. */
export interface LaneSnapshot {
  /** Slots in use. */
  in_flight: number;
  /** Waiting calls. */
  queue_depth: number;
  /** Reserved slots, within the limit in force. */
  floor: number;
}

/** State of one tenant of a target. */
export interface TenantSnapshot {
  /** Slots in use. */
  in_flight: number;
  /** Maximum number of slots in use so far. */
  peak_in_flight: number;
  /** Waiting calls. */
  queue_depth: number;
  /** Reserved slots, within the limit in force. */
  floor: number;
  /** Tokens above the tenant's own `tpm` that are still to be made up for. */
  debt: number;
  /** Admitted attempts. */
  admitted: number;
  /** Completed calls that met the TTFT objective. */
  objective_met: number;
  /** Ended calls by outcome. */
  outcomes: Record<string, number>;
  /** Rejected calls by reason. */
  refused: Record<string, number>;
  /** Input tokens of ended calls. */
  input_tokens: number;
  /** Output tokens of ended calls. */
  output_tokens: number;
  /** Time in the queue. */
  queue_wait: Quantiles;
  /** Time from queueing to the first token (user TTFT). */
  ttft: Quantiles;
  /** Time from queueing to the end. */
  duration: Quantiles;
}

/** State of one tool. */
export interface ToolSnapshot {
  /** Slots in force. */
  limit: number;
  /** State of the adaptive limit, or null if the limit is fixed. */
  adaptive: LimitSnapshot | null;
  /** Slots in use. */
  in_flight: number;
  /** Maximum number of slots in use so far. */
  peak_in_flight: number;
  /** Waiting calls. */
  queue_depth: number;
  /** Time in the queue. */
  wait: Quantiles;
  /** Rejected calls by reason. */
  refused: Record<string, number>;
  /** Actions that mode `observe` did not take. */
  would: Record<string, number>;
  /**
   * Model slots that tasks held when they asked for the tool, by target and result: `got` (the tool
   * was free), `waited`, or `yielded` (the slot was released).
   */
  slot_held: Record<string, Partial<Record<"got" | "waited" | "yielded", number>>>;
}

/** A call that has ended. */
export interface CallRecord {
  /** Number of the call. */
  id: number;
  /** Label from `gate.run({ call }, ...)`, or null. */
  label: string | null;
  /** Name of the target. */
  target: string;
  /** Target that rejected the call before it was sent here as a fallback, or null. */
  fallback_from: string | null;
  /** Fairness key. */
  tenant: string;
  /** Priority class. */
  lane: "interactive" | "standard" | "batch";
  /** Model that the request names, or null. */
  model: string | null;
  /** How the call ended. */
  outcome: "completed" | "failed" | "refused" | "cancelled" | "truncated" | "timed_out" | "broken";
  /** Seconds since the Unix epoch. */
  queued_at: number;
  /** Seconds from queueing to the end. */
  duration: number;
  /** Estimated input tokens at the last admission attempt, or null if the body is not JSON. */
  estimated_input_tokens: number | null;
  /**
   * Estimated output tokens, of all answers together, at that time, or null if the body is not
   * JSON.
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
  /** The attempts in order. */
  attempts: AttemptRecord[];
}

/**
 * One attempt of a call. Times are in seconds since the call's `queued_at`, or null if the attempt
 * ended before.
 */
export interface AttemptRecord {
  /** When the attempt was queued. */
  queued_at: number;
  /** When a slot was acquired. */
  admitted_at: number | null;
  /** Slots of the target in use just after the admission, including its own, or null. */
  in_flight: number | null;
  /** Base URL of the replica, or null if the target is not a pool. */
  replica: string | null;
  /** When the request was sent. */
  sent_at: number | null;
  /** When the first token arrived. */
  first_token_at: number | null;
  /** When the slot was released. */
  released_at: number | null;
  /** HTTP status of the upstream, or null. */
  status: number | null;
  /** Seconds of backoff before the next attempt was queued, or null. */
  backoff: number | null;
}
