/**
 * Explanations of why a call waits or was rejected. All times are in seconds.
 *
 * @module
 */
import type { Lane } from "./types.js";

/**
 * The rule that blocks a call.
 *
 * - `slots`: all slots of the target are in use.
 * - `share`: this process uses all that it may of a limit that several processes share.
 * - `first_tokens`: the limit of calls that await their first token is reached.
 * - `tenant_share`: the tenant uses its share, and the rest is kept for the first tokens of other
 *   tenants.
 * - `tenant_cap`: the tenant holds its maximum number of slots.
 * - `requests`, `tokens`, `input_tokens`, `output_tokens`, `requests_per_day`, `tokens_per_day`:
 *   this rate of the provider is used up.
 * - `tenant_tokens`: the tenant's own token rate is used up.
 * - `kv`: the engine's KV memory is full.
 * - `replicas`: no replica of the pool can serve the call now.
 * - `cool_down`: the target is in a cool-down, because the provider asked to wait.
 * - `outage`: the target is down, and only single calls test whether it has recovered.
 * - `turn`: other queued calls are admitted first.
 * - `held`: capacity is reserved for a call that has waited longer.
 */
export type Rule =
  | "slots"
  | "share"
  | "first_tokens"
  | "tenant_share"
  | "tenant_cap"
  | "requests"
  | "tokens"
  | "input_tokens"
  | "output_tokens"
  | "requests_per_day"
  | "tokens_per_day"
  | "tenant_tokens"
  | "kv"
  | "replicas"
  | "cool_down"
  | "outage"
  | "turn"
  | "held";

/** The rule that blocked a rejected call. */
export interface Why {
  /** Name of the rule that blocked the call, which does not change between versions. */
  rule: Rule;
  /** The rule as a sentence for people. */
  text: string;
  /** Seconds for which the rule had blocked the call when it was rejected. */
  since: number;
  /** Seconds for which the call had waited in total when it was rejected. */
  waited: number;
  /**
   * Expected seconds from the rejection until the call would have been admitted if it had not been
   * rejected; undefined if that time is not known.
   */
  expected?: number;
  /** Number of calls that were ahead in the queue when the call was rejected. */
  ahead: number;
}

/** The state of a call that has not ended or of a wait for a tool, and the rule that blocks it. */
export interface Explanation {
  /**
   * Number of the call, as in {@link Gate.calls} and in errors. Waits for tools are numbered in the
   * same sequence.
   */
  call: number;
  /** Label from `gate.run({ call }, ...)`, or null without a label. */
  label: string | null;
  /** Name of the target, or null if the call waits for a tool. */
  target: string | null;
  /** Name of the tool that the call waits for, or null for calls of a target. */
  tool: string | null;
  /** Name of the call's tenant. Tenants share capacity fairly. */
  tenant: string;
  /** Priority class (lane) of the call. */
  lane: Lane;
  /** `waiting` (in a queue), `backing_off` (before a retry is queued) or `in_flight`. */
  state: "waiting" | "backing_off" | "in_flight";
  /** The rule that blocks the call, or null unless `state` is `waiting`. */
  rule: Rule | null;
  /** The whole explanation as one line of text for people. */
  text: string;
  /** Seconds since the call was made or the tool was requested. */
  waited: number;
  /**
   * If `rule` is set: seconds for which that rule has blocked the call. Otherwise: seconds since
   * the current state began.
   */
  since: number;
  /**
   * Expected seconds until the call is admitted or, in the state `backing_off`, until it is queued
   * again. Null if that time is not known, and for calls in flight.
   */
  expected: number | null;
  /** Number of calls ahead in the queue, or null unless `state` is `waiting`. */
  ahead: number | null;
}
