/**
 * The configuration: the keys of the file, as types.
 *
 * @module
 */

/** Seconds, or text with units: `"500ms"`, `"2m"`. */
export type Duration = number | string;

/** How a target's failed attempts are made again. */
export interface RetryConfig {
  /** The most attempts of a call. Default: 4. */
  attempts?: number;
  /** The first backoff. */
  base?: Duration;
  /** The longest backoff. */
  max?: Duration;
  /** The retry budget: so many retries for each call. Default: 0.2. */
  ratio?: number;
  /** The retry budget: so many more. Default: 10. */
  reserve?: number;
}

/** A tenant, at a target or at all of them. */
export interface TenantConfig {
  /** Its share beside the others'. Default: 1. */
  weight?: number;
  /** The most slots it holds at once. */
  cap?: number;
  /** The most calls of its that wait. */
  queue?: number;
}

/** How a target behaves. */
export interface TargetSettings {
  /** The most calls in flight. Default: 64. */
  cap?: number;
  /** The most calls of one tenant that wait. Default: 10,000. */
  queue?: number;
  /** The longest wait while the target is open; `"none"`: no limit but the deadline. */
  wait?: Duration;
  /** Whether a call waits for a slot, or is refused at once. Default: `wait`. */
  on_full?: "wait" | "refuse";
  /** The longest a whole call may take, its stream included. Default: 600 s. */
  deadline?: Duration;
  /** The longest from sending to the first token; `"none"`: no limit. */
  first_token?: Duration;
  /** The longest silence between chunks; `"none"`: no limit. */
  idle?: Duration;
  /** The longest a reader may leave a chunk unread; `"none"`: for ever. */
  stall?: Duration;
  /** The objective for the time to the first token. */
  ttft?: Duration;
  /** A waiting call rises by one lane in this time. */
  aging?: Duration;
  retry?: RetryConfig;
  tenants?: Record<string, TenantConfig>;
  default_tenant?: TenantConfig;
}

/** A target: how it behaves, and which requests are its. */
export interface TargetConfig extends TargetSettings {
  /** What its URLs begin with; one or several. */
  url?: string | string[];
  /** Its models; `*` stands for any text. */
  models?: string | string[];
}

/** A tool: its cap, or more. */
export interface ToolConfig {
  cap: number;
  queue?: number;
  wait?: Duration;
  on_full?: "wait" | "refuse";
}

/** How connections are made. */
export interface TransportConfig {
  /** The longest that connecting may take. */
  connect?: Duration;
  /** Whether proxies are those of the environment. Default: true. */
  proxy_from_env?: boolean;
  pool_idle?: number;
  pool_idle_timeout?: Duration;
  http2_streams?: number;
  http2_prior_knowledge?: boolean;
}

/** A gate's configuration. */
export interface Config {
  /** `enforce` (the default), `observe` (measures, changes nothing) or `off`; the environment's `TIDEGATE` overrides it. */
  mode?: "enforce" | "observe" | "off";
  /** The targets by name, first match first: a cap, or settings. */
  targets?: Record<string, number | TargetConfig>;
  /** The tools by name: a cap, or settings. */
  tools?: Record<string, number | ToolConfig>;
  /** The tenants by name, at every target. */
  tenants?: Record<string, TenantConfig>;
  /** What every target has that does not say otherwise. */
  defaults?: TargetSettings;
  transport?: TransportConfig;
}
