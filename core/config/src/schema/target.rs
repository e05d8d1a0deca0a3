//! The keys of targets, and of their rates, retries, tenants and lanes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

#[cfg(test)]
use super::Kind;
use super::{
    AdaptiveConfig, BUDGET_NAME, CAP_RANGE, CostRule, Counting, EngineMetricsPolicy, Given, HeaderPolicy,
    LimitConfig, Lines, OnFull, PoolConfig, Predict, QUEUE_RANGE, REQUEST_RANGE, Setting, TARGET_NAME,
    TIME_RANGE, TOKEN_RANGE, Table, Text, Tokenizer, join, millis, secs,
};
use crate::Lane;

builders! {
    /// Builds the settings of retries, for [`Target::retry`].
    Retry;
    /// Builds the settings of a tenant, for [`Target::tenant`] and
    /// [`ConfigBuilder::tenant`](crate::ConfigBuilder::tenant).
    Tenant;
    /// Builds the settings of a lane of a target, for [`Target::lane`].
    LaneSettings;
    /// Builds rates that several targets share, for
    /// [`ConfigBuilder::budget`](crate::ConfigBuilder::budget).
    Budget;
}

/// Builds a target, for [`ConfigBuilder::target`](crate::ConfigBuilder::target).
#[derive(Clone)]
pub struct Target {
    pub(crate) name: String,
    pub(crate) keys: Table,
}

impl Target {
    /// Creates a target of this name. If the name is that of a well-known provider, such as
    /// `openai`, the base URLs are those of the provider by default.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), keys: Table::default() }
    }
}

settings!(@keys Target);

settings! {
    /// How failed attempts of a call are repeated.
    pub struct RetryConfig, table RETRY "RetryConfig", builders [Retry];
    check check_backoff;
    keys {
        /// The maximum number of attempts of a call, including the first.
        attempts: u32 = 4, 1..=100;
        /// The upper bound of the first backoff, at most `max`. The bound doubles with each
        /// attempt, and the backoff is uniform between 0 and the bound.
        base: Duration = millis(500), TIME_RANGE;
        /// The maximum of the upper bound of a backoff. If the provider sends Retry-After, the
        /// backoff is at least that long, even above `max`.
        max: Duration = secs(30), TIME_RANGE;
        /// The retry budget: the number of retries allowed per call of the last 10 s.
        ratio: f64 "retries per call" = 0.2, 0.0..=10.0;
        /// The retry budget: the number of retries allowed in addition, regardless of the calls.
        /// Processes that share the target divide it, and each has at least one of them unless it
        /// is 0.
        reserve: u32 "retries" = 10, 0..=10_000;
    }
}

/// Reports a `base` above `max`.
fn check_backoff(retry: &RetryConfig, given: &Given<'_>) {
    given.reject_above(("base", &retry.base), ("max", &retry.max));
}

settings! {
    /// The settings of a tenant at one target, or at all targets.
    pub struct TenantConfig, table TENANT "TenantConfig", builders [Tenant];
    keys {
        // A weight near 0 would make the virtual start times of fair queueing overflow.
        /// The weight of the tenant in fair queueing. If both have queued calls, a tenant with
        /// weight 2 gets twice the capacity of one with weight 1.
        weight: f64 = 1.0, 0.001..=1e6;
        /// The maximum number of slots that the tenant uses at a time. A value above the target's
        /// `cap` has no effect.
        cap: Option<usize> "slots" = None, CAP_RANGE => "the target's";
        /// The maximum number of queued calls of the tenant.
        queue: Option<usize> "calls" = None, QUEUE_RANGE => "the target's";
        /// The share of the slots in force that is reserved for the tenant. Others may borrow the
        /// reserved slots that the tenant does not use. Not allowed for `default_tenant`.
        floor: f64 "of the slots" = 0.0, 0.0..=1.0;
        /// The tokens per minute that the tenant may use. If a call uses more than was reserved,
        /// later calls of the tenant are delayed accordingly. Unlimited if not set.
        tpm: Option<u64> "tokens per minute" = None, TOKEN_RANGE;
        /// Whether the tenant's queued calls may be rejected to make room for more urgent ones in a
        /// full queue.
        shed: bool = true, ();
    }
}

