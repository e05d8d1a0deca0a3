//! What a gate is configured with, after defaults were filled in and everything was checked.
//!
//! These are plain values: units are in the types (`Duration`), ranges are enforced where a file, a dict or a builder is
//! turned into them ([`super::parse`]), so the rest of the core never meets an impossible setting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use super::limit::{AdaptiveConfig, LimitConfig};
use super::pool::PoolConfig;

/// Whether the gate acts, only measures, or stands aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Decides and acts (the default).
    #[default]
    Enforce,
    /// Measures and says what it would have done, changing nothing: no call waits, is refused or is retried.
    Observe,
    /// Hands every call straight to the transport. Set by `TIDEGATE=off` as well.
    Off,
}

/// What a target does with a call that finds no free slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// Queue it; when its wait budget runs out, fail with 504 (the default).
    #[default]
    Wait,
    /// Refuse at once with 429.
    Refuse,
}

/// The whole configuration of a gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// See [`Mode`]. Default: enforce.
    pub mode: Mode,
    /// Targets in the order of the file: the first that matches a request takes it.
    pub targets: Vec<TargetConfig>,
    /// What a target that nobody configured gets (one for each origin, credential and model seen).
    pub default_target: TargetConfig,
    /// Named tools.
    pub tools: BTreeMap<String, ToolConfig>,
    /// Rates that several targets share, by name.
    pub budgets: BTreeMap<Arc<str>, RateConfig>,
    /// Connection settings shared by every target.
    pub transport: TransportConfig,
}

/// One target: something with a capacity of its own that model calls go to.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetConfig {
    /// The name in metrics, errors and snapshots.
    pub name: Arc<str>,
    /// Which requests are this target's.
    pub matches: TargetMatch,
    /// The most slots (1 to 65,536). Default 256; of a pool, where it bounds all replicas together, 65,536.
    pub cap: usize,
    /// How many of them are in force. Default: the adaptive limit, but for a target that names a `cap` and no `ttft`, of a lane neither, or
    /// whose slots are held by hand alone: all of them. Of a pool it is each replica's, up to the pool's `cap`, which takes the place of the target's in this
    /// rule.
    pub limit: LimitConfig,
    /// The TPOT objective of the adaptive limit: the longest between two tokens, on average over a call. Default: none; always so where the limit is
    /// fixed.
    pub tpot: Option<Duration>,
    /// The most calls that may wait, per tenant (0 to 1,000,000). Default 10,000.
    pub queue: usize,
    /// The wait budget: the longest a call may wait while the target is open, all its attempts together. Default: none (the deadline bounds it).
    pub wait: Option<Duration>,
    /// Default: [`OnFull::Wait`].
    pub on_full: OnFull,
    /// The longest a whole call may take, waiting, retries and stream included. Default 600 s, or the client's own read timeout if longer.
    pub deadline: Duration,
    /// The longest from sending an attempt to its first token, of calls that stream. Default: none but the client's own read timeout.
    pub first_token: Option<Duration>,
    /// The longest silence between chunks while the reader asks for one. Default: none but the client's own read timeout.
    pub idle: Option<Duration>,
    /// How long a reader may leave a chunk unasked-for before it loses its slot. Default 300 s.
    pub stall: Option<Duration>,
    /// The TTFT objective: what goodput counts against, and the adaptive limit keeps to. Default: none.
    pub ttft: Option<Duration>,
    /// The time of waiting that raises a call's lane by one: it then goes before that one for an eighth of the capacity. Default 30 s.
    pub aging: Duration,
    /// See [`RetryConfig`].
    pub retry: RetryConfig,
    /// The most calls that may wait, of all tenants together (0 to 1,000,000). Default 100,000.
    pub backlog: usize,
    /// What a lane has to itself, in the order of [`Lane::ALL`](super::Lane::ALL).
    pub lanes: [LaneConfig; 3],
    /// What a call is charged in fair queueing. Default: [`CostRule::Auto`].
    pub cost: CostRule,
    /// By how much later a call of a thousand tokens stands in its own tenant's queue. Default: not at all.
    pub short_bias: Option<Duration>,
    /// Whether a call that was lent another's floor, and has no answer yet, is called back when the other wants it. Default: no.
    pub reclaim: bool,
    /// When a call is refused because it would wait too long. Default: [`Predict::Deadline`].
    pub predict: Predict,
    /// The longest prompt, in estimated tokens. Default: none.
    pub max_prompt: Option<u64>,
    /// The provider's rates.
    pub rates: RateConfig,
    /// The name of the budgets that its rates are part of, where several targets share them. Default: its own.
    pub budget: Option<Arc<str>>,
    /// Tokens that the engine's memory for keys and values holds. Default: not known, and so not bounded.
    pub kv_tokens: Option<u64>,
    /// The share of it that is kept free (0 to 0.9). Default 0.1.
    pub kv_headroom: f64,
    /// How prompts are counted. Default: [`Tokenizer::Learned`].
    pub tokenizer: Tokenizer,
    /// Whether streams are asked to report their usage where the caller did not ask. Default: no.
    pub ask_usage: bool,
    /// Its replicas, where it is a pool. Default: none: it is one endpoint.
    pub pool: Option<PoolConfig>,
    /// The target that takes what this one refuses. Default: none.
    pub fallback: Option<Arc<str>>,
    /// The model that calls ask for which come here by a fallback. Default: the only name in `models`.
    pub model: Option<Arc<str>>,
    /// The environment variable with the credential of calls that come here by a fallback; they
    /// have no other then. Default: the caller's own goes along where protocol, host and port are
    /// the same, and nowhere else, unless `forward_headers` names its header.
    pub key_env: Option<Arc<str>>,
    /// Caller headers that this target receives, beside the [standard
    /// allowlist](crate::config#fallbacks), when a call falls back to it on another server or with
    /// `key_env`. Default: none.
    pub forward_headers: Vec<HeaderName>,
    /// What tenants that are not named get.
    pub default_tenant: TenantConfig,
    /// Named tenants.
    pub tenants: BTreeMap<Arc<str>, TenantConfig>,
}

