//! Targets: their settings, their rates, and what tenants and lanes have there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

#[cfg(test)]
use super::Kind;
use super::{
    AdaptiveConfig, BUDGET_NAME, CAP, CostRule, Counting, Given, HeaderPolicy, LimitConfig, Lines, OnFull,
    PoolConfig, Predict, QUEUE, REQUESTS, Setting, TARGET_NAME, TIME, TOKENS, Table, Text, Tokenizer, join,
    millis, secs,
};
use crate::Lane;

builders! {
    /// How failed attempts are repeated, for [`Target::retry`].
    Retry;
    /// A tenant's share of a target.
    Tenant;
    /// A lane's share of a target, for [`Target::lane`].
    LaneSettings;
    /// Rates that several targets share, for
    /// [`ConfigBuilder::budget`](crate::ConfigBuilder::budget).
    Budget;
}

/// A target, for [`ConfigBuilder::target`](crate::ConfigBuilder::target).
#[derive(Clone)]
pub struct Target {
    pub(crate) name: String,
    pub(crate) keys: Table,
}

impl Target {
    /// Creates a target of this name. The name of a well-known provider also sets its URLs.
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
        /// The upper bound of the first backoff, at most `max`. It doubles with each attempt (full
        /// jitter).
        base: Duration = millis(500), TIME;
        /// The upper bound of every backoff. A provider's Retry-After is a lower bound and may
        /// exceed it.
        max: Duration = secs(30), TIME;
        /// The retry budget: retries earned per call of the last 10 s.
        ratio: f64 "retries per call" = 0.2, 0.0..=10.0;
        /// The retry budget: retries that need not be earned.
        reserve: u32 "retries" = 10, 0..=10_000;
    }
}

/// Rejects a first backoff above the longest one.
fn check_backoff(retry: &RetryConfig, given: &Given<'_>) {
    given.reject_above(("base", &retry.base), ("max", &retry.max));
}

settings! {
    /// A tenant at a target, or at all of them.
    pub struct TenantConfig, table TENANT "TenantConfig", builders [Tenant];
    keys {
        // A weight near zero would make start tags run away to infinity.
        /// The tenant's weight in fair queueing.
        weight: f64 = 1.0, 0.001..=1e6;
        /// The maximum number of slots of the tenant. A value above the target's cap has no effect.
        cap: Option<usize> "slots" = None, CAP => "the target's";
        /// The maximum number of the tenant's calls in the queue.
        queue: Option<usize> "calls" = None, QUEUE => "the target's";
        /// The share of the slots in force that is reserved for the tenant. Unused reserved slots
        /// may be borrowed. Not for `default_tenant`.
        floor: f64 "of the slots" = 0.0, 0.0..=1.0;
        /// The tokens per minute that the tenant may use. Use above the rate is a debt that delays
        /// the tenant's later calls.
        tpm: Option<u64> "tokens per minute" = None, TOKENS;
        /// Whether the tenant's queued calls may be rejected to make room for more urgent ones in a
        /// full queue.
        shed: bool = true, ();
    }
}

settings! {
    /// The calls of one lane (priority class) at a target.
    pub struct LaneConfig, table LANE "LaneConfig", builders [LaneSettings];
    keys {
        /// The share of the slots in force that is reserved for the lane. Unused reserved slots may
        /// be borrowed.
        floor: f64 "of the slots" = 0.0, 0.0..=1.0;
        /// The maximum number of the lane's calls in the queue, of all tenants together.
        queue: Option<usize> "calls" = None, QUEUE;
        /// The wait budget of the lane's calls, at most `deadline`.
        wait: Option<Duration> = None, TIME => "the target's";
        /// The lane's objective for the time to first token, at most `deadline`.
        ttft: Option<Duration> = None, TIME => "the target's";
    }
}

settings! {
    /// The rates that a provider allows, of a target or of a budget that several targets share. A
    /// rate that is not set is not limited until the headers of a response report one.
    pub struct RateConfig, table RATES "RateConfig", builders [Budget, Target];
    keys {
        /// Requests per minute.
        rpm: Option<u64> "requests per minute" = None, REQUESTS;
        /// Requests per day.
        rpd: Option<u64> "requests per day" = None, REQUESTS;
        /// Tokens per minute, input and output together.
        tpm: Option<u64> "tokens per minute" = None, TOKENS;
        /// Tokens per day, input and output together.
        tpd: Option<u64> "tokens per day" = None, TOKENS;
        /// Input tokens per minute, for providers that count input and output separately.
        itpm: Option<u64> "input tokens per minute" = None, TOKENS;
        /// Output tokens per minute, for providers that count input and output separately.
        otpm: Option<u64> "output tokens per minute" = None, TOKENS;
        /// How much of a rate may be used at once, as the time over which the rate allows it. 6 s
        /// is a tenth of a minute's rate.
        burst: Duration = secs(6), millis(100)..=secs(60);
        /// How the provider counts a call against its token rates.
        counting: Counting = Counting::Auto, ();
        /// What the provider's rate headers may change.
        headers: HeaderPolicy = HeaderPolicy::Follow, ();
    }
}

