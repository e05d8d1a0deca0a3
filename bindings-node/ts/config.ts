/**
 * The configuration: the keys of the file, as types.
 *
 * @module
 */
import type { Lane } from "./types.js";

/** Seconds, or text with units: `"500ms"`, `"2m"`. */
export type Duration = number | string;

/** A number of tokens or requests, also in thousands or millions: `"450k"`, `"1.5M"`. */
export type Count = number | string;

/** Switches a setting off that a lower layer made. */
export type Off = "none" | false | null;

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

/** A percentile over a window as the detector. */
export interface PercentileConfig {
  /** Which, 0.01 to 0.999. Default: 0.99. */
  quantile?: number;
  /** What it is taken over. Default: 30 s. */
  window?: Duration;
  /** How often it is looked at. Default: 5 s. */
  tick?: Duration;
  /** The dead band on either side of the objective, as a share of it, 0 to 0.9. Default: 0.2. */
  band?: number;
  /** Ticks that pass after a cut before the next. Default: 3. */
  hold?: number;
}

/** How a limit adapts. Its ceiling is the `cap` beside it. */
export interface LimitConfig {
  /**
   * Slots at the start. Default: 8, or the nearest that floor and cap allow. It doubles from there until the first cut; under a percentile it rises by
   * one a tick.
   */
  start?: number;
  /** The floor. Default: 1. */
  min?: number;
  /**
   * The most calls that may await their first token at once; not of a tool. Default: that is found as well with a `decrease` of `served`, else not
   * bounded.
   */
  awaiting?: number | Off;
  /**
   * How far a cut for late calls goes: to what the upstream is seen to serve at once (`served`, the default), to a share (0.1 to 0.99), or by so many
   * slots. Whatever it says, 429s that are not for a rate cut to what was taken in; 503s, 529s, timeouts and a `tpot` that is missed, by a tenth.
   */
  decrease?: "served" | number | { step: number };
  /** What takes first tokens for too late. Default: `exceedance`, a sequential test of the share of late calls. */
  detector?: "exceedance" | "percentile" | PercentileConfig;
}

/**
 * How many slots of a cap are in force: as many as the upstream can take, or all of them, always. Without it the limit adapts, unless a `cap` is
 * named and no objective is (`ttft`, also of a lane; a tool's `latency`): then it is fixed at that cap.
 */
export type Limit = "adaptive" | "fixed" | LimitConfig;

/** A tenant, at a target or at all of them. */
export interface TenantConfig {
  /** Its share beside the others'. Default: 1. */
  weight?: number;
  /** The most slots it holds at once. */
  cap?: number | Off;
  /** The most calls of its that wait. */
  queue?: number | Off;
  /** The share of the slots that is its own whenever it wants them, 0 to 1; only of a tenant with a name. Default: 0. */
  floor?: number;
  /** Tokens it may take a minute; what it takes beyond them is owed, and kept back later. Default: none of its own. */
  tpm?: Count | Off;
  /** Whether its waiting calls may be refused to make room for more urgent ones. Default: true. */
  shed?: boolean;
}

/** What a lane has to itself at a target. */
export interface LaneConfig {
  /** The share of the slots that is its own whenever it wants them, 0 to 1. Default: 0. */
  floor?: number;
  /** The most of its calls that wait, of all tenants together. Default: none of its own. */
  queue?: number | Off;
  /** The longest wait of its calls. Default: the target's. */
  wait?: Duration | Off;
  /** Its objective for the time to the first token. Default: the target's. */
  ttft?: Duration | Off;
}

/** What a provider allows. What is not set is not bounded until a response's headers speak of it. */
export interface RateConfig {
  /** Requests a minute. */
  rpm?: Count | Off;
  /** Requests a day. */
  rpd?: Count | Off;
  /** Tokens a minute, input and output together. */
  tpm?: Count | Off;
  /** Tokens a day. */
  tpd?: Count | Off;
  /** Input tokens a minute, where they are counted apart. */
  itpm?: Count | Off;
  /** Output tokens a minute, where they are counted apart. */
  otpm?: Count | Off;
  /** How much of a rate may go out at once, as time: 0.1 to 60 s. Default: 6 s. */
  burst?: Duration;
  /**
   * How a call is counted: `sum` of its input and the most output, or the `larger` of the two, at arrival; `actual`: input at arrival,
   * output as it is produced; `input` only. Default: `auto`, by the dialect and what the headers show.
   */
  counting?: "auto" | "sum" | "larger" | "actual" | "input";
  /** What the provider's rate headers may do: set the rates (`follow`, the default), only `lower` them, or nothing. */
  headers?: "follow" | "lower" | "ignore";
}

