//! The metrics of one target.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::families::{Families, LabelValues, nonzero, set_or_remove};
use super::hedge_outcome::HedgeOutcome;
use super::limit::LimitMetrics;
use super::replica::ReplicaSeries;
use super::tenant::{DIRECTIONS, TenantMetrics};
use super::tool::HeldSlotUse;
use crate::adaptive::DecisionCause;
use crate::budget::{BudgetKind, BudgetView};
use crate::config::{LimitConfig, ReplicaSource, TargetConfig};
use crate::context::Lane;
use crate::cooldown::CooldownState;
use crate::error::Reason;
use crate::metrics::Outcome;
use crate::placement::{Placed, ReplicaView};
use crate::schedule::SchedulerView;
use tidegate_policy::retry::GiveUpReason;
use tidegate_policy::retry::RetryPath;

/// Name of the tenant of calls whose context names no tenant.
pub(crate) const DEFAULT_TENANT: &str = "default";

/// The tenant label of all tenants that are not configured.
const OTHER: &str = "other";

/// Label value for a retry whose previous attempt used a slot borrowed from another tenant or lane,
/// and was cancelled because that tenant or lane needed the slot.
pub(crate) const PREEMPTED: &str = "preempted";
/// Label value for an immediate retry at another replica, because a replica rejected the previous
/// attempt before running it.
pub(crate) const OTHER_REPLICA: &str = "elsewhere";
/// Label value for a retry because the replica of the previous attempt went down before it sent a
/// response head.
pub(crate) const REPLICA_DOWN: &str = "replica_down";

/// Label value for a retry whose previous attempt failed for a reason of this process, so that it
/// has no failure class.
pub(crate) const UNKNOWN: &str = "unknown";

/// Label values for the classes of failed attempts: first those of error responses, then the kinds
/// of failed exchanges.
const FAILURE_CLASSES: [&str; 17] = [
    "rate_limited",
    "overloaded",
    "server_error",
    "timeout",
    "conflict",
    "quota_exhausted",
    "bad_request",
    "unauthorized",
    "too_large",
    "not_found",
    "other",
    "connect",
    "connect_timeout",
    "transport",
    "truncated",
    "first_token_timeout",
    "idle_timeout",
];

/// Label values for the causes of retries, besides [`FAILURE_CLASSES`].
const RETRY_CAUSES: [&str; 4] = [PREEMPTED, OTHER_REPLICA, REPLICA_DOWN, UNKNOWN];

/// Returns the label values for the causes of retries.
fn retry_causes() -> impl Iterator<Item = &'static str> {
    FAILURE_CLASSES.into_iter().chain(RETRY_CAUSES)
}

/// Label values for the causes of cool-downs: the provider requested one with `Retry-After`, or
/// attempts failed repeatedly.
const COOL_DOWN_KINDS: [&str; 2] = ["retry_after", "outage"];

/// Label values for the tokens of KV memory: those that calls may use, those that calls hold, and
/// the most that were held.
const MEMORY: [&str; 3] = ["usable", "held", "peak"];

/// Returns the label values for the decisions that mode `enforce` would have made about calls in
/// mode `observe`: `wait`, and the name of each reason of a rejection.
pub(super) fn decisions() -> impl Iterator<Item = &'static str> {
    std::iter::once("wait").chain(Reason::ALL.map(Reason::as_str))
}

/// Returns the rejection reasons after which a call may be sent to a fallback target.
fn fallback_reasons() -> impl Iterator<Item = Reason> {
    Reason::ALL.into_iter().filter(Reason::can_fall_back)
}

/// The Prometheus series of one target. The series that each call uses are looked up only once.
pub(crate) struct TargetMetrics {
    name: Arc<str>,
    families: Arc<Families>,
    tenants: HashMap<Arc<str>, Arc<TenantMetrics>>,
    other: Arc<TenantMetrics>,
    adaptive: Option<LimitMetrics>,
    replicas: ReplicaSeries,
    pub(crate) upstream_ttft: Histogram,
    pub(crate) tpot: Histogram,
    pub(crate) attempts: IntCounter,
    is_pool: bool,
}

