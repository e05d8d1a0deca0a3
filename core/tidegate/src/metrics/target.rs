//! The series of one target.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{GaugeVec, Histogram, IntCounter};

use super::families::Families;
use super::hedged::Hedged;
use super::limit::{LimitMetrics, LimitOwner};
use super::replica::Replicas;
use super::tenant::TenantMetrics;
use super::tool::HeldSlotUse;
use crate::budget::BudgetView;
use crate::config::{LimitConfig, ReplicaSource, TargetConfig};
use crate::cooldown::Hold;
use crate::error::Reason;
use crate::metrics::Quantiles;
use crate::placement::{Placed, ReplicaView};
use crate::schedule::{SchedulerView, TenantView};
use tidegate_policy::retry::GiveUpReason;

/// The tenant of calls that name none.
pub(crate) const DEFAULT_TENANT: &str = "default";

/// The label that all unconfigured tenants share.
const OTHER: &str = "other";

/// Retry cause: the attempt was cancelled because the owner of its borrowed slot needed the slot.
pub(crate) const RECLAIMED: &str = "called_back";
/// Retry cause: the replica rejected the call before starting it, and another replica was tried at
/// once.
pub(crate) const RETRIED_ELSEWHERE: &str = "elsewhere";
/// Retry cause: the replica went down before its response began.
pub(crate) const REPLICA_DOWN: &str = "replica_down";

/// The classes of failed attempts and causes of retries: error responses, exchange errors, then the
/// causes above.
const CLASSES: &[&str] = &[
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
    RECLAIMED,
    RETRIED_ELSEWHERE,
    REPLICA_DOWN,
];
const GIVE_UP_REASONS: &[GiveUpReason] = &[
    GiveUpReason::Final,
    GiveUpReason::Unsafe,
    GiveUpReason::Attempts,
    GiveUpReason::Budget,
    GiveUpReason::Deadline,
];

/// The kinds of cool-downs: requested by the provider, or caused by an outage.
const HOLDS: [&str; 2] = ["retry_after", "outage"];

/// Returns the decisions that mode `observe` counts: `wait`, and each reason of a rejection.
pub(super) fn decisions() -> impl Iterator<Item = &'static str> {
    std::iter::once("wait").chain(Reason::ALL.map(Reason::as_str))
}

/// Returns the reasons of rejections that send a call to its fallback target.
fn fallback_reasons() -> impl Iterator<Item = Reason> {
    Reason::ALL.into_iter().filter(Reason::can_fall_back)
}

/// The series of one target, looked up once.
pub(crate) struct TargetMetrics {
    name: Arc<str>,
    families: Arc<Families>,
    tenants: HashMap<Arc<str>, Arc<TenantMetrics>>,
    other: Arc<TenantMetrics>,
    adaptive: Option<LimitMetrics>,
    replicas: Replicas,
    upstream_ttft: Histogram,
    tpot: Histogram,
    attempts: IntCounter,
    cool_down: IntCounter,
    outage: IntCounter,
    is_pool: bool,
}

impl TargetMetrics {
    /// Creates all series of a target.
    pub(super) fn new(families: Arc<Families>, config: &TargetConfig) -> Self {
        let name: &str = &config.name;
        for class in CLASSES {
            families.failures.with_label_values(&[name, class]);
            families.retries.with_label_values(&[name, class]);
        }
        for why in GIVE_UP_REASONS {
            families.gave_up.with_label_values(&[name, why.as_str()]);
        }
        for decision in decisions() {
            families.would.with_label_values(&[name, decision]);
        }
        for reason in fallback_reasons() {
            families.fallbacks.with_label_values(&[name, reason.as_str()]);
        }
        if config.pool.is_some() {
            for how in Hedged::ALL {
                families.hedges.with_label_values(&[name, how.as_str()]);
            }
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
            adaptive: (config.limit != LimitConfig::Fixed)
                .then(|| LimitMetrics::new(&families, LimitOwner::Target, name)),
            replicas: Replicas::of(&families, name, listed(config)),
            upstream_ttft: families.upstream_ttft.with_label_values(&[name]),
            tpot: families.tpot.with_label_values(&[name]),
            attempts: families.attempts.with_label_values(&[name]),
            cool_down: families.cool_downs.with_label_values(&[name, HOLDS[0]]),
            outage: families.cool_downs.with_label_values(&[name, HOLDS[1]]),
            is_pool: config.pool.is_some(),
            name: config.name.clone(),
            families,
        }
    }