/** How a target behaves: its rates, and the rest. */
export interface TargetSettings extends RateConfig {
  /**
   * The most calls in flight: the limit itself where that is fixed (also where neither `limit` nor a `ttft` is set, of a lane neither), its ceiling where
   * it adapts. Default: 256.
   */
  cap?: number;
  /** How many slots of the cap are in force. Default: adaptive, but fixed where there is a `cap` and no `ttft`. */
  limit?: Limit;
  /** The most calls of one tenant that wait. Default: 10,000. */
  queue?: number;
  /** The longest wait while the target is open; `"none"`: no limit but the deadline. */
  wait?: Duration | Off;
  /** Whether a call waits for a slot, or is refused at once. Default: `wait`. */
  on_full?: "wait" | "refuse";
  /** The longest a whole call may take, its stream included. Default: 600 s. */
  deadline?: Duration;
  /** The longest from sending to the first token; `"none"`: no limit. */
  first_token?: Duration | Off;
  /** The longest silence between chunks; `"none"`: no limit. */
  idle?: Duration | Off;
  /** The longest a reader may leave a chunk unread; `"none"`: for ever. */
  stall?: Duration | Off;
  /** The objective for the time to the first token, queue wait included; an adaptive limit keeps to it. */
  ttft?: Duration | Off;
  /** The objective for the time between two tokens, on average over a call; of an adaptive limit only. Default: none. */
  tpot?: Duration | Off;
  /** A waiting call raises its lane by one in this time: it then gets an eighth of the capacity first. */
  aging?: Duration;
  /** The most calls that wait, of all tenants together. Default: 100,000. */
  backlog?: number;
  lanes?: Partial<Record<Lane, LaneConfig>>;
  /**
   * What fair queueing charges: `tokens`, `kv` (tokens held in memory times seconds) or `calls`. Default: `auto`, `kv` for
   * pools and where `kv_tokens` is configured, else `tokens`.
   */
  cost?: "auto" | "tokens" | "kv" | "calls";
  /** By how much later a call of 1,000 tokens stands in its own tenant's queue. Default: not at all. */
  short_bias?: Duration | Off;
  /** Whether a call that was lent another's floor, and has no answer yet, is called back when the other wants it. Default: false. */
  reclaim?: boolean;
  /**
   * When a call is refused at once for the wait that is expected: beyond its `deadline` or wait budget (the default), beyond its
   * `objective` too, or never (`off`).
   */
  predict?: "deadline" | "objective" | "off";
  /** The longest prompt, in estimated tokens. Default: none. */
  max_prompt?: Count | Off;
  /** The name of one of `budgets` that its rates are part of; beside rates of its own it is an error. */
  budget?: string | Off;
  /** Tokens that the engine's memory for keys and values holds. Default: not known, and so not bounded. */
  kv_tokens?: Count | Off;
  /** The share of it that is kept free, 0 to 0.9. Default: 0.1. */
  kv_headroom?: number;
  /** How prompts are counted: by their length (`learned`, the default), exactly where the build can (`bpe`), or by the server (`vllm`). */
  tokenizer?: "learned" | "bpe" | "vllm";
  /** Whether streams are asked for their usage where the caller did not ask; the caller does not see it. Default: false. */
  ask_usage?: boolean;
  /** The target that takes what this one refuses. */
  fallback?: string | Off;
  retry?: RetryConfig;
  tenants?: Record<string, TenantConfig>;
  default_tenant?: TenantConfig;
}