impl TargetMetrics {
    /// Creates the series of a target with all their label values, so that each counter starts at
    /// zero.
    pub(super) fn new(families: Arc<Families>, config: &TargetConfig) -> Self {
        let name: &str = &config.name;
        let is_pool = config.pool.is_some();
        for counter in TargetCounter::ALL {
            let family = counter.family(&families);
            counter.labels(is_pool).for_each(|label| drop(family.with_label_values(&[name, label])));
        }
        for tool in families.tools() {
            for how in HeldSlotUse::ALL {
                families.held.with_label_values(&[name, &tool, how.as_str()]);
            }
        }
        let other = Arc::new(TenantMetrics::new(&families, name, OTHER));
        let named = config.tenants.keys().map(|tenant| &**tenant).chain([DEFAULT_TENANT]);
        Self {
            tenants: named
                .map(|tenant| (Arc::from(tenant), Arc::new(TenantMetrics::new(&families, name, tenant))))
                .collect(),
            other,
            adaptive: (config.limit != LimitConfig::Fixed).then(|| LimitMetrics::for_target(&families, name)),
            replicas: ReplicaSeries::new(&families, &config.name, listed(config)),
            upstream_ttft: families.upstream_ttft.with_label_values(&[name]),
            tpot: families.tpot.with_label_values(&[name]),
            attempts: families.attempts.with_label_values(&[name]),
            is_pool,
            name: config.name.clone(),
            families,
        }
    }

    /// Removes all series of the target, because the target is removed from the gate. The target is
    /// no pool.
    pub(crate) fn remove(&self) {
        let tools = self.families.tools();
        let outcomes = Outcome::ALL.map(Outcome::as_str).into_iter();
        let moves = DecisionCause::ALL.iter().map(|cause| cause.as_str());
        let labels = [
            ("target", vec![&*self.name]),
            ("replica", Vec::new()),
            ("tenant", self.all_tenants().map(|(name, _)| name).collect()),
            ("lane", Lane::ALL.map(Lane::as_str).to_vec()),
            ("outcome", outcomes.chain(HedgeOutcome::ALL.map(HedgeOutcome::as_str)).collect()),
            ("reason", Reason::ALL.map(Reason::as_str).to_vec()),
            ("direction", DIRECTIONS.to_vec()),
            ("class", FAILURE_CLASSES.to_vec()),
            ("cause", retry_causes().chain(moves).collect()),
            ("why", GiveUpReason::ALL.iter().map(|why| why.as_str()).collect()),
            ("kind", COOL_DOWN_KINDS.to_vec()),
            ("decision", decisions().collect()),
            ("budget", BudgetKind::ALL.iter().map(|kind| kind.as_str()).collect()),
            ("what", MEMORY.to_vec()),
            ("tool", tools.iter().map(String::as_str).collect()),
            ("state", CooldownState::ALL.map(CooldownState::as_str).to_vec()),
            ("how", HeldSlotUse::ALL.map(HeldSlotUse::as_str).to_vec()),
        ];
        self.families.remove("target", &LabelValues::from(labels));
    }

    /// Returns the series of a tenant. All tenants that are not configured share one set of series.
    pub(crate) fn tenant(&self, tenant: &Arc<str>) -> Arc<TenantMetrics> {
        self.tenants.get(tenant).unwrap_or(&self.other).clone()
    }

    /// Counts an attempt that was sent. `at` is the replica that it was sent to, or `None` if the
    /// target is not a pool.
    pub(crate) fn on_attempt(&self, at: Option<&Placed>) {
        self.attempts.inc();
        if let Some(placed) = at {
            self.replicas.on_attempt(&placed.url);
        }
    }

    /// Records the time from sending an attempt until its first token arrived.
    pub(crate) fn upstream_ttft(&self, seconds: Duration) {
        self.upstream_ttft.observe(seconds.as_secs_f64());
    }

    /// Records the mean time per output token of a response, without its first token, in seconds.
    pub(crate) fn tpot(&self, seconds: f64) {
        self.tpot.observe(seconds);
    }

    /// Counts a retry. `cause` is a failure class, or one of the constants [`PREEMPTED`],
    /// [`OTHER_REPLICA`], [`REPLICA_DOWN`] and [`UNKNOWN`].
    pub(crate) fn on_retry(&self, cause: &str) {
        self.count(TargetCounter::Retries, cause);
    }

    /// Counts a failed attempt, by failure class. `at` is the replica that the attempt was sent to,
    /// or `None` if the target is not a pool.
    pub(crate) fn on_upstream_failure(&self, class: &str, at: Option<&Placed>) {
        self.count(TargetCounter::Failures, class);
        if let Some(placed) = at {
            self.replicas.on_failure(&placed.url, class);
        }
    }