    /// Removes all series of the target.
    pub(crate) fn remove(&self) {
        self.families.remove(&[("target", &self.name)]);
    }

    /// Returns the series of a tenant. Unconfigured tenants share one set of series.
    pub(crate) fn tenant(&self, tenant: &Arc<str>) -> Arc<TenantMetrics> {
        self.tenants.get(tenant).unwrap_or(&self.other).clone()
    }

    /// Counts an attempt that was sent, to the replica `at` if the target is a pool.
    pub(crate) fn attempted(&self, at: Option<&Placed>) {
        self.attempts.inc();
        if let Some(placed) = at {
            self.replicas.called(&self.families, &self.name, &placed.url);
        }
    }

    /// Records the time from sending an attempt to its first token.
    pub(crate) fn upstream_ttft(&self, seconds: Duration) {
        self.upstream_ttft.observe(seconds.as_secs_f64());
    }

    /// Records the time per output token after the first, in seconds.
    pub(crate) fn tpot(&self, seconds: f64) {
        self.tpot.observe(seconds);
    }

    /// Counts a retry, by cause.
    pub(crate) fn retried(&self, cause: &str) {
        self.families.retries.with_label_values(&[&*self.name, cause]).inc();
    }

    /// Counts a failed attempt, by class, and also for the replica `at` if the target is a pool.
    pub(crate) fn upstream_failed(&self, class: &str, at: Option<&Placed>) {
        self.families.failures.with_label_values(&[&*self.name, class]).inc();
        if let Some(placed) = at {
            self.replicas.failed(&self.families, &self.name, &placed.url, class);
        }
    }

    /// Counts a failure after which no retry was made, by reason.
    pub(crate) fn gave_up(&self, why: GiveUpReason) {
        self.families.gave_up.with_label_values(&[&*self.name, why.as_str()]).inc();
    }

    /// Counts a failure that began or met a cool-down.
    pub(crate) fn cooled(&self, hold: Hold) {
        match hold {
            Hold::No | Hold::RetryOther | Hold::AllFull => {}
            Hold::CoolDown => self.cool_down.inc(),
            Hold::Outage => self.outage.inc(),
        }
    }

    /// Counts an attempt that the replica did not begin and that another replica got at once.
    pub(crate) fn hopped(&self, from: Option<&Placed>) {
        if let Some(placed) = from {
            self.replicas.hopped(&self.families, &self.name, &placed.url);
        }
    }

    /// Counts a rejected call that was sent to the fallback target.
    pub(crate) fn fell_back(&self, reason: Reason) {
        self.families.fallbacks.with_label_values(&[&*self.name, reason.as_str()]).inc();
    }

    /// Counts a hedge, by outcome.
    pub(crate) fn hedged(&self, how: Hedged) {
        self.families.hedges.with_label_values(&[&*self.name, how.as_str()]).inc();
    }

    /// Counts what mode `observe` would have done with a call.
    pub(crate) fn would(&self, decision: &str) {
        self.families.would.with_label_values(&[&*self.name, decision]).inc();
    }

    /// Returns the series of each tenant with its label, the label of unconfigured tenants
    /// included.
    pub(crate) fn all_tenants(&self) -> impl Iterator<Item = (&str, &TenantMetrics)> {
        self.tenants.iter().map(|(name, tenant)| (&**name, &**tenant)).chain([(OTHER, &*self.other)])
    }

    /// Returns the distribution of the times from sending an attempt to its first token.
    pub(crate) fn upstream_ttft_seen(&self) -> Quantiles {
        Quantiles::of(&[&self.upstream_ttft])
    }

    /// Returns the distribution of the times per output token after the first.
    pub(crate) fn tpot_seen(&self) -> Quantiles {
        Quantiles::of(&[&self.tpot])
    }

    /// Returns the number of attempts sent.
    pub(crate) fn attempts_seen(&self) -> u64 {
        self.attempts.get()
    }