/** A replica of a pool. */
export interface ReplicaConfig {
  /** Its base URL, with `/v1` or without. */
  url: string;
  /** Its share of the calls, beside the others', 0.01 to 100. Default: 1. */
  weight?: number;
  /** The models that it serves. Default: it is asked. */
  models?: string | string[];
  /** Tokens that its memory for keys and values holds. Default: the target's; else it is asked. */
  kv_tokens?: Count | Off;
}

/**
 * A pool of replicas, which clients call at `http://NAME`, NAME being the target's. One of `replicas`, `dns` and `file` names them; without any of
 * these `gate.setReplicas` does.
 */
export interface PoolConfig {
  replicas?: (string | ReplicaConfig)[];
  /** A name whose addresses are the replicas: `"http://vllm.internal:8000"`. */
  dns?: string;
  /** How often it is looked up, while calls come. Default: 5 s. */
  dns_every?: Duration;
  /** A file that names them, in TOML or JSON (`replicas`), or one URL a line. */
  file?: string;
  /** How often it is looked at, while calls come. Default: 1 s. */
  file_every?: Duration;
  /** The most slots of each replica; the limit itself where there is no objective. Default: 256. */
  cap?: number;
  /** The path that says whether a replica is well. Default: `/health`. */
  health?: string | Off;
  /** How often a replica is asked how it stands, while calls go to it. Default: 1 s. */
  poll?: Duration | Off;
  /** After how long without a good answer a silent replica counts as down. Default: 2 s. */
  down_after?: Duration;
  /** For how long a stream of a replica that is down may be silent before it is cut. Default: 10 s. */
  cut_after?: Duration;
  /** The time in which a replica that comes, or comes back, is brought to its whole share. Default: 10 s. */
  slow_start?: Duration | Off;
  /** The request header that names a session. Default: `x-session-id`. */
  session?: string | Off;
  /** Whether calls with the same beginning go to one replica, within bounds. Default: true. */
  affinity?: boolean;
  /**
   * After how long without a first token a call is tried at another replica as well: streams only, in mode `enforce`, and never of a client whose own fetch was kept.
   * From 50 ms to 5 min. Default: never.
   */
  hedge?: Duration | Off;
  /** The environment variable with the key that `/v1/models` is asked with. Default: none. */
  key_env?: string;
}

/** A target: how it behaves, and which requests are its. */
export interface TargetConfig extends TargetSettings {
  /** Its replicas, where it is not one endpoint; a list is short for a pool of these. */
  pool?: PoolConfig | (string | ReplicaConfig)[];
  /** What its URLs begin with; one or several. */
  url?: string | string[];
  /** Its models; `*` stands for any text. */
  models?: string | string[];
  /** The model that calls ask for which fall back to it. Default: the only name in `models`. */
  model?: string;
  /**
   * The environment variable with the credential of calls that fall back to it. Default: the
   * caller's own goes along, to the same host only, unless `forward_headers` names its header.
   */
  key_env?: string;
  /**
   * Caller headers that this target receives, beside the standard allowlist, when a call falls back
   * to it on another server or with `key_env`. Default: none.
   */
  forward_headers?: string | string[];
}

/** A tool: its cap, or more. */
export interface ToolConfig {
  /** The most calls at once. */
  cap: number;
  /** How many of them are in force. Default: all; adaptive where there is a `latency`. */
  limit?: Limit;
  /** The objective for how long a call takes, which an adaptive limit keeps to. Default: none. */
  latency?: Duration | Off;
  queue?: number;
  wait?: Duration | Off;
  on_full?: "wait" | "refuse";
  /** Calls a second; `rpm` in its place says them a minute. */
  rps?: number | Off;
  /** Calls a minute. */
  rpm?: Count | Off;
}

/** How connections are made. */
export interface TransportConfig {
  /** The longest that connecting may take. */
  connect?: Duration;
  /**
   * Whether to take proxies from the environment, as undici's `EnvHttpProxyAgent` does. Default:
   * true.
   */
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
  /** Rates that several targets share: those that name it as their `budget`. */
  budgets?: Record<string, RateConfig>;
  /** What every target has that does not say otherwise. */
  defaults?: TargetSettings;
  transport?: TransportConfig;
}