/// The default of `deadline`.
pub const DEFAULT_DEADLINE: Duration = secs(600);

/// Tenants by their ids.
pub(crate) type Tenants = BTreeMap<Arc<str>, TenantConfig>;
/// Lanes in the order of [`Lane::ALL`].
pub(crate) type Lanes = [LaneConfig; 3];

settings! {
    /// How a target behaves. All of it may also be set in `defaults`.
    pub struct TargetConfig, table SETTINGS "TargetSettings", builders [Target];
    fields {
        /// The name of the target in metrics, errors and snapshots.
        name: Arc<str> = "default".into();
        /// Which requests are the target's.
        matches: TargetMatch = TargetMatch::default();
        /// How many slots of the cap are in force. For pools, the limit of each replica.
        limit: LimitConfig = LimitConfig::Adaptive(AdaptiveConfig::default());
        /// The provider's rates. The default for targets with a `budget`.
        rates: RateConfig = RateConfig::default();
        /// The replicas. `None`: the target is one endpoint.
        pool: Option<PoolConfig> = None;
        /// The model to request for calls that fall back to this target. `None`: the caller's.
        model: Option<Arc<str>> = None;
        /// The environment variable with the credential of calls that fall back to this target.
        /// `None`: the caller's credential is sent to the same protocol, host and port only.
        key_env: Option<Arc<str>> = None;
        /// The headers of the caller that this target receives, beside the standard ones, from
        /// calls that fall back to it on another server or with `key_env`.
        forward_headers: Vec<HeaderName> = Vec::new();
    }
    keys {
        /// The maximum number of slots. It is the limit itself if the limit is fixed, and its upper
        /// bound if the limit is adaptive. For pools it limits the replicas together.
        cap: usize "slots" = 256, CAP => "256; for pools 65536";
        /// The maximum number of calls in the queue, per tenant.
        queue: usize "calls per tenant" = 10_000, QUEUE;
        /// The maximum number of calls in the queue, of all tenants together.
        backlog: usize "calls of all tenants" = 100_000, QUEUE;
        /// The wait budget: the maximum time in the queue while the target is open, over all
        /// attempts of a call. At most `deadline`.
        wait: Option<Duration> = None, TIME => "none but the deadline";
        /// What happens to a call that finds no free slot.
        on_full: OnFull = OnFull::Wait, ();
        /// The maximum time of a call, including its wait, retries and stream.
        deadline: Duration = DEFAULT_DEADLINE, TIME => "10m, or the client's read timeout if that is longer";
        /// The maximum time from the start of an attempt to its first token, for streams. At most
        /// `deadline`.
        first_token: Option<Duration> = None, TIME => "the client's read timeout";
        /// The maximum time between two chunks of a response.
        idle: Option<Duration> = None, TIME => "the client's read timeout";
        /// The maximum time that the reader of a response may leave a chunk unread. Afterwards its
        /// slot is released.
        stall: Option<Duration> = Some(secs(300)), TIME;
        /// The objective for the time to first token, including the wait. An adaptive limit keeps
        /// to it. At most `deadline`.
        ttft: Option<Duration> = None, TIME;
        /// The objective for the time per output token, on average over a call. Needs an adaptive
        /// limit. At most `deadline`.
        tpot: Option<Duration> = None, TIME;
        /// The wait after which a call moves up one lane. A call that moved up goes before the
        /// calls of that lane, for at most an eighth of the capacity.
        aging: Duration "per lane" = secs(30), TIME;
        /// The longest prompt, in estimated tokens. Longer ones are rejected at once with 413.
        max_prompt: Option<u64> "tokens" = None, TOKENS;
        /// When a call is rejected at once because of its predicted wait.
        predict: Predict = Predict::Deadline, ();
        /// The cost that fair queueing charges for a call.
        cost: CostRule = CostRule::Auto, ();
        /// The delay of a call of 1000 tokens in its own tenant's queue, in favour of shorter
        /// calls. Proportional to the tokens of the call.
        short_bias: Option<Duration> "per 1000 tokens" = None, TIME;
        /// Whether a call on a borrowed reserved slot is cancelled and queued again when the owner
        /// needs the slot, if the call has not produced a token.
        reclaim: bool = false, ();
        /// The number of tokens that the KV memory of the engine holds, for pools of each replica.
        /// A prefix that several calls share counts once at replicas that report prefix caching,
        /// and in full for each call at other targets. Without it the memory is not limited, except
        /// at replicas that report their size.
        kv_tokens: Option<u64> "tokens" = None, TOKENS => "not known";
        /// The share of the KV memory that is kept free.
        kv_headroom: f64 = 0.1, 0.0..=0.9;
        /// How the tokens of a prompt are counted before the call is sent.
        tokenizer: Tokenizer = Tokenizer::Learned, ();
        /// Whether to request the token usage of streams if the caller does not, and to remove it
        /// from the response.
        ask_usage: bool = false, ();
        /// The name of a shared budget in `budgets`, in place of the target's own rates.
        budget: Option<Text> = None, BUDGET_NAME;
        /// The target that receives the calls that this one rejects. It needs one base URL (or all
        /// of this target's), and a `model` (or all of this target's models in its `models`). In
        /// `defaults` it does not apply to the target that it names.
        fallback: Option<Text> = None, TARGET_NAME;
        /// How failed attempts are repeated.
        retry: RetryConfig = RetryConfig::default(), ();
        /// The lanes: `interactive`, `standard` and `batch`.
        lanes: Lanes = Lanes::default(), ();
        /// The settings of tenants that are not named. Named tenants do not inherit them.
        default_tenant: TenantConfig = TenantConfig::default(), ();
        /// Named tenants.
        tenants: Tenants = Tenants::new(), ();
    }
    special {
        /// How many slots of the cap are in force.
        limit: LIMIT_KIND => "adaptive; fixed with a `cap` and no `ttft`";
    }
}

