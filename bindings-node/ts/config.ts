/**
 * The types of the configuration.
 *
 * @module
 */
import type { Lane } from "./types.js";

/** Seconds, or text with units: `"500ms"`, `"2m"`, `"1h30m"`. */
export type Duration = number | string;

/** A number of tokens or requests, which may be in thousands or millions: `"450k"`, `"1.5M"`. */
export type Count = number | string;

/** A value that switches a setting off. */
export type Off = "none" | false | null;

/**
 * How the limit (the maximum number of slots in use) is determined. `"fixed"`: it equals the `cap`.
 * `"adaptive"`, or an object with settings: it changes between a minimum and the `cap`. Default:
 * fixed if a `cap` is set without an objective (`ttft` of a target or a lane, `latency` of a tool),
 * otherwise adaptive.
 */
export type Limit = "adaptive" | "fixed" | LimitConfig;

// Generated from the declarations in the Rust crate, which a test compares with this file.

/**
 * How failed attempts of a call are repeated.
 */
export interface RetryConfig {
  /**
   * The maximum number of attempts of a call, including the first. Range: 1 to 100. Default: 4.
   */
  attempts?: number;
  /**
   * The upper bound of the first backoff, at most `max`. The bound doubles with each attempt, and
   * the backoff is uniform between 0 and the bound. Range: 1ms to 30d. Default: 500ms.
   */
  base?: Duration;
  /**
   * The maximum of the upper bound of a backoff. If the provider sends Retry-After, the backoff is
   * at least that long, even above `max`. Range: 1ms to 30d. Default: 30s.
   */
  max?: Duration;
  /**
   * The retry budget: the number of retries allowed per call of the last 10 s. Range: 0 to 10.
   * Default: 0.2.
   */
  ratio?: number;
  /**
   * The retry budget: the number of retries allowed in addition, regardless of the calls. Processes
   * that share the target divide it, and each has at least one of them unless it is 0. Range: 0 to
   * 10000. Default: 10.
   */
  reserve?: number;
}

/**
 * A decrease of an adaptive limit by a fixed number of slots.
 */
export interface StepConfig {
  /**
   * The number of slots. Range: 1 to 65536.
   */
  step: number;
}

/**
 * A percentile of the time to first token over a time window, as the detector of late calls.
 */
export interface PercentileConfig {
  /**
   * The quantile of the time to first token that is compared with the objective. 0.99 is the 99th
   * percentile. Range: 0.01 to 0.999. Default: 0.99.
   */
  quantile?: number;
  /**
   * The time over which the quantile is computed. Range: 1s to 1h. Default: 30s.
   */
  window?: Duration;
  /**
   * The time between two evaluations, at most `window`. Range: 100ms to 10m. Default: 5s.
   */
  tick?: Duration;
  /**
   * The dead band: the limit stays as it is while the quantile differs from the objective by less
   * than this share of the objective. Range: 0 to 0.9. Default: 0.2.
   */
  band?: number;
  /**
   * The number of ticks after a decrease in which the limit is not decreased again. Range: 0 to
   * 1000. Default: 3.
   */
  hold?: number;
}

/**
 * How an adaptive limit changes. Its upper bound is the `cap` of the target, tool or pool.
 */
export interface LimitConfig {
  /**
   * The limit at the start, from `min` to `cap`. The limit doubles from there until the first
   * decrease. With a percentile detector it increases by 1 per tick instead. Range: 1 to 65536.
   * Default: 8, or the nearest that `min` and `cap` allow.
   */
  start?: number;
  /**
   * The lower bound of the limit, at most `cap`. Range: 1 to 65536. Default: 1.
   */
  min?: number;
  /**
   * The maximum number of calls that await their first token at the same time. A value above the
   * cap has no effect. Not for tools. Range: 1 to 65536. Default: limited adaptively if decrease is
   * "served", otherwise not limited.
   */
  awaiting?: number | Off;
  /**
   * How far the limit is decreased when calls miss the objective: to the concurrency that the
   * upstream was observed to serve (`"served"`), to a share of the limit (0.1 to 0.99), or by a
   * number of slots (`{ step = 4 }`, 1 to 65536). Other causes have fixed decreases: 429 responses
   * that are not about a rate decrease the limit to the number of calls that were accepted; 503,
   * 529, timeouts and a missed `tpot` decrease it by a tenth. Default: to the concurrency that is
   * served.
   */
  decrease?: "served" | number | { step: number };
  /**
   * How late first tokens are detected: by a sequential test of the share of calls above the
   * objective, per kind of call (`"exceedance"`), or by a percentile over a time window
   * (`"percentile"`, or a table with its settings). Default: exceedance.
   */
  detector?: "exceedance" | "percentile" | PercentileConfig;
}