/// Which requests belong to a target. An empty list matches everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetMatch {
    /// Base URLs: scheme, host, port, and a path prefix (`https://api.openai.com/v1`).
    pub urls: Vec<String>,
    /// Model names, `*` standing for any run of characters (`gpt-4o*`).
    pub models: Vec<String>,
    /// No request at all (`url = "none"`): its slots are held by `Gate::acquire_slot` alone.
    pub slots_only: bool,
}

/// A tenant's share of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantConfig {
    /// Its weight in fair queueing (0.001 to 1,000,000). Default 1.
    pub weight: f64,
    /// The most slots it may hold. Default: none of its own (the target's).
    pub cap: Option<usize>,
    /// The most of its calls that may wait. Default: the target's `queue`.
    pub queue: Option<usize>,
    /// The share of the slots in force that is its own whenever it wants them (0 to 1). Default 0.
    pub floor: f64,
    /// Tokens that it may take a minute. What it takes beyond them is owed, and kept back later. Default: none of its own.
    pub tpm: Option<u64>,
    /// Whether its waiting calls may be refused to make room for more urgent ones. Default: yes.
    pub shed: bool,
}

/// What a lane has to itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaneConfig {
    /// The share of the slots in force that is its own whenever it wants them (0 to 1). Default 0.
    pub floor: f64,
    /// The most of its calls that may wait, of all tenants together. Default: none of its own.
    pub queue: Option<usize>,
    /// The wait budget of its calls. Default: the target's.
    pub wait: Option<Duration>,
    /// Its TTFT objective. Default: the target's.
    pub ttft: Option<Duration>,
}

/// What a call is charged in fair queueing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CostRule {
    /// Memory times time for pools and where `kv_tokens` is configured, tokens otherwise (the default).
    #[default]
    Auto,
    /// Input and output tokens.
    Tokens,
    /// Tokens held in the engine's memory times the seconds they are held.
    Kv,
    /// One for each call.
    Calls,
}

/// When a call is refused because it would wait too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Predict {
    /// When its slot is predicted to come after its deadline or wait budget (the default).
    #[default]
    Deadline,
    /// Also when it is predicted to come after its lane's TTFT objective.
    Objective,
    /// Never.
    Off,
}

/// How prompts are counted before they are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tokenizer {
    /// By their length, and a ratio learned from what the provider counted (the default).
    #[default]
    Learned,
    /// Exactly, as OpenAI's models do (feature `bpe`).
    Bpe,
    /// By asking the vLLM server's `/tokenize`.
    Vllm,
}

/// The rates that a provider allows. What is absent is not bounded until a response's headers speak of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RateConfig {
    /// Requests a minute.
    pub rpm: Option<u64>,
    /// Requests a day.
    pub rpd: Option<u64>,
    /// Tokens a minute, input and output together.
    pub tpm: Option<u64>,
    /// Tokens a day.
    pub tpd: Option<u64>,
    /// Input tokens a minute, where they are counted apart.
    pub itpm: Option<u64>,
    /// Output tokens a minute, where they are counted apart.
    pub otpm: Option<u64>,
    /// How much of a rate may go out at once, as time (100 ms to 60 s). Default 6 s: a tenth of a minute's.
    pub burst: Duration,
    /// How a call is counted. Default: [`Counting::Auto`].
    pub counting: Counting,
    /// What the provider's rate headers may do. Default: [`HeaderPolicy::Follow`].
    pub headers: HeaderPolicy,
}

/// How a provider counts a call against its budget of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// By the dialect, and by what its headers show (the default).
    #[default]
    Auto,
    /// Input and the most output allowed, at arrival.
    Sum,
    /// The larger of the two, at arrival.
    Larger,
    /// Input at arrival and output as it is produced: what was really used, in the end.
    Actual,
    /// Input only.
    Input,
}

