//! What a person wants to know of a gate, now: plain data, the same in every language.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::metrics::{Family, TenantSeen, ToolMetrics};
use super::{LimitSnapshot, Quantiles, ReplicaSnapshot};
use crate::budget::BudgetView;
use crate::context::Lane;
use crate::kv;
use crate::schedule::{LaneView, View};
use crate::target::{SharedCooldowns, Target};

/// A gate's state. Times are seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// `enforce`, `observe` or `off`.
    pub mode: &'static str,
    /// Whether new calls are refused because the gate drains.
    pub draining: bool,
    /// Calls under way, waiting ones included.
    pub active: usize,
    /// By name.
    pub targets: BTreeMap<Arc<str>, TargetSnapshot>,
    /// By name.
    pub tools: BTreeMap<String, ToolSnapshot>,
}

/// One target's state.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct TargetSnapshot {
    /// Slots in force.
    pub limit: usize,
    /// How their number is found; `None`: it is fixed.
    pub adaptive: Option<LimitSnapshot>,
    /// Slots held.
    pub in_flight: usize,
    /// The most slots ever held at once.
    pub peak_in_flight: usize,
    /// Calls that wait for a slot, or for the cool-down of their key.
    pub queue_depth: usize,
    /// `open`, `cooling`, `probing` or `ramping`.
    pub state: &'static str,
    /// Until the cool-down ends.
    pub cool_for: Option<f64>,
    /// For how long room has been kept for an aged call that does not fit yet.
    pub held_for: Option<f64>,
    /// The share of time in which calls waited while slots were free.
    pub gap_fraction: f64,
    /// Retries that may be scheduled now.
    pub retry_budget: f64,
    /// The provider's rates, by what they count: those configured, and those that its headers spoke of.
    pub budgets: BTreeMap<&'static str, BudgetSnapshot>,
    /// The engine's memory, where its size is known.
    pub kv: Option<KvSnapshot>,
    /// Of a pool, its replicas.
    pub replicas: Vec<ReplicaSnapshot>,
    /// Why it is not known now which replicas there are, where DNS or a file names them; those known before stay.
    pub replicas_problem: Option<String>,
    /// By name: `interactive`, `standard`, `batch`.
    pub lanes: BTreeMap<&'static str, LaneSnapshot>,
    /// Attempts sent.
    pub attempts: u64,
    pub retries: BTreeMap<&'static str, u64>,
    pub failed_attempts: BTreeMap<&'static str, u64>,
    pub gave_up: BTreeMap<&'static str, u64>,
    pub cool_downs: BTreeMap<&'static str, u64>,
    /// Calls refused here that went to the fallback target, by reason.
    pub fallbacks: BTreeMap<&'static str, u64>,
    /// Second tries of calls whose first token was late, of a pool that hedges: `sent`, `won`, `no_slot`, `no_budget`.
    pub hedges: BTreeMap<&'static str, u64>,
    /// What observe mode would have done.
    pub would: BTreeMap<&'static str, u64>,
    pub upstream_ttft: Quantiles,
    pub tpot: Quantiles,
    pub tenants: BTreeMap<String, TenantSnapshot>,
}

/// One budget, as it stands.
#[derive(Clone, Debug, Serialize)]
pub struct BudgetSnapshot {
    /// The limit in force, in requests or tokens a window.
    pub limit: u64,
    /// The window.
    pub window: f64,
    /// What may go at once.
    pub level: u64,
    /// What is owed, since calls took more than was expected of them.
    pub debt: u64,
    /// Who says so: `configured` or `headers`.
    pub source: &'static str,
    /// How much of the rate may go out at once, as time.
    pub burst: f64,
    /// How a call is counted: `sum`, `larger`, `actual` or `input`.
    pub counting: &'static str,
}

/// The engine's memory for keys and values, in tokens.
#[derive(Clone, Debug, Serialize)]
pub struct KvSnapshot {
    /// What it holds.
    pub capacity: u64,
    /// What of it may be taken: less the headroom.
    pub usable: u64,
    /// What the calls in flight hold, as far as it is seen.
    pub held: u64,
    /// The most that they will come to hold together.
    pub peak: u64,
}

/// One lane's part of a target.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LaneSnapshot {
    /// Slots held.
    pub in_flight: usize,
    /// Calls waiting.
    pub queue_depth: usize,
    /// Slots that are its own, of the limit in force.
    pub floor: usize,
}

/// One tenant's part of a target.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct TenantSnapshot {
    pub in_flight: usize,
    pub peak_in_flight: usize,
    pub queue_depth: usize,
    /// Slots that are its own, of the limit in force.
    pub floor: usize,
    /// Tokens that it owes, of its own tokens a minute, since its calls took more than was expected of them.
    pub debt: u64,
    pub admitted: u64,
    /// Completed calls that met the TTFT objective.
    pub objective_met: u64,
    pub outcomes: BTreeMap<&'static str, u64>,
    pub refused: BTreeMap<&'static str, u64>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub queue_wait: Quantiles,
    /// User TTFT.
    pub ttft: Quantiles,
    pub duration: Quantiles,
}