/**
 * The settings of a tenant at one target, or at all targets.
 */
export interface TenantConfig {
  /**
   * The weight of the tenant in fair queueing. If both have queued calls, a tenant with weight 2
   * gets twice the capacity of one with weight 1. Range: 0.001 to 1000000. Default: 1.
   */
  weight?: number;
  /**
   * The maximum number of slots that the tenant uses at a time. A value above the target's `cap`
   * has no effect. Range: 1 to 65536. Default: the target's.
   */
  cap?: number | Off;
  /**
   * The maximum number of queued calls of the tenant. Range: 0 to 1000000. Default: the target's.
   */
  queue?: number | Off;
  /**
   * The share of the slots in force that is reserved for the tenant. Others may borrow the reserved
   * slots that the tenant does not use. Not allowed for `default_tenant`. Range: 0 to 1. Default:
   * 0.
   */
  floor?: number;
  /**
   * The tokens per minute that the tenant may use. If a call uses more than was reserved, later
   * calls of the tenant are delayed accordingly. Unlimited if not set. Range: 1 to 1000000000000.
   * Default: none.
   */
  tpm?: Count | Off;
  /**
   * Whether the tenant's queued calls may be rejected to make room for more urgent ones in a full
   * queue. Default: true.
   */
  shed?: boolean;
}

/**
 * The settings of one lane (priority class) at a target.
 */
export interface LaneConfig {
  /**
   * The share of the slots in force that is reserved for the lane. Other lanes may borrow the
   * reserved slots that the lane does not use. Range: 0 to 1. Default: 0.
   */
  floor?: number;
  /**
   * The maximum number of queued calls of the lane, of all tenants together. Without it, only the
   * limits of the target apply. Range: 0 to 1000000. Default: none.
   */
  queue?: number | Off;
  /**
   * The maximum time in the queue of a call of the lane, at most `deadline`. Range: 1ms to 30d.
   * Default: the target's.
   */
  wait?: Duration | Off;
  /**
   * The objective for the time to first token of the lane's calls, at most `deadline`. Range: 1ms
   * to 30d. Default: the target's.
   */
  ttft?: Duration | Off;
}

/**
 * The rates that a provider allows, for a target or for a budget that several targets share. A rate
 * that is not set is unlimited, until the headers of a response report one. Headers change no rate
 * of a budget that several targets use. With `share`, only processes that set the same rates share
 * them: one with `rpm` and one with `rpm` and `tpm` share neither.
 */
export interface RateConfig {
  /**
   * The maximum number of requests per minute. Unlimited if not set. Range: 1 to 1000000000.
   * Default: none.
   */
  rpm?: Count | Off;
  /**
   * The maximum number of requests per day. Unlimited if not set. Range: 1 to 1000000000. Default:
   * none.
   */
  rpd?: Count | Off;
  /**
   * The maximum number of tokens per minute, input and output together. Unlimited if not set.
   * Range: 1 to 1000000000000. Default: none.
   */
  tpm?: Count | Off;
  /**
   * The maximum number of tokens per day, input and output together. Unlimited if not set. Range: 1
   * to 1000000000000. Default: none.
   */
  tpd?: Count | Off;
  /**
   * The maximum number of input tokens per minute, for providers that count input and output
   * separately. Unlimited if not set. Range: 1 to 1000000000000. Default: none.
   */
  itpm?: Count | Off;
  /**
   * The maximum number of output tokens per minute, for providers that count input and output
   * separately. Unlimited if not set. Range: 1 to 1000000000000. Default: none.
   */
  otpm?: Count | Off;
  /**
   * The part of a rate that may be used at once, as a time: 6 s allow a tenth of a rate per minute
   * at once. Range: 100ms to 1m. Default: 6s.
   */
  burst?: Duration;
  /**
   * How the provider counts a call against its token rates. `"auto"`: Chooses one of the other
   * rules by the provider's API and rate headers. `"sum"`: Counts the input and the maximum output
   * when the call arrives. `"larger"`: Counts the larger of the input and the maximum output when
   * the call arrives. `"actual"`: Counts the input when the call arrives, and the output as it is
   * produced. `"input"`: Counts the input only. Default: auto.
   */
  counting?: "auto" | "sum" | "larger" | "actual" | "input";
  /**
   * What the provider's rate headers may change. `"follow"`: The headers increase and decrease the
   * rates. `"lower"`: The headers only decrease the rates: a configured rate is an upper bound.
   * `"ignore"`: The headers change no rate. Default: follow.
   */
  headers?: "follow" | "lower" | "ignore";
}