/// The type of `limit`, of targets and tools.
#[cfg(test)]
pub(super) const LIMIT_KIND: Kind = Kind::Special {
    reference: "`\"adaptive\"`, `\"fixed\"`, or a table",
    typescript: "Limit",
    python: "Limit",
};

settings! {
    /// Which requests are a target's, and how calls reach it that fall back to it.
    table OWN "TargetConfig";
    /// The base URLs of the requests, with all paths below them. `"none"`: no request is the
    /// target's, and its slots are acquired by name (`acquire_slot`).
    url: Kind::TextOrList("a URL or a list of URLs; http or https, without user, query or `*`") => "of well-known providers and pools, their own; otherwise every URL";
    /// The models of the requests. `*` matches any text.
    models: Kind::TextOrList("a name or a list of names, of 1 to 200 bytes each") => "every model";
    /// The model to request for calls that fall back to this target.
    model: Kind::Text("a name without `*`") => "the only name in `models`";
    /// The environment variable with the credential for calls that fall back to this target; never
    /// the credential itself. Without it, the caller's credential is sent if protocol, host and
    /// port are the same, and otherwise only if `forward_headers` names its header.
    key_env: Kind::Text("the name of an environment variable") => "none";
    /// The headers of the caller that this target receives, beside the standard ones, from calls
    /// that fall back to it on another server or with `key_env`.
    forward_headers: Kind::TextOrList("a header name or a list of names, without `*`") => "none";
    /// The replicas, if the target is not one endpoint: a table, or a list of replicas.
    pool: Kind::Special {
        reference: "a table or a list of replicas",
        typescript: "PoolConfig | (string | ReplicaConfig)[]",
        python: "PoolConfig | list[str | ReplicaConfig]",
    } => "none";
}

/// Which requests are a target's. An empty list matches everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetMatch {
    /// Base URLs: scheme, host, port, and a path prefix (`https://api.openai.com/v1`).
    pub urls: Vec<String>,
    /// Model names, in which `*` matches any text (`gpt-4o*`).
    pub models: Vec<String>,
    /// Whether no request is the target's (`url = "none"`): its slots are acquired by name.
    pub slots_only: bool,
}

impl TargetConfig {
    /// Creates a target with the default settings, which matches every request.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// Tables by names that the user chooses.
impl<T: Setting<Bounds = ()> + Default> Setting for BTreeMap<Arc<str>, T> {
    type Bounds = ();

    fn overlay(&mut self, given: &Given<'_>, (): &()) {
        for (name, given) in given.named() {
            self.entry(name.into()).or_default().overlay(&given, &());
        }
    }

    fn list(&self, path: &str, _unit: &str, _none: &str, lines: &mut Lines) {
        for (name, table) in self {
            table.list(&join(path, name), "", "", lines);
        }
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

    fn list(&self, path: &str, _unit: &str, _none: &str, lines: &mut Lines) {
        for (name, lane) in Lane::ALL.map(Lane::as_str).into_iter().zip(self) {
            lane.list(&join(path, name), "", "", lines);
        }
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
