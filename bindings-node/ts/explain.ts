/**
 * Why a call waits, or was refused: plain data. Times are seconds.
 *
 * @module
 */
import type { Lane } from "./types.js";

/**
 * What stands in a call's way: its target's slots, as many calls as may await their first token, its tenant's cap, one of the provider's rates, its
 * tenant's own tokens, the engine's memory, a pool's replicas that serve it, a cool-down, an outage, others whose turn it is, or room that is kept for a call that has waited longer.
 */
export type Rule =
  | "slots"
  | "first_tokens"
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

/** What stood in a refused call's way. */
export interface Why {
  /** The rule's stable name. */
  rule: Rule;
  /** What it says, for people. */
  text: string;
  /** For how long it had stood in the way. */
  since: number;
  /** For how long the call had waited in all. */
  waited: number;
  /** In how long its turn was expected; undefined where too little was seen to say. */
  expected?: number;
  /** How many calls went first. */
  ahead: number;
}

/** Why a call waits now, or what it is at instead. */
export interface Explanation {
  /** Its number, as in `gate.calls()` and in errors. */
  call: number;
  /** What `gate.run({ call }, ...)` named it. */
  label: string | null;
  /** Where it goes; null for a wait for a tool. */
  target: string | null;
  /** The tool that is waited for; null for calls. */
  tool: string | null;
  tenant: string;
  lane: Lane;
  /** In a queue; asleep before it queues again; or neither. */
  state: "waiting" | "backing_off" | "in_flight";
  /** The rule that stands in its way, while it waits. */
  rule: Rule | null;
  /** All of it, for people. */
  text: string;
  /** Since it was first asked for. */
  waited: number;
  /** For how long the rule has stood in its way; else for how long the state has lasted. */
  since: number;
  /** In how long its turn is expected; null where too little was seen to say. */
  expected: number | null;
  /** How many calls go first, while it waits. */
  ahead: number | null;
}