/**
 * The settings of a target. Each of them can also be set in `defaults`.
 */
export interface TargetSettings extends RateConfig {
  /**
   * How many of the slots that the cap allows are in force. Default: adaptive; fixed with a `cap`
   * and no `ttft`.
   */
  limit?: Limit;
  /**
   * The maximum number of calls in flight. A fixed limit equals the cap, and an adaptive limit is
   * at most the cap. For pools, the cap applies to all replicas together. Range: 1 to 65536.
   * Default: 256; for pools 65536.
   */
  cap?: number;
  /**
   * The maximum number of queued calls per tenant. Further calls are rejected. Range: 0 to 1000000.
   * Default: 10,000.
   */
  queue?: number;
  /**
   * The maximum number of queued calls of all tenants together. Further calls are rejected. Range:
   * 0 to 1000000. Default: 100,000.
   */
  backlog?: number;
  /**
   * The maximum time of a call in the queue, over all its attempts (the wait budget). Times in
   * which the target is closed (in a cool-down or an outage, or without a replica that accepts
   * calls) count only if the target has a `fallback`. At most `deadline`. Without it, a call with
   * an objective (`ttft`) waits only as long as it can still meet the objective. Calls of the lane
   * `batch` do so only if the lane has a `ttft` of its own. Range: 1ms to 30d. Default: what `ttft`
   * leaves, otherwise the deadline.
   */
  wait?: Duration | Off;
  /**
   * What happens to a call that finds no free slot. Retries of a call that was admitted are queued
   * in either case, at most for `wait`, except with `"refuse"` and a `fallback`. `"wait"`: The call
   * is queued. It fails with 504 when its wait budget runs out. `"refuse"`: The call is rejected at
   * once with 429. A target also rejects each call during a cool-down (429) or an outage (503), and
   * while no replica of a pool accepts calls. Default: wait.
   */
  on_full?: "wait" | "refuse";
  /**
   * The maximum time of a call, including its wait, retries and stream. The context of a call can
   * only shorten it. Range: 1ms to 30d. Default: 10m, or the client's read timeout if that is
   * longer.
   */
  deadline?: Duration;
  /**
   * The maximum time from the start of an attempt to its first token, for streams. At most
   * `deadline`. Range: 1ms to 30d. Default: the client's read timeout.
   */
  first_token?: Duration | Off;
  /**
   * The maximum time between two chunks of a response. Range: 1ms to 30d. Default: the client's
   * read timeout.
   */
  idle?: Duration | Off;
  /**
   * The maximum time for which the reader of a response may leave a chunk unread. After that time
   * the slot of the call is released. Switched off, the time is not limited. Range: 1ms to 30d.
   * Default: 5m.
   */
  stall?: Duration | Off;
  /**
   * The objective for the time to first token, including the time in the queue. With it, the limit
   * is adaptive by default. For calls that do not stream, the objective bounds only the time in the
   * queue: the limit is not decreased because a whole answer takes longer. At most `deadline`.
   * Without it, there is no objective. Range: 1ms to 30d. Default: none.
   */
  ttft?: Duration | Off;
  /**
   * The objective for the time per output token, as the average of a call. Requires an adaptive
   * limit. At most `deadline`. Without it, there is no objective. Range: 1ms to 30d. Default: none.
   */
  tpot?: Duration | Off;
  /**
   * The time in the queue after which a call moves up one lane. A call that has moved up is
   * admitted before the calls of that lane. Such calls get at most an eighth of the capacity.
   * Range: 1ms to 30d. Default: 30s.
   */
  aging?: Duration;
  /**
   * The maximum prompt, in tokens. Calls whose prompt is certainly longer are rejected at once with
   * 413: images, audio and files count as nothing, and text that no tokenizer has counted as 7/10
   * of its estimate. Without it, prompts are not limited. Range: 1 to 1000000000000. Default: none.
   */
  max_prompt?: Count | Off;
  /**
   * When a call is rejected at once because of its predicted wait. `"deadline"`: Rejects calls
   * whose slot is predicted after their deadline or the end of their wait budget. `"objective"`: As
   * `deadline`. Also rejects calls whose slot is predicted too late for the TTFT objective of their
   * lane. `"off"`: Rejects no call because of a prediction. Default: deadline.
   */
  predict?: "deadline" | "objective" | "off";
  /**
   * The cost that fair queueing charges for a call. `"auto"`: The cost is that of `kv` for pools
   * and for targets with `kv_tokens`, otherwise that of `tokens`. `"tokens"`: The cost is the
   * number of input and output tokens. `"kv"`: The cost is the number of tokens in the engine's KV
   * memory, times the seconds for which the call holds them. `"calls"`: The cost of each call is 1.
   * Default: auto.
   */
  cost?: "auto" | "tokens" | "kv" | "calls";
  /**
   * How far shorter calls of a tenant are preferred: a call is ordered in the queue of its tenant
   * as if it had arrived later by this time per 1000 tokens. Without it, the length of a call does
   * not matter. Range: 1ms to 30d. Default: none.
   */
  short_bias?: Duration | Off;
  /**
   * Whether a call on a borrowed reserved slot is cancelled and queued again when the owner of the
   * reservation needs the slot. Calls that have produced a token are never cancelled. Default:
   * false.
   */
  reclaim?: boolean;
  /**
   * The size of the engine's KV memory in tokens; in a pool, that of each replica. A prefix that
   * several calls share is counted once at replicas that report prefix caching, and once per call
   * at other targets, where long shared prefixes can thus halve the goodput: use a pool, also for
   * one server. Without this key, the memory limits calls only if the engine reports its size. That
   * of a single server is then also corrected by its reported use, which includes other clients and
   * shared prefixes. Range: 1 to 1000000000000. Default: not known.
   */
  kv_tokens?: Count | Off;
  /**
   * The share of the KV memory that admitted calls must leave free. Range: 0 to 0.9. Default: 0.04.
   */
  kv_headroom?: number;
  /**
   * Whether the gate reads the metrics of the engine behind a single endpoint. Its queue then
   * bounds an adaptive limit, and the size of its KV memory is known without `kv_tokens`. `"auto"`:
   * Read `/metrics` while calls are made: of a `url` on this machine or in a private network, and
   * of other servers whose answers are those of vLLM, if they are in a private network or named by
   * `url`. No credentials are sent. `"off"`: Never. Default: auto.
   */
  metrics?: "auto" | "off";
  /**
   * How the tokens of a prompt are counted before the call is sent. `"learned"`: Estimates the
   * tokens from the length of the prompt, with a ratio that is learned from the provider's counts.
   * `"bpe"`: Counts exactly, with the encoding of OpenAI's models. Requires a build with the
   * feature `bpe`. `"vllm"`: Requests the count from `/tokenize` of the vLLM server. Default:
   * learned.
   */
  tokenizer?: "learned" | "bpe" | "vllm";
  /**
   * Whether the gate requests the token usage of streams if the caller does not, and then removes
   * it from the response. A server that does not know `stream_options` rejects the request, and the
   * caller receives its error (400). Default: false.
   */
  ask_usage?: boolean;
  /**
   * The name of a shared budget in `budgets`. The target then has no rates of its own. Without it,
   * the target has its own rates. Default: none.
   */
  budget?: string | Off;
  /**
   * The name of the target that receives the calls that this target rejects, or that find no
   * connection to it. The other target needs a single base URL, or all base URLs of this target. It
   * also needs a `model`, or all models of this target in its `models`. In `defaults`, this key
   * does not apply to the target that it names. A call that was sent and failed does not fall back,
   * unless its retry is rejected or finds no connection. Without `wait` or `on_full = "refuse"`,
   * calls wait for this target until their deadline, also in an outage. Calls that cannot fall back
   * (uploads, slots from `acquire_slot`, and calls over a client's own transport) are rejected
   * within `wait`, too. Without this key, the caller receives the rejection. Default: none.
   */
  fallback?: string | Off;
  /**
   * How failed attempts of a call are repeated. Default: attempts 4, base 500ms, max 30s, ratio 0.2
   * retries per call, reserve 10 retries.
   */
  retry?: RetryConfig;
  /**
   * The settings of the lanes `interactive`, `standard` and `batch`.
   */
  lanes?: Partial<Record<Lane, LaneConfig>>;
  /**
   * The settings of tenants that `tenants` does not name. Named tenants do not inherit them.
   * Default: weight 1, cap the target's, queue the target's, floor 0 of the slots, tpm none, shed
   * true.
   */
  default_tenant?: TenantConfig;
  /**
   * The settings of tenants by tenant id.
   */
  tenants?: Record<string, TenantConfig>;
}