/// One tool's state.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct ToolSnapshot {
    /// Slots in force.
    pub limit: usize,
    /// How their number is found; `None`: it is fixed.
    pub adaptive: Option<LimitSnapshot>,
    pub in_flight: usize,
    pub peak_in_flight: usize,
    pub queue_depth: usize,
    pub wait: Quantiles,
    pub refused: BTreeMap<&'static str, u64>,
    /// What observe mode would have done.
    pub would: BTreeMap<&'static str, u64>,
    /// Model slots that a task held when it asked for this tool, by target: it `got` the tool at once, `waited` for it, or `yielded` the slot.
    pub slot_held: BTreeMap<Arc<str>, BTreeMap<&'static str, u64>>,
}

impl TargetSnapshot {
    pub(crate) fn of(target: &Target, now: Instant) -> Self {
        let view = target.admission().view();
        let metrics = target.metrics();
        let by = |family| metrics.by_label(family).into_iter().collect();
        Self {
            limit: view.limit,
            adaptive: view.adaptive.as_ref().map(|seen| LimitSnapshot::of(seen, now)),
            in_flight: view.in_flight,
            peak_in_flight: view.peak,
            queue_depth: view.waiting + target.shared().map_or(0, SharedCooldowns::held),
            state: view.state.as_str(),
            cool_for: view.cool_for.map(|left| left.as_secs_f64()),
            held_for: view.held_for.map(|held| held.as_secs_f64()),
            gap_fraction: view.gap.as_secs_f64() / view.up.as_secs_f64().max(f64::MIN_POSITIVE),
            retry_budget: target.retries().lock().balance(now),
            budgets: target.budgets(now).iter().map(|budget| (budget.kind.as_str(), budget.into())).collect(),
            kv: view.kv.as_ref().map(KvSnapshot::from),
            replicas: target
                .admission()
                .replicas()
                .into_iter()
                .map(|view| ReplicaSnapshot::of(view, now))
                .collect(),
            replicas_problem: target.replicas_problem(),
            lanes: Lane::ALL
                .into_iter()
                .zip(&view.lanes)
                .map(|(lane, seen)| (lane.as_str(), seen.into()))
                .collect(),
            attempts: metrics.attempts_seen(),
            retries: by(Family::Retries),
            failed_attempts: by(Family::Failures),
            gave_up: by(Family::GaveUp),
            cool_downs: by(Family::CoolDowns),
            fallbacks: by(Family::Fallbacks),
            hedges: by(Family::Hedges),
            would: by(Family::Would),
            upstream_ttft: metrics.upstream_ttft_seen(),
            tpot: metrics.tpot_seen(),
            tenants: tenants(metrics.all_tenants().map(|(name, tenant)| (name, tenant.seen())), &view),
        }
    }
}

/// What was counted, by label, joined with what the scheduler holds now, by name. Names without a label of their own are shown while they hold or await slots.
fn tenants<'a>(
    counted: impl Iterator<Item = (&'a str, TenantSeen)>,
    view: &View,
) -> BTreeMap<String, TenantSnapshot> {
    let mut tenants: BTreeMap<String, TenantSnapshot> =
        counted.map(|(name, seen)| (name.to_owned(), TenantSnapshot::from(seen))).collect();
    for seen in &view.tenants {
        let known = tenants.contains_key(&*seen.name);
        if known || seen.in_flight + seen.waiting > 0 {
            let tenant = tenants.entry(seen.name.to_string()).or_default();
            tenant.in_flight = seen.in_flight;
            tenant.peak_in_flight = seen.peak;
            tenant.queue_depth = seen.waiting;
            tenant.floor = seen.floor;
            tenant.debt = seen.debt;
        }
    }
    tenants
}

impl From<&BudgetView> for BudgetSnapshot {
    fn from(view: &BudgetView) -> Self {
        Self {
            limit: view.limit,
            window: view.window.as_secs_f64(),
            level: view.level,
            debt: view.debt,
            source: view.source,
            burst: view.burst.as_secs_f64(),
            counting: view.counting.as_str(),
        }
    }
}

impl From<&kv::View> for KvSnapshot {
    fn from(view: &kv::View) -> Self {
        Self { capacity: view.capacity, usable: view.usable, held: view.held, peak: view.peak }
    }
}

impl From<&LaneView> for LaneSnapshot {
    fn from(view: &LaneView) -> Self {
        Self { in_flight: view.in_flight, queue_depth: view.waiting, floor: view.floor }
    }
}

impl From<TenantSeen> for TenantSnapshot {
    fn from(seen: TenantSeen) -> Self {
        let some =
            |pairs: &[(&'static str, u64)]| pairs.iter().copied().filter(|(_, count)| *count > 0).collect();
        Self {
            admitted: seen.admitted,
            objective_met: seen.objective_met,
            outcomes: some(&seen.outcomes),
            refused: some(&seen.refused),
            input_tokens: seen.input_tokens,
            output_tokens: seen.output_tokens,
            queue_wait: seen.queue_wait,
            ttft: seen.ttft,
            duration: seen.duration,
            ..Self::default()
        }
    }
}

impl ToolSnapshot {
    pub(crate) fn of<'a>(
        view: &View,
        metrics: &ToolMetrics,
        targets: impl Iterator<Item = &'a Arc<str>>,
        now: Instant,
    ) -> Self {
        Self {
            limit: view.limit,
            adaptive: view.adaptive.as_ref().map(|seen| LimitSnapshot::of(seen, now)),
            in_flight: view.in_flight,
            peak_in_flight: view.peak,
            queue_depth: view.waiting,
            wait: metrics.wait_seen(),
            refused: metrics.refused_seen().collect(),
            would: metrics.would_seen().collect(),
            slot_held: metrics.held_seen(targets),
        }
    }
}