settings! {
    /// The settings of one lane (priority class) at a target.
    pub struct LaneConfig, table LANE "LaneConfig", builders [LaneSettings];
    keys {
        /// The share of the slots in force that is reserved for the lane. Other lanes may borrow
        /// the reserved slots that the lane does not use.
        floor: f64 "of the slots" = 0.0, 0.0..=1.0;
        /// The maximum number of queued calls of the lane, of all tenants together. Without it,
        /// only the limits of the target apply.
        queue: Option<usize> "calls" = None, QUEUE_RANGE;
        /// The maximum time in the queue of a call of the lane, at most `deadline`.
        wait: Option<Duration> = None, TIME_RANGE => "the target's";
        /// The objective for the time to first token of the lane's calls, at most `deadline`.
        ttft: Option<Duration> = None, TIME_RANGE => "the target's";
    }
}

settings! {
    /// The rates that a provider allows, for a target or for a budget that several targets share. A
    /// rate that is not set is unlimited, until the headers of a response report one. Headers
    /// change no rate of a budget that several targets use. With `share`, only processes that set
    /// the same rates share them: one with `rpm` and one with `rpm` and `tpm` share neither.
    pub struct RateConfig, table RATES "RateConfig", builders [Budget, Target];
    keys {
        /// The maximum number of requests per minute. Unlimited if not set.
        rpm: Option<u64> "requests per minute" = None, REQUEST_RANGE;
        /// The maximum number of requests per day. Unlimited if not set.
        rpd: Option<u64> "requests per day" = None, REQUEST_RANGE;
        /// The maximum number of tokens per minute, input and output together. Unlimited if not
        /// set.
        tpm: Option<u64> "tokens per minute" = None, TOKEN_RANGE;
        /// The maximum number of tokens per day, input and output together. Unlimited if not set.
        tpd: Option<u64> "tokens per day" = None, TOKEN_RANGE;
        /// The maximum number of input tokens per minute, for providers that count input and output
        /// separately. Unlimited if not set.
        itpm: Option<u64> "input tokens per minute" = None, TOKEN_RANGE;
        /// The maximum number of output tokens per minute, for providers that count input and
        /// output separately. Unlimited if not set.
        otpm: Option<u64> "output tokens per minute" = None, TOKEN_RANGE;
        /// The part of a rate that may be used at once, as a time: 6 s allow a tenth of a rate per
        /// minute at once.
        burst: Duration = secs(6), millis(100)..=secs(60);
        /// How the provider counts a call against its token rates.
        counting: Counting = Counting::Auto, ();
        /// What the provider's rate headers may change.
        headers: HeaderPolicy = HeaderPolicy::Follow, ();
    }
}

impl RateConfig {
    /// Returns `true` if any rate is set.
    pub fn is_limited(&self) -> bool {
        [self.rpm, self.rpd, self.tpm, self.tpd, self.itpm, self.otpm].iter().any(Option::is_some)
    }
}

/// The default of `deadline`, the maximum time of a call: 10 minutes.
pub const DEFAULT_DEADLINE: Duration = secs(600);

/// The settings of tenants by tenant id.
pub(crate) type Tenants = BTreeMap<Arc<str>, TenantConfig>;
/// The settings of the lanes, in the order of [`Lane::ALL`].
pub(crate) type Lanes = [LaneConfig; 3];