    /// Counts a call that failed at the target, by the reason why no retry was made.
    pub(crate) fn on_give_up(&self, why: GiveUpReason) {
        self.count(TargetCounter::GaveUp, why.as_str());
    }

    /// Counts a failure that started a cool-down of the target or occurred during one. `path` is
    /// the kind of the cool-down: [`RetryPath::AfterCoolDown`] or [`RetryPath::AfterOutage`]. Other
    /// values are not counted.
    pub(crate) fn on_cool_down(&self, path: RetryPath) {
        match path {
            RetryPath::Backoff | RetryPath::OtherReplica | RetryPath::AllReplicasFull => {}
            RetryPath::AfterCoolDown => self.count(TargetCounter::CoolDowns, COOL_DOWN_KINDS[0]),
            RetryPath::AfterOutage => self.count(TargetCounter::CoolDowns, COOL_DOWN_KINDS[1]),
        }
    }

    /// Counts an attempt that the replica `from` rejected before running it, after which the call
    /// was immediately retried at another replica. Does nothing if `from` is `None`, because the
    /// target is not a pool.
    pub(crate) fn on_retry_at_other_replica(&self, from: Option<&Placed>) {
        if let Some(placed) = from {
            self.replicas.on_retry_at_other_replica(&placed.url);
        }
    }

    /// Counts a call that was sent to the fallback target of this target, by the reason.
    pub(crate) fn on_fallback(&self, reason: Reason) {
        self.count(TargetCounter::Fallbacks, reason.as_str());
    }

    /// Counts an outcome of a hedge, which is a second attempt of a call whose first token is late.
    pub(crate) fn on_hedge(&self, how: HedgeOutcome) {
        self.count(TargetCounter::Hedges, how.as_str());
    }

    /// Counts the decision that mode `enforce` would have made about a call in mode `observe`.
    /// `decision` is one of [`decisions`].
    pub(crate) fn on_observed_decision(&self, decision: &str) {
        self.count(TargetCounter::Would, decision);
    }

    /// Returns the series of each configured tenant, of the default tenant, and of the label
    /// `other`, each with its label.
    pub(crate) fn all_tenants(&self) -> impl Iterator<Item = (&str, &TenantMetrics)> {
        self.tenants.iter().map(|(name, tenant)| (&**name, &**tenant)).chain([(OTHER, &*self.other)])
    }

    /// Returns the values above 0 of `counter` for this target, by the value of the counter's
    /// second label.
    pub(crate) fn counts(&self, counter: TargetCounter) -> BTreeMap<&'static str, u64> {
        nonzero(counter.family(&self.families), &self.name, counter.labels(self.is_pool))
    }

    fn count(&self, counter: TargetCounter, label: &str) {
        counter.family(&self.families).with_label_values(&[&*self.name, label]).inc();
    }

    /// Sets the gauges to the values in `view` and `budgets`. Called before the metrics are
    /// exported.
    pub(super) fn set(&self, view: &SchedulerView, budgets: &[BudgetView]) {
        let (families, name) = (&*self.families, &*self.name);
        families.limit.with_label_values(&[name]).set(view.limit as f64);
        // The limits of a pool are those of its replicas.
        if let Some(limit) = self.adaptive.as_ref().filter(|_| !self.is_pool) {
            limit.set(view.adaptive.as_ref());
        }
        if let Some(share) = &view.share {
            families.share_slots.with_label_values(&[name]).set(share.slots as f64);
            families.share_processes.with_label_values(&[name]).set(share.members as f64);
            families.share_safe_mode.with_label_values(&[name]).set(f64::from(u8::from(share.is_safe_mode)));
        }
        families.cooling.with_label_values(&[name]).set(view.cool_for.unwrap_or_default().as_secs_f64());
        for state in CooldownState::ALL {
            let is_current = f64::from(u8::from(state == view.state));
            families.target_state.with_label_values(&[name, state.as_str()]).set(is_current);
        }
        let gap = families.gap.with_label_values(&[name]);
        gap.inc_by((view.gap.as_secs_f64() - gap.get()).max(0.0));
        for kind in BudgetKind::ALL {
            let labels = [name, kind.as_str()];
            let budget = budgets.iter().find(|budget| budget.kind == kind);
            let level = budget.map(|budget| budget.level as f64 - budget.debt as f64);
            set_or_remove(&families.budget_limit, &labels, budget.map(|budget| budget.limit as f64));
            set_or_remove(&families.budget_level, &labels, level);
        }
        let memory = view.kv.as_ref().map(|kv| [kv.usable, kv.held, kv.peak]);
        let memory = memory.map(|tokens| tokens.map(|tokens| Some(tokens as f64)));
        for (what, tokens) in MEMORY.into_iter().zip(memory.unwrap_or_default()) {
            set_or_remove(&families.kv, &[name, what], tokens);
        }
        let mut sums: HashMap<&str, [usize; 3]> = HashMap::new();
        for tenant in &view.tenants {
            let label = if self.tenants.contains_key(&tenant.name) { &tenant.name } else { OTHER };
            let [in_flight, waiting, held] = sums.entry(label).or_default();
            *in_flight += tenant.in_flight;
            *waiting += tenant.waiting;
            *held += usize::from(tenant.held_for.is_some());
        }
        for (label, tenant) in self.all_tenants() {
            let [in_flight, waiting, held] = sums.get(label).copied().unwrap_or_default();
            tenant.in_flight.set(in_flight as f64);
            tenant.waiting.set(waiting as f64);
            tenant.held.set(held as f64);
        }
    }

    /// Sets the gauges of the replicas of a pool to the values in `views`. Called before the
    /// metrics are exported, after [`TargetMetrics::set`].
    pub(super) fn set_replicas(&self, views: &[ReplicaView]) {
        self.replicas.set(views);
        if let Some(limit) = self.adaptive.as_ref().filter(|_| self.is_pool) {
            limit.set_saturated(are_saturated(views));
        }
    }
}

