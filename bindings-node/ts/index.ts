/**
 * Admission control for calls of language models, below the client library that you already use.
 *
 * A {@link Gate} sends as many calls to each model as the model can serve at the moment. It queues
 * the other calls, retries failures, and releases capacity when a call is cancelled.
 *
 * @packageDocumentation
 */
export type {
  Config,
  Count,
  Duration,
  LaneConfig,
  Limit,
  LimitConfig,
  Off,
  PercentileConfig,
  PoolConfig,
  RateConfig,
  ReplicaConfig,
  RetryConfig,
  ShareConfig,
  TargetConfig,
  TargetSettings,
  TenantConfig,
  ToolConfig,
  TransportConfig,
} from "./config.js";
export type { Context } from "./context.js";
export {
  ConfigError,
  ConnectionFailed,
  Deadline,
  type Reason,
  Refused,
  RequestError,
  TidegateError,
  Timeout,
  Truncated,
  UnknownNameError,
} from "./errors.js";
export type { Explanation, Rule, Why } from "./explain.js";
export type { Fetch } from "./fetch/platform-types.js";
export { Gate, type GateOptions, type Mode, type WrapOptions } from "./gate.js";
export type { MapFunction, MapItem, MapOptions, MapResult } from "./map.js";
export type { WaitOptions } from "./slot-wait.js";
export type {
  AttemptRecord,
  BudgetKind,
  BudgetSnapshot,
  CallRecord,
  Cause,
  DecisionSnapshot,
  KvSnapshot,
  LaneSnapshot,
  LimitSnapshot,
  Quantiles,
  ReplicaSnapshot,
  ShareSnapshot,
  Snapshot,
  TargetSnapshot,
  TenantSnapshot,
  ToolSnapshot,
} from "./snapshot.js";
export { TargetSlot } from "./target-slot.js";
export { type ToolOptions, ToolSlot } from "./tool-slot.js";
export type { Lane } from "./types.js";