settings! {
    /// The settings of a target. Each of them can also be set in `defaults`.
    pub struct TargetConfig, table SETTINGS "TargetSettings", builders [Target];
    fields {
        /// The name of the target in metrics, errors and snapshots.
        name: Arc<str> = "default".into();
        /// Which requests are sent to the target.
        matches: TargetMatch = TargetMatch::default();
        /// Whether the number of slots in force always equals the cap, or is adapted by the gate,
        /// up to the cap. In a pool, each replica has such a limit.
        limit: LimitConfig = LimitConfig::Adaptive(AdaptiveConfig::default());
        /// The rates that the provider allows. Not used by targets with a `budget`.
        rates: RateConfig = RateConfig::default();
        /// The pool of replicas. `None`: the target is a single endpoint.
        pool: Option<PoolConfig> = None;
        /// The model that is requested for calls that fall back to this target. Also used by
        /// `tidegate sweep`. `None`: the model that the caller requested.
        model: Option<Arc<str>> = None;
        /// The environment variable with the credential for calls that fall back to this target.
        /// `None`: the credential of the caller is sent if scheme, host and port are the same, and
        /// otherwise only if `forward_headers` lists its header. Also used by `tidegate run` and
        /// `tidegate sweep`.
        key_env: Option<Arc<str>> = None;
        /// The request headers of the caller that are forwarded, in addition to the standard ones,
        /// with calls that fall back to this target on another server or with `key_env`.
        forward_headers: Vec<HeaderName> = Vec::new();
    }
    keys {
        /// The maximum number of calls in flight. A fixed limit equals the cap, and an adaptive
        /// limit is at most the cap. For pools, the cap applies to all replicas together.
        cap: usize "slots" = 256, CAP_RANGE => "256; for pools 65536";
        /// The maximum number of queued calls per tenant. Further calls are rejected.
        queue: usize "calls per tenant" = 10_000, QUEUE_RANGE;
        /// The maximum number of queued calls of all tenants together. Further calls are rejected.
        backlog: usize "calls of all tenants" = 100_000, QUEUE_RANGE;
        /// The maximum time of a call in the queue, over all its attempts (the wait budget). Times
        /// in which the target is closed (in a cool-down or an outage, or without a replica that
        /// accepts calls) count only if the target has a `fallback`. At most `deadline`. Without
        /// it, a call with an objective (`ttft`) waits only as long as it can still meet the
        /// objective. Calls of the lane `batch` do so only if the lane has a `ttft` of its own.
        wait: Option<Duration> = None, TIME_RANGE => "what `ttft` leaves, otherwise the deadline";
        /// What happens to a call that finds no free slot. Retries of a call that was admitted are
        /// queued in either case, at most for `wait`, except with `"refuse"` and a `fallback`.
        on_full: OnFull = OnFull::Wait, ();
        /// The maximum time of a call, including its wait, retries and stream. The context of a
        /// call can only shorten it.
        deadline: Duration = DEFAULT_DEADLINE, TIME_RANGE => "10m, or the client's read timeout if that is longer";
        /// The maximum time from the start of an attempt to its first token, for streams. At most
        /// `deadline`.
        first_token: Option<Duration> = None, TIME_RANGE => "the client's read timeout";
        /// The maximum time between two chunks of a response.
        idle: Option<Duration> = None, TIME_RANGE => "the client's read timeout";
        /// The maximum time for which the reader of a response may leave a chunk unread. After that
        /// time the slot of the call is released. Switched off, the time is not limited.
        stall: Option<Duration> = Some(secs(300)), TIME_RANGE;
        /// The objective for the time to first token, including the time in the queue. With it, the
        /// limit is adaptive by default. For calls that do not stream, the objective bounds only
        /// the time in the queue: the limit is not decreased because a whole answer takes longer.
        /// At most `deadline`. Without it, there is no objective.
        ttft: Option<Duration> = None, TIME_RANGE;
        /// The objective for the time per output token, as the average of a call. Requires an
        /// adaptive limit. At most `deadline`. Without it, there is no objective.
        tpot: Option<Duration> = None, TIME_RANGE;
        /// The time in the queue after which a call moves up one lane. A call that has moved up is
        /// admitted before the calls of that lane. Such calls get at most an eighth of the
        /// capacity.
        aging: Duration "per lane" = secs(30), TIME_RANGE;
        /// The maximum prompt, in tokens. Calls whose prompt is certainly longer are rejected at
        /// once with 413: images, audio and files count as nothing, and text that no tokenizer has
        /// counted as 7/10 of its estimate. Without it, prompts are not limited.
        max_prompt: Option<u64> "tokens" = None, TOKEN_RANGE;
        /// When a call is rejected at once because of its predicted wait.
        predict: Predict = Predict::Deadline, ();
        /// The cost that fair queueing charges for a call.
        cost: CostRule = CostRule::Auto, ();
        /// How far shorter calls of a tenant are preferred: a call is ordered in the queue of its
        /// tenant as if it had arrived later by this time per 1000 tokens. Without it, the length
        /// of a call does not matter.
        short_bias: Option<Duration> "per 1000 tokens" = None, TIME_RANGE;
        /// Whether a call on a borrowed reserved slot is cancelled and queued again when the owner
        /// of the reservation needs the slot. Calls that have produced a token are never cancelled.
        reclaim: bool = false, ();
        /// The size of the engine's KV memory in tokens; in a pool, that of each replica. A prefix
        /// that several calls share is counted once at replicas that report prefix caching, and
        /// once per call at other targets, where long shared prefixes can thus halve the goodput:
        /// use a pool, also for one server. Without this key, the memory limits calls only if the
        /// engine reports its size. That of a single server is then also corrected by its reported
        /// use, which includes other clients and shared prefixes.
        kv_tokens: Option<u64> "tokens" = None, TOKEN_RANGE => "not known";
        /// The share of the KV memory that admitted calls must leave free.
        kv_headroom: f64 = 0.04, 0.0..=0.9;
        /// Whether the gate reads the metrics of the engine behind a single endpoint. Its queue
        /// then bounds an adaptive limit, and the size of its KV memory is known without
        /// `kv_tokens`.
        metrics: EngineMetricsPolicy = EngineMetricsPolicy::Auto, ();
        /// How the tokens of a prompt are counted before the call is sent.
        tokenizer: Tokenizer = Tokenizer::Learned, ();
        /// Whether the gate requests the token usage of streams if the caller does not, and then
        /// removes it from the response. A server that does not know `stream_options` rejects the
        /// request, and the caller receives its error (400).
        ask_usage: bool = false, ();
        /// The name of a shared budget in `budgets`. The target then has no rates of its own.
        /// Without it, the target has its own rates.
        budget: Option<Text> = None, BUDGET_NAME;
        /// The name of the target that receives the calls that this target rejects, or that find no
        /// connection to it. The other target needs a single base URL, or all base URLs of this
        /// target. It also needs a `model`, or all models of this target in its `models`. In
        /// `defaults`, this key does not apply to the target that it names. A call that was sent
        /// and failed does not fall back, unless its retry is rejected or finds no connection.
        /// Without `wait` or `on_full = "refuse"`, calls wait for this target until their deadline,
        /// also in an outage. Calls that cannot fall back (uploads, slots from `acquire_slot`, and
        /// calls over a client's own transport) are rejected within `wait`, too. Without this key,
        /// the caller receives the rejection.
        fallback: Option<Text> = None, TARGET_NAME;
        /// How failed attempts of a call are repeated.
        retry: RetryConfig = RetryConfig::default(), ();
        /// The settings of the lanes `interactive`, `standard` and `batch`.
        lanes: Lanes = Lanes::default(), ();
        /// The settings of tenants that `tenants` does not name. Named tenants do not inherit them.
        default_tenant: TenantConfig = TenantConfig::default(), ();
        /// The settings of tenants by tenant id.
        tenants: Tenants = Tenants::new(), ();
    }
    special {
        /// How many of the slots that the cap allows are in force.
        limit: LIMIT_KIND => "adaptive; fixed with a `cap` and no `ttft`";
    }
}

