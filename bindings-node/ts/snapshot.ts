/**
 * What `gate.snapshot()` and `gate.calls()` return: plain data, the same in every language. Times are seconds.
 *
 * @module
 */

/** What a histogram saw; null where it saw nothing. */
export interface Quantiles {
  count: number;
  mean: number | null;
  p50: number | null;
  p99: number | null;
}

/** A gate's state. */
export interface Snapshot {
  mode: "enforce" | "observe" | "off";
  /** Whether new calls are refused because the gate drains. */
  draining: boolean;
  /** Calls under way, waiting ones included. */
  active: number;
  targets: Record<string, TargetSnapshot>;
  tools: Record<string, ToolSnapshot>;
}

/** One replica of a pool. */
export interface ReplicaSnapshot {
  url: string;
  /**
   * `in` the choice; `suspect`: it gets no calls until it is heard of; `down`; `trial`: one call at a time; `starting`: slow start; `draining`: it leaves
   * with its last call.
   */
  state: "in" | "suspect" | "down" | "trial" | "starting" | "draining";
  weight: number;
  /** The share of its slots that is in force. */
  share: number;
  /** How often it has left the choice. */
  ejections: number;
  /** Slots in force there. */
  limit: number;
  /** What moves them; null where the limit is fixed. */
  adaptive: LimitSnapshot | null;
  /** Slots held there. */
  in_flight: number;
  /** Its memory; null where its size is not known. */
  kv: KvSnapshot | null;
  /** Calls of this gate that are there now. */
  requests: number;
  /** Their tokens. */
  tokens: number;
  /** Calls of other clients; null: not known. */
  others: number | null;
  /** The share of its memory that is taken, by itself; null: not known. */
  kv_usage: number | null;
  /** What it serves; null: not known. */
  models: string[] | null;
}

/** One target's state. */
export interface TargetSnapshot {
  /** Slots in force. */
  limit: number;
  /** What moves them; null where the limit is fixed. */
  adaptive: LimitSnapshot | null;
  /** Slots held. */
  in_flight: number;
  peak_in_flight: number;
  /** Calls that wait for a slot, or for the cool-down of their key. */
  queue_depth: number;
  state: "open" | "cooling" | "probing" | "ramping";
  /** Until the cool-down ends. */
  cool_for: number | null;
  /** For how long room has been kept for an aged call that does not fit yet; null where it is kept for nobody. */
  held_for: number | null;
  /** The share of time in which calls waited while slots were free. */
  gap_fraction: number;
  /** Retries that may be scheduled now. */
  retry_budget: number;
  /** The provider's rates, by what they count: those configured, and those that its headers spoke of. */
  budgets: Partial<Record<BudgetKind, BudgetSnapshot>>;
  /** The engine's memory; null where `kv_tokens` is not set. */
  kv: KvSnapshot | null;
  /** Of a pool, its replicas. */
  replicas: ReplicaSnapshot[];
  /** Why it is not known now which there are, where DNS or a file names them; those known before stay. */
  replicas_problem: string | null;
  lanes: Record<"interactive" | "standard" | "batch", LaneSnapshot>;
  /** Attempts sent. */
  attempts: number;
  retries: Record<string, number>;
  failed_attempts: Record<string, number>;
  gave_up: Record<string, number>;
  cool_downs: Record<string, number>;
  /** Calls refused here that went to the fallback target, by reason. */
  fallbacks: Record<string, number>;
  /** Second tries of calls whose first token was late, where a pool hedges: `sent`, `won`, `no_slot`, `no_budget`. */
  hedges: Record<string, number>;
  /** What observe mode would have done. */
  would: Record<string, number>;
  upstream_ttft: Quantiles;
  tpot: Quantiles;
  tenants: Record<string, TenantSnapshot>;
}

/**
 * Why a limit moved. Upwards, since calls pressed on it and were answered in time: `slow_start` (each raises it by one) and `headroom` (by trial, where a
 * level is known that was too much). Downwards: first tokens came too `late`, or tokens too `slow`; 429s `refused` so many at once; 503 or 529 (`overloaded`); attempts `timed_out`.
 */
export type Cause = "slow_start" | "headroom" | "late" | "slow" | "refused" | "overloaded" | "timed_out";

/** One move of a limit, in slots. Raises for one cause, one after the other, are one. */
export interface DecisionSnapshot {
  /** How long ago. */
  ago: number;
  from: number;
  /** A cut may leave it as it was, where it was of `awaiting`. */
  to: number;
  /** The most calls that may await their first token, since. */
  awaiting: number;
  cause: Cause;
}