/**
 * A replica of a pool.
 */
export interface ReplicaConfig {
  /**
   * The base URL of the replica, with or without `/v1`.
   */
  url: string;
  /**
   * The models that the replica serves, by their full names. Default: requested from the replica
   * (`/v1/models`).
   */
  models?: string | string[];
  /**
   * The replica's share of the calls, relative to the weights of the others. Range: 0.01 to 100.
   * Default: 1.
   */
  weight?: number;
  /**
   * The number of tokens that the replica's KV memory holds. Range: 1 to 1000000000000. Default:
   * the target's, otherwise requested from the replica.
   */
  kv_tokens?: Count | Off;
}

/**
 * A pool of replicas of one target. Clients call the pool at `http://NAME/v1`, where NAME is the
 * name of the target. One of `replicas`, `dns` and `file` lists the replicas; without any of them
 * the program sets them (`set_replicas`). A pool has at most 128 replicas. If a file or DNS lists
 * more, the first 128 are used.
 */
export interface PoolConfig {
  /**
   * The list of replicas, each a base URL with or without `/v1`, or a table. 1 to 128 replicas.
   * Default: none.
   */
  replicas?: (string | ReplicaConfig)[];
  /**
   * A URL with scheme `http`, host and port, such as `"http://vllm.internal:8000"`. Each IP address
   * of the host is a replica. Default: none.
   */
  dns?: string;
  /**
   * The time between two lookups of `dns`, while calls are made. If a lookup fails, the replicas
   * stay as they are. Range: 1s to 1h. Default: 5s.
   */
  dns_every?: Duration;
  /**
   * The path of a file that lists the replicas: TOML or JSON with `replicas`, a JSON list, or one
   * URL per line, beside blank lines and `#` comments. It must be a regular file of at most 1 MiB.
   * New content is used when two reads 50 ms apart agree. If the file cannot be read, the replicas
   * stay as they are. Default: none.
   */
  file?: string;
  /**
   * The time between two reads of `file`, while calls are made. Range: 100ms to 1h. Default: 1s.
   */
  file_every?: Duration;
  /**
   * The environment variable with the API key for requests to `/v1/models` of the replicas. Calls
   * are sent with the key of the caller. Default: none.
   */
  key_env?: string;
  /**
   * The maximum number of slots of each replica. It is the limit itself if the limit is fixed, and
   * its upper bound if the limit is adaptive. Range: 1 to 65536. Default: 256.
   */
  cap?: number;
  /**
   * The path that is requested to check the health of a replica. A replica is healthy if the
   * response is not a 5xx. Switched off, only calls show whether a replica is healthy. Default:
   * /health (none: not requested).
   */
  health?: string | Off;
  /**
   * The time between two requests for a replica's metrics (`/metrics`), while calls are sent to the
   * replica. Range: 50ms to 1m. Default: 1s (none: not requested).
   */
  poll?: Duration | Off;
  /**
   * The time without a response after which a replica is down. Its calls that have not produced a
   * token are then sent to other replicas. Before that time, only new calls avoid a replica that
   * does not respond. Range: 100ms to 5m. Default: 2s.
   */
  down_after?: Duration;
  /**
   * The time without a chunk after which a stream from a replica that is down ends as truncated.
   * Range: 100ms to 1h. Default: 10s.
   */
  cut_after?: Duration;
  /**
   * The time over which the share of the calls of a replica that joins or recovers increases to its
   * full share. Range: 1ms to 1h. Default: 10s (none: full share at once).
   */
  slow_start?: Duration | Off;
  /**
   * The request header with the id of a session. The calls of a session are sent to the same
   * replica, unless its load is too high. Switched off, calls have no session. Default:
   * x-session-id.
   */
  session?: string | Off;
  /**
   * Whether calls whose prompts have a common start are sent to the same replica, unless its load
   * is too high. Default: true.
   */
  affinity?: boolean;
  /**
   * The time without a first token after which a call is also sent to another replica. The first
   * response is used, and the other attempt is cancelled. The second attempt is charged to the
   * retry budget. Only for streams, in mode `enforce`, and never for clients that keep their own
   * transport. Without it, no call is sent twice at the same time. Range: 50ms to 5m. Default:
   * none.
   */
  hedge?: Duration | Off;
}