/// Returns `true` if at least one replica of a pool accepts calls, and the adaptive limit of each
/// replica that does is saturated.
fn are_saturated(replicas: &[ReplicaView]) -> bool {
    let is_saturated = |replica: &ReplicaView| {
        let adaptive = replica.slots.as_ref().and_then(|slots| slots.adaptive.as_ref());
        adaptive.is_some_and(|adaptive| adaptive.saturated)
    };
    let mut eligible = replicas.iter().filter(|replica| replica.is_eligible).peekable();
    eligible.peek().is_some() && eligible.all(is_saturated)
}

/// Returns the base URLs of the replicas that the configuration lists. Empty if the target is not a
/// pool, or if its replicas are discovered or set at run time.
fn listed(config: &TargetConfig) -> impl Iterator<Item = &Arc<str>> {
    let listed = match config.pool.as_ref().map(|pool| &pool.source) {
        Some(ReplicaSource::Listed(members)) => members.as_slice(),
        _ => &[],
    };
    listed.iter().map(|member| &member.url)
}

/// A counter that each target has, with a second label whose possible values are known in advance.
#[derive(Clone, Copy)]
pub(crate) enum TargetCounter {
    Retries,
    Failures,
    GaveUp,
    CoolDowns,
    Fallbacks,
    Hedges,
    Would,
}

impl TargetCounter {
    const ALL: [Self; 7] = [
        Self::Retries,
        Self::Failures,
        Self::GaveUp,
        Self::CoolDowns,
        Self::Fallbacks,
        Self::Hedges,
        Self::Would,
    ];

    fn family(self, families: &Families) -> &IntCounterVec {
        match self {
            Self::Retries => &families.retries,
            Self::Failures => &families.failures,
            Self::GaveUp => &families.gave_up,
            Self::CoolDowns => &families.cool_downs,
            Self::Fallbacks => &families.fallbacks,
            Self::Hedges => &families.hedges,
            Self::Would => &families.would,
        }
    }

    /// Returns the possible values of the counter's second label. `is_pool` is `true` if the target
    /// is a pool, because only pools have hedges.
    fn labels(self, is_pool: bool) -> Box<dyn Iterator<Item = &'static str>> {
        match self {
            Self::Retries => Box::new(retry_causes()),
            Self::Failures => Box::new(FAILURE_CLASSES.into_iter()),
            Self::GaveUp => Box::new(GiveUpReason::ALL.iter().map(|why| why.as_str())),
            Self::CoolDowns => Box::new(COOL_DOWN_KINDS.into_iter()),
            Self::Fallbacks => Box::new(fallback_reasons().map(Reason::as_str)),
            Self::Hedges => {
                Box::new(HedgeOutcome::ALL.into_iter().filter(move |_| is_pool).map(HedgeOutcome::as_str))
            }
            Self::Would => Box::new(decisions()),
        }
    }
}