    /// Returns the nonzero counts of a counter of this target, by its second label.
    pub(crate) fn by_label(&self, family: LabeledCounter) -> Vec<(&'static str, u64)> {
        let (counter, labels): (_, Vec<&'static str>) = match family {
            LabeledCounter::Retries => (&self.families.retries, CLASSES.to_vec()),
            LabeledCounter::Failures => (&self.families.failures, CLASSES.to_vec()),
            LabeledCounter::GaveUp => {
                (&self.families.gave_up, GIVE_UP_REASONS.iter().map(|why| why.as_str()).collect())
            }
            LabeledCounter::CoolDowns => (&self.families.cool_downs, HOLDS.to_vec()),
            LabeledCounter::Fallbacks => {
                (&self.families.fallbacks, fallback_reasons().map(Reason::as_str).collect())
            }
            LabeledCounter::Hedges => {
                let labels = if self.is_pool { &Hedged::ALL[..] } else { &[] };
                (&self.families.hedges, labels.iter().map(|how| how.as_str()).collect())
            }
            LabeledCounter::Would => (&self.families.would, decisions().collect()),
        };
        let counted =
            labels.into_iter().map(|label| (label, counter.with_label_values(&[&*self.name, label]).get()));
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// Sets the gauges from these views, before they are exported.
    pub(super) fn set(&self, view: &SchedulerView, budgets: &[BudgetView]) {
        self.set_budgets(view, budgets);
        let set =
            |family: &GaugeVec, labels: &[&str], value: f64| family.with_label_values(labels).set(value);
        set(&self.families.limit, &[&self.name], view.limit as f64);
        if let (Some(limit), Some(seen)) = (&self.adaptive, &view.adaptive) {
            limit.set(seen);
        }
        set(&self.families.cooling, &[&self.name], view.cool_for.unwrap_or_default().as_secs_f64());
        let gap = self.families.gap.with_label_values(&[&*self.name]);
        gap.inc_by((view.gap.as_secs_f64() - gap.get()).max(0.0));
        let seen: HashMap<&str, &TenantView> = view.tenants.iter().map(|seen| (&*seen.name, seen)).collect();
        let mut others = (0, 0);
        for (label, tenant) in self.all_tenants() {
            if let Some(seen) = seen.get(label) {
                tenant.in_flight.set(seen.in_flight as f64);
                tenant.waiting.set(seen.waiting as f64);
            } else if label != OTHER {
                tenant.in_flight.set(0.0);
                tenant.waiting.set(0.0);
            }
        }
        for seen in view.tenants.iter().filter(|seen| !self.tenants.contains_key(&seen.name)) {
            others.0 += seen.in_flight;
            others.1 += seen.waiting;
        }
        self.other.in_flight.set(others.0 as f64);
        self.other.waiting.set(others.1 as f64);
    }
}

impl TargetMetrics {
    fn set_budgets(&self, view: &SchedulerView, budgets: &[BudgetView]) {
        let name: &str = &self.name;
        for budget in budgets {
            let labels = [name, budget.kind.as_str()];
            self.families.budget_limit.with_label_values(&labels).set(budget.limit as f64);
            self.families
                .budget_level
                .with_label_values(&labels)
                .set(budget.level as f64 - budget.debt as f64);
        }
        let Some(kv) = &view.kv else { return };
        for (what, tokens) in KV.into_iter().zip([kv.usable, kv.held, kv.peak]) {
            self.families.kv.with_label_values(&[name, what]).set(tokens as f64);
        }
    }

    /// Sets the gauges of the pool's replicas, before they are exported.
    pub(super) fn set_replicas(&self, views: &[ReplicaView]) {
        self.replicas.set(&self.families, &self.name, views);
    }
}

/// Returns the base URLs of the replicas that are configured. Empty if they are discovered.
fn listed(config: &TargetConfig) -> impl Iterator<Item = &Arc<str>> {
    let listed = match config.pool.as_ref().map(|pool| &pool.source) {
        Some(ReplicaSource::Listed(members)) => members.as_slice(),
        _ => &[],
    };
    listed.iter().map(|member| &member.url)
}

/// Labels of the gauges of the engine's KV memory.
const KV: [&str; 3] = ["usable", "held", "peak"];

/// A counter of a target that a snapshot breaks down by label.
#[derive(Clone, Copy)]
pub(crate) enum LabeledCounter {
    Retries,
    Failures,
    GaveUp,
    CoolDowns,
    Fallbacks,
    Hedges,
    Would,
}