/**
 * Which requests are sent to a target, and how calls that fall back to it are sent.
 */
export interface TargetConfig extends TargetSettings {
  /**
   * The base URLs of the target: it takes the requests to them and to all paths below them.
   * `"none"`: the target takes no requests, and its slots are acquired by name (`gate.slot`).
   * Default: of well-known providers and pools, their own; otherwise every URL.
   */
  url?: string | string[];
  /**
   * The models whose requests the target takes. `*` matches any text. Default: every model.
   */
  models?: string | string[];
  /**
   * The model that is requested for calls that fall back to this target. Also used by `tidegate
   * sweep`. Default: the only name in `models`, if it has no `*`; otherwise the model that the
   * caller requested.
   */
  model?: string;
  /**
   * The name of the environment variable with the credential for calls that fall back to this
   * target, never the credential itself. Without it, the credential of the caller is sent if
   * scheme, host and port are the same, and otherwise only if `forward_headers` lists its header.
   * Also used by `tidegate run` and `tidegate sweep`. Default: none.
   */
  key_env?: string;
  /**
   * The request headers of the caller that are forwarded, in addition to the standard ones, with
   * calls that fall back to this target on another server or with `key_env`. Default: none.
   */
  forward_headers?: string | string[];
  /**
   * The replicas of a target that is not a single endpoint: a table, or a list of replicas.
   * Default: none.
   */
  pool?: PoolConfig | (string | ReplicaConfig)[];
}