/** What an adaptive limit sees, and what it did. */
export interface LimitSnapshot {
  /** Slots in force. */
  limit: number;
  /** The cap. */
  ceiling: number;
  /** Calls that await their first token. */
  awaiting: number;
  /** The most that may. */
  awaiting_limit: number;
  /** Whether no level is known yet that was too much: each call in time raises it by one. Always false under a percentile. */
  slow_start: boolean;
  /** What it keeps to, from sending to the first token, or of a tool to the end; null where none is set. */
  objective: number | null;
  /** The share of calls judged of late that were late, 0 to 1; null where none was. */
  late: number | null;
  /** Of a breach; at 1 the limit is cut. Under a percentile: the quantile over the objective with its dead band. */
  evidence: number;
  cuts: number;
  raises: number;
  /**
   * Whether calls press on it though they were found to be too many in the last minute, also at its floor:
   * what helps then is another replica.
   */
  saturated: boolean;
  /** The last moves, the youngest last. */
  decisions: DecisionSnapshot[];
}

/** What a budget counts. */
export type BudgetKind =
  | "requests"
  | "tokens"
  | "input_tokens"
  | "output_tokens"
  | "requests_per_day"
  | "tokens_per_day";

/** One of a provider's rates, as it stands. */
export interface BudgetSnapshot {
  /** Requests or tokens in each window. */
  limit: number;
  window: number;
  /** What may go at once: it fills up at the rate, to `burst` seconds of it. */
  level: number;
  /** What is owed, since calls took more than was expected of them. */
  debt: number;
  /** Who says so. */
  source: "configured" | "headers";
  /** How much of the rate may go out at once, as time. */
  burst: number;
  /** What of a call counts: input and the most output it asks for, the larger of the two, what it took in the end, or its input alone. */
  counting: "auto" | "sum" | "larger" | "actual" | "input";
}

/** The engine's memory, in tokens. */
export interface KvSnapshot {
  capacity: number;
  /** What of it may be taken: less the headroom. */
  usable: number;
  /** What the calls in flight hold, as far as it is seen. */
  held: number;
  /** The most that they will come to hold together. */
  peak: number;
}

/** One lane's part of a target. */
export interface LaneSnapshot {
  in_flight: number;
  queue_depth: number;
  /** Slots that are its own, of the limit in force. */
  floor: number;
}

/** One tenant's part of a target. */
export interface TenantSnapshot {
  in_flight: number;
  peak_in_flight: number;
  queue_depth: number;
  /** Slots that are its own, of the limit in force. */
  floor: number;
  /** Tokens that it owes, of its own `tpm`. */
  debt: number;
  admitted: number;
  /** Completed calls that met the TTFT objective. */
  objective_met: number;
  outcomes: Record<string, number>;
  refused: Record<string, number>;
  input_tokens: number;
  output_tokens: number;
  queue_wait: Quantiles;
  /** User TTFT. */
  ttft: Quantiles;
  duration: Quantiles;
}

/** One tool's state. */
export interface ToolSnapshot {
  /** Slots in force. */
  limit: number;
  /** What moves them; null where the limit is fixed. */
  adaptive: LimitSnapshot | null;
  in_flight: number;
  peak_in_flight: number;
  queue_depth: number;
  wait: Quantiles;
  refused: Record<string, number>;
  /** What observe mode would have done. */
  would: Record<string, number>;
  /** Model slots that a task held when it asked for this tool, by target: it `got` the tool at once, `waited` for it, or `yielded` the slot. */
  slot_held: Record<string, Partial<Record<"got" | "waited" | "yielded", number>>>;
}

/** A call that ended. */
export interface CallRecord {
  id: number;
  /** What `gate.run({ call }, ...)` named it. */
  label: string | null;
  target: string;
  /** The target that refused it before, where it came to this one as its fallback. */
  fallback_from: string | null;
  tenant: string;
  lane: "interactive" | "standard" | "batch";
  /** Null where the request named none. */
  model: string | null;
  outcome: "completed" | "failed" | "refused" | "cancelled" | "truncated" | "timed_out" | "broken";
  /** Since the Unix epoch. */
  queued_at: number;
  /** End to end. */
  duration: number;
  /** What its input was expected to be when it last came to the door, by all that was learned until then; null where its body was no JSON. */
  estimated_input_tokens: number | null;
  /** What its output was expected to be then, of all answers together; null where its body was no JSON. */
  estimated_output_tokens: number | null;
  /** Of all answers together; null where it set no bound. */
  max_output_tokens: number | null;
  /** As the provider counted, cached input included; null where it did not say. */
  input_tokens: number | null;
  /** As the provider counted, reasoning included. */
  output_tokens: number | null;
  attempts: AttemptRecord[];
}

/** One attempt of a call. Moments are since the call's `queued_at`; null where it did not come to that. */
export interface AttemptRecord {
  queued_at: number;
  admitted_at: number | null;
  /** Slots of the target held just after it was admitted, its own included. */
  in_flight: number | null;
  /** The base URL of the replica that it went to, where its target is a pool. */
  replica: string | null;
  sent_at: number | null;
  first_token_at: number | null;
  released_at: number | null;
  /** The upstream's. */
  status: number | null;
  /** How long the call then slept before it queued again. */
  backoff: number | null;
}