/// What a provider's rate headers may do to the budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderPolicy {
    /// Set them, up or down (the default).
    #[default]
    Follow,
    /// Lower them only: a configured rate is a ceiling.
    Lower,
    /// Nothing.
    Ignore,
}

/// How attempts follow each other.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryConfig {
    /// The most attempts of one call, the first included (1 to 100). Default 4.
    pub attempts: u32,
    /// The first backoff's upper bound; it doubles with each attempt (full jitter). Default 500 ms.
    pub base: Duration,
    /// The longest backoff. Default 30 s. A provider's Retry-After is a floor and may exceed it.
    pub max: Duration,
    /// The retry budget: retries earned per call made in the last 10 s (0 to 10). Default 0.2.
    pub ratio: f64,
    /// The retry budget's small reserve, in retries (0 to 10,000). Default 10.
    pub reserve: u32,
}

/// A tool: a named non-model resource with a cap of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolConfig {
    /// The most slots (1 to 65,536). No default: a tool is named in order to be capped.
    pub cap: usize,
    /// How many of them are in force. Default: all; adaptive where a `latency` is given.
    pub limit: LimitConfig,
    /// The latency objective of its calls: what the adaptive limit keeps to. Default: none.
    pub latency: Option<Duration>,
    /// The most calls that may wait, per tenant. Default 10,000.
    pub queue: usize,
    /// The longest a call may wait. Default: none.
    pub wait: Option<Duration>,
    /// Default: [`OnFull::Wait`].
    pub on_full: OnFull,
    /// Calls a second. Default: no rate of its own.
    pub rps: Option<f64>,
    /// Calls a minute. Default: no rate of its own.
    pub rpm: Option<u64>,
}

/// Connections, shared by every target.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportConfig {
    /// The longest a connection may take to open. Default 10 s.
    pub connect: Duration,
    /// Take proxies from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`. Default true.
    pub proxy_from_env: bool,
    /// Idle connections kept per host. Default 256.
    pub pool_idle: usize,
    /// How long an idle connection is kept. Default 90 s.
    pub pool_idle_timeout: Duration,
    /// Open another HTTP/2 connection once this many streams share one (1 to 10,000). Default 90, below the usual peer limit of 100.
    pub http2_streams: usize,
    /// Speak HTTP/2 without TLS to `http://` URLs (h2c with prior knowledge). Default false.
    pub http2_prior_knowledge: bool,
}

/// The deadline of a target that sets none.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(600);

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            targets: Vec::new(),
            default_target: TargetConfig::new("default"),
            tools: BTreeMap::new(),
            budgets: BTreeMap::new(),
            transport: TransportConfig::default(),
        }
    }
}

impl TargetConfig {
    /// A target with every default, matching everything.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            matches: TargetMatch::default(),
            cap: 256,
            limit: LimitConfig::Adaptive(AdaptiveConfig::default()),
            tpot: None,
            queue: 10_000,
            wait: None,
            on_full: OnFull::Wait,
            deadline: DEFAULT_DEADLINE,
            first_token: None,
            idle: None,
            stall: Some(Duration::from_secs(300)),
            ttft: None,
            aging: Duration::from_secs(30),
            retry: RetryConfig::default(),
            backlog: 100_000,
            lanes: Default::default(),
            cost: CostRule::Auto,
            short_bias: None,
            reclaim: false,
            predict: Predict::Deadline,
            max_prompt: None,
            rates: RateConfig::default(),
            budget: None,
            kv_tokens: None,
            kv_headroom: 0.1,
            tokenizer: Tokenizer::Learned,
            ask_usage: false,
            pool: None,
            fallback: None,
            model: None,
            key_env: None,
            forward_headers: Vec::new(),
            default_tenant: TenantConfig::default(),
            tenants: BTreeMap::new(),
        }
    }
}

impl Default for TenantConfig {
    fn default() -> Self {
        Self { weight: 1.0, cap: None, queue: None, floor: 0.0, tpm: None, shed: true }
    }
}

impl Default for RateConfig {
    fn default() -> Self {
        Self {
            rpm: None,
            rpd: None,
            tpm: None,
            tpd: None,
            itpm: None,
            otpm: None,
            burst: Duration::from_secs(6),
            counting: Counting::Auto,
            headers: HeaderPolicy::Follow,
        }
    }
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            attempts: 4,
            base: Duration::from_millis(500),
            max: Duration::from_secs(30),
            ratio: 0.2,
            reserve: 10,
        }
    }
}

impl ToolConfig {
    /// A tool with this cap and every default.
    pub fn with_cap(cap: usize) -> Self {
        Self {
            cap,
            limit: LimitConfig::Fixed,
            latency: None,
            queue: 10_000,
            wait: None,
            on_full: OnFull::Wait,
            rps: None,
            rpm: None,
        }
    }
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            proxy_from_env: true,
            pool_idle: 256,
            pool_idle_timeout: Duration::from_secs(90),
            http2_streams: 90,
            http2_prior_knowledge: false,
        }
    }
}