/**
 * A tool: a named resource that is not a model, with a cap of its own.
 */
export interface ToolConfig {
  /**
   * How many of the slots that `cap` allows are in force. Default: fixed; adaptive with a
   * `latency`.
   */
  limit?: Limit;
  /**
   * The maximum number of slots. Range: 1 to 65536.
   */
  cap: number;
  /**
   * The objective for the duration of a call. With it, the limit is adaptive by default. Without
   * it, there is no objective. Range: 1ms to 30d. Default: none.
   */
  latency?: Duration | Off;
  /**
   * The maximum number of queued calls per tenant. Further calls are rejected. Range: 0 to 1000000.
   * Default: 10,000.
   */
  queue?: number;
  /**
   * The maximum time of a call in the queue. Cannot be combined with `on_full = "refuse"`. Without
   * it, the deadline of the call's context limits the time, or 24 h without one. Range: 1ms to 30d.
   * Default: none.
   */
  wait?: Duration | Off;
  /**
   * What happens to a call that finds no free slot. `"wait"`: The call is queued. It fails with 504
   * when its wait budget runs out. `"refuse"`: The call is rejected at once with 429. A target also
   * rejects each call during a cool-down (429) or an outage (503), and while no replica of a pool
   * accepts calls. Default: wait.
   */
  on_full?: "wait" | "refuse";
  /**
   * The maximum number of calls per second. Without it and `rpm`, the rate is not limited. Range:
   * 0.001 to 1000000. Default: none.
   */
  rps?: number | Off;
  /**
   * The maximum number of calls per minute. Cannot be combined with `rps`. Without both, the rate
   * is not limited. Range: 1 to 1000000000. Default: none.
   */
  rpm?: Count | Off;
}

/**
 * Which processes share the caps of targets and tools.
 */
