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

/** One target's state. */
export interface TargetSnapshot {
  /** The limit in force. */
  limit: number;
  /** Slots held. */
  in_flight: number;
  peak_in_flight: number;
  /** Calls waiting. */
  queue_depth: number;
  state: "open" | "cooling" | "probing" | "ramping";
  /** Until the cool-down ends. */
  cool_for: number | null;
  /** The share of time in which calls waited while slots were free. */
  gap_fraction: number;
  /** Retries that may be scheduled now. */
  retry_budget: number;
  /** Attempts sent. */
  attempts: number;
  retries: Record<string, number>;
  failed_attempts: Record<string, number>;
  gave_up: Record<string, number>;
  cool_downs: Record<string, number>;
  /** Calls refused here that went to the fallback target, by reason. */
  fallbacks: Record<string, number>;
  /** What observe mode would have done. */
  would: Record<string, number>;
  upstream_ttft: Quantiles;
  tpot: Quantiles;
  tenants: Record<string, TenantSnapshot>;
}

/** One tenant's part of a target. */
export interface TenantSnapshot {
  in_flight: number;
  peak_in_flight: number;
  queue_depth: number;
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
  limit: number;
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
  /** What its input was expected to cost; null where its body was no JSON. */
  estimated_input_tokens: number | null;
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
  sent_at: number | null;
  first_token_at: number | null;
  released_at: number | null;
  /** The upstream's. */
  status: number | null;
  /** How long the call then slept before it queued again. */
  backoff: number | null;
}