/// The type of the key `limit` of targets and tools.
#[cfg(test)]
pub(super) const LIMIT_KIND: Kind = Kind::Special {
    reference: "`\"adaptive\"`, `\"fixed\"`, or a table",
    typescript: "Limit",
    python: "Limit",
};

settings! {
    /// Which requests are sent to a target, and how calls that fall back to it are sent.
    table TARGET "TargetConfig";
    /// The base URLs of the target: it takes the requests to them and to all paths below them.
    /// `"none"`: the target takes no requests, and its slots are acquired by name (`gate.slot`).
    url: Kind::TextOrList("a URL or a list of URLs; http or https, without user, query or `*`") => "of well-known providers and pools, their own; otherwise every URL";
    /// The models whose requests the target takes. `*` matches any text.
    models: Kind::TextOrList("a name or a list of names, of 1 to 256 bytes each") => "every model";
    /// The model that is requested for calls that fall back to this target. Also used by
    /// `tidegate sweep`.
    model: Kind::Text("a name without `*`") => "the only name in `models`, if it has no `*`; otherwise the model that the caller requested";
    /// The name of the environment variable with the credential for calls that fall back to this
    /// target, never the credential itself. Without it, the credential of the caller is sent if
    /// scheme, host and port are the same, and otherwise only if `forward_headers` lists its
    /// header. Also used by `tidegate run` and `tidegate sweep`.
    key_env: Kind::Text("the name of an environment variable") => "none";
    /// The request headers of the caller that are forwarded, in addition to the standard ones, with
    /// calls that fall back to this target on another server or with `key_env`.
    forward_headers: Kind::TextOrList("a header name or a list of names, without `*`") => "none";
    /// The replicas of a target that is not a single endpoint: a table, or a list of replicas.
    pool: Kind::Special {
        reference: "a table or a list of replicas",
        typescript: "PoolConfig | (string | ReplicaConfig)[]",
        python: "PoolConfig | list[str | ReplicaConfig]",
    } => "none";
}