export interface ShareConfig {
  /**
   * The environment variable with the password of the server. Default: none.
   */
  password_env?: string;
  /**
   * Where the shared state is stored, which determines the processes that share caps: `"auto"` (in
   * Python, the children that a process with a gate forks), `"off"` (none: each has the whole
   * caps), `"local"` (processes of the same user on this machine), or the URL of a Redis or Valkey
   * server of version 7 or newer, such as `"redis://host:6379/0"`. `rediss` uses TLS. A user in the
   * URL requires `password_env`. A cluster and Sentinels have several addresses:
   * `"redis://a:6379,b:6379"`. Default: auto.
   */
  store?: "auto" | "off" | "local" | `${"redis" | "rediss" | "valkey" | "valkeys"}://${string}`;
  /**
   * The name of the group: only processes with the same name share caps. It becomes part of a file
   * name. Default: default.
   */
  name?: string;
  /**
   * Whether a process admits no calls if the store is lost for longer than a lease. By default, it
   * then uses each cap divided by the last known number of processes. Default: false.
   */
  strict?: boolean;
  /**
   * Whether the server is a Redis or Valkey Cluster. Default: false.
   */
  cluster?: boolean;
  /**
   * The name under which Sentinels know the primary. The addresses of `store` are those of the
   * Sentinels, without a password. Default: none.
   */
  sentinel?: string | Off;
}

/**
 * The settings of the connections to all targets.
 */
export interface TransportConfig {
  /**
   * The maximum time to open a connection. Range: 1ms to 30d. Default: 10s.
   */
  connect?: Duration;
  /**
   * Whether proxies are read from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`: in
   * Python by the rules of httpx or httpx2, in Node by those of undici, otherwise by those of the
   * Rust crate. Default: true.
   */
  proxy_from_env?: boolean;
  /**
   * The maximum number of idle connections that are kept per host. Range: 0 to 65536. Default: 256.
   */
  pool_idle?: number;
  /**
   * The time after which an idle connection is closed. Range: 1ms to 30d. Default: 1m 30s.
   */
  pool_idle_timeout?: Duration;
  /**
   * The maximum number of concurrent streams on an HTTP/2 connection, if the server does not allow
   * fewer. For more, another connection is opened. The default is below 100, the usual limit of
   * servers. Range: 1 to 10000. Default: 90.
   */
  http2_streams?: number;
  /**
   * Whether `http://` URLs use HTTP/2 without TLS (h2c with prior knowledge). Requests that an HTTP
   * proxy forwards use HTTP/1.1. Default: false.
   */
  http2_prior_knowledge?: boolean;
}

/**
 * The configuration of a gate, with defaults filled in and every value in its range.
 */
export interface Config {
  /**
   * The settings that apply to each target that does not set them itself, and to targets that are
   * not configured.
   */
  defaults?: TargetSettings;
  /**
   * The targets by name: a table, or only the cap. A request is sent to the first target that
   * matches it, in the order of the file.
   */
  targets?: Record<string, number | TargetConfig>;
  /**
   * The tenants of all targets by name. The keys of a tenant in `defaults.tenants` replace those
   * given here, and the keys in `targets.NAME.tenants` replace both.
   */
  tenants?: Record<string, TenantConfig>;
  /**
   * The tools by name: a table, or only the cap.
   */
  tools?: Record<string, number | ToolConfig>;
  /**
   * Whether processes share the caps of targets and tools that have the same names: a table, or
   * only its `store`. With `"local"`, all processes of the same user on this machine with the same
   * `name` share them, and with the URL of a Redis or Valkey server all processes that use it.
   * Default: auto.
   */
  share?: "auto" | "off" | "local" | `${"redis" | "rediss" | "valkey" | "valkeys"}://${string}` | ShareConfig;
  /**
   * Whether the gate acts on calls, only measures them, or is off. The environment variable
   * `TIDEGATE` (`on`, `observe` or `off`) overrides this key. `"enforce"`: Limits, queues, rejects
   * and retries calls. `"observe"`: Measures and records what it would have done, but delays,
   * rejects and retries no call. `"off"`: Hands every call straight to the transport. Default:
   * enforce.
   */
  mode?: "enforce" | "observe" | "off";
  /**
   * The settings of the connections to all targets. Default: connect 10s, proxy_from_env true,
   * pool_idle 256 connections per host, pool_idle_timeout 1m 30s, http2_streams 90 streams per
   * connection, http2_prior_knowledge false.
   */
  transport?: TransportConfig;
  /**
   * Rates that several targets share, by name. A target shares the one that its `budget` names.
   */
  budgets?: Record<string, RateConfig>;
}