/// Which requests are sent to a target: those whose URL and model both match. An empty `urls`
/// matches every URL, and an empty `models` matches every model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetMatch {
    /// Base URLs: scheme, host, port, and a path prefix (`https://api.openai.com/v1`).
    pub urls: Vec<String>,
    /// Model names, in which `*` matches any text (`gpt-4o*`).
    pub models: Vec<String>,
    /// Whether the target takes no requests (`url = "none"`). Its slots are acquired by name.
    pub slots_only: bool,
}

impl TargetConfig {
    /// Creates a target with the default settings that matches every request.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// A table of tables, by names that the user chooses. Reading it updates the tables that are given,
/// and keeps the others.
impl<T: Setting<Bounds = ()> + Default> Setting for BTreeMap<Arc<str>, T> {
    type Bounds = ();

    fn overlay(&mut self, given: &Given<'_>, (): &()) {
        for (name, given) in given.named() {
            self.entry(name.into()).or_default().overlay(&given, &());
        }
    }

    fn list(&self, path: &str, _unit: &str, _none: &str) -> Lines {
        self.iter().flat_map(|(name, table)| table.list(&join(path, name), "", "")).collect()
    }

    #[cfg(test)]
    fn kind((): &()) -> Kind {
        match T::kind(&()) {
            Kind::Table(table) => Kind::Named(table),
            other => other,
        }
    }
}

impl Setting for Lanes {
    type Bounds = ();

    fn overlay(&mut self, given: &Given<'_>, (): &()) {
        let names = Lane::ALL.map(Lane::as_str);
        given.check_keys(&names, |_| None);
        names.into_iter().zip(self).for_each(|(name, lane)| given.set(name, lane, &()));
    }

    fn list(&self, path: &str, _unit: &str, _none: &str) -> Lines {
        let named = Lane::ALL.iter().zip(self);
        named.flat_map(|(name, lane)| lane.list(&join(path, name.as_str()), "", "")).collect()
    }

    #[cfg(test)]
    fn kind((): &()) -> Kind {
        Kind::Special {
            reference: "a table by lane",
            typescript: "Partial<Record<Lane, LaneConfig>>",
            python: "LanesConfig",
        }
    }
}
