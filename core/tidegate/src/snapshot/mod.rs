//! The state of a gate at one moment, as plain data with the same fields in every language.

mod limit;
mod replica;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use prometheus::IntCounter;
use serde::Serialize;

pub use limit::{DecisionSnapshot, LimitSnapshot};
pub use replica::ReplicaSnapshot;

use crate::budget::BudgetView;
use crate::context::Lane;
use crate::error::Reason;
use crate::kv;
use crate::metrics::{Outcome, Quantiles, TargetCounter, TargetMetrics, TenantMetrics, ToolMetrics};
use crate::pool::TargetPool;
use crate::schedule::{LaneView, SchedulerView};
use crate::target::{SharedCooldowns, Target};

/// The state of a gate at one moment. Durations are in seconds.
///
/// ```
/// use tidegate::{Gate, config::Target};
///
/// let gate = Gate::builder().target(Target::new("openai").cap(64)).build()?;
/// let snapshot = gate.snapshot();
/// assert_eq!(snapshot.active, 0);
/// assert_eq!(snapshot.targets["openai"].in_flight, 0);
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Mode of the gate: `enforce`, `observe` or `off`.
    pub mode: &'static str,
    /// Whether new calls are rejected because the gate drains.
    pub draining: bool,
    /// Number of calls in progress, queued calls included.
    pub active: usize,
    /// The targets, by name.
    pub targets: BTreeMap<Arc<str>, TargetSnapshot>,
    /// The tools, by name.
    pub tools: BTreeMap<String, ToolSnapshot>,
}

/// The state of one target. Durations are in seconds. Counters start at the creation of the target.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct TargetSnapshot {
    /// Limit in force, in slots.
    pub limit: usize,
    /// The adaptive limit. `None` if the limit is fixed.
    pub adaptive: Option<LimitSnapshot>,
    /// Slots in use.
    pub in_flight: usize,
    /// Maximum number of slots ever in use at the same time.
    pub peak_in_flight: usize,
    /// Number of calls that wait for a slot or for the end of their key's cool-down.
    pub queue_depth: usize,
    /// Cool-down state: `open`, `cooling`, `probing` or `ramping`.
    pub state: &'static str,
    /// Time until the cool-down ends.
    pub cool_for: Option<f64>,
    /// Time for which capacity has been reserved for an aged call that does not fit yet.
    pub held_for: Option<f64>,
    /// Share of the time in which calls waited although slots were free, from 0 to 1.
    pub gap_fraction: f64,
    /// Number of retries that the retry budget allows now.
    pub retry_budget: f64,
    /// Rate budgets by kind: those configured, and those that the provider's headers reported.
    pub budgets: BTreeMap<&'static str, BudgetSnapshot>,
    /// KV memory of the engine, if its size is known.
    pub kv: Option<KvSnapshot>,
    /// The replicas. Empty if the target is not a pool.
    pub replicas: Vec<ReplicaSnapshot>,
    /// Why the latest discovery of the replicas through DNS or a file failed, if it did. The
    /// replicas found before stay in use.
    pub replicas_problem: Option<String>,
    /// The lanes, by name: `interactive`, `standard` and `batch`.
    pub lanes: BTreeMap<&'static str, LaneSnapshot>,
    /// Number of attempts sent.
    pub attempts: u64,
    /// Retries scheduled, by cause.
    pub retries: BTreeMap<&'static str, u64>,
    /// Attempts that failed, by failure class.
    pub failed_attempts: BTreeMap<&'static str, u64>,
    /// Failures that were returned to the caller, by the reason why no retry was made.
    pub gave_up: BTreeMap<&'static str, u64>,
    /// Failures that began or met a cool-down, by kind: `retry_after` or `outage`.
    pub cool_downs: BTreeMap<&'static str, u64>,
    /// Rejected calls that were sent to the fallback target, by the reason of the rejection.
    pub fallbacks: BTreeMap<&'static str, u64>,
    /// Hedges of calls whose first token was late, by outcome: `sent`, `won`, `no_slot`,
    /// `no_budget`. Only for pools.
    pub hedges: BTreeMap<&'static str, u64>,
    /// Calls that mode `observe` would have delayed (`wait`) or rejected (by reason).
    pub would: BTreeMap<&'static str, u64>,
    /// Time from sending an attempt to its first token.
    pub upstream_ttft: Quantiles,
    /// Time per output token after the first.
    pub tpot: Quantiles,
    /// The tenants, by name. Unconfigured tenants share the counters of `other`.
    pub tenants: BTreeMap<String, TenantSnapshot>,
}

/// The state of one rate budget.
#[derive(Clone, Debug, Serialize)]
pub struct BudgetSnapshot {
    /// Limit in force, in requests or tokens per window.
    pub limit: u64,
    /// Length of the window, in seconds.
    pub window: f64,
    /// Requests or tokens that may be sent now.
    pub level: u64,
    /// Requests or tokens that calls took beyond what was expected of them. The debt is repaid
    /// before new calls are admitted.
    pub debt: u64,
    /// Source of the limit: `configured` or `headers`.
    pub source: &'static str,
    /// Maximum burst, in seconds of the rate.
    pub burst: f64,
    /// How a call is counted: `sum`, `larger`, `actual` or `input`.
    pub counting: &'static str,
}

/// The KV memory of an engine, in tokens.
#[derive(Clone, Debug, Serialize)]
pub struct KvSnapshot {
    /// Size of the memory.
    pub capacity: u64,
    /// Part of the memory that calls may use: the capacity less the headroom.
    pub usable: u64,
    /// Tokens that the calls in flight hold now, as far as observed.
    pub held: u64,
    /// Maximum that the calls in flight are expected to hold together.
    pub peak: u64,
}

/// The state of one lane of a target.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LaneSnapshot {
    /// Slots in use.
    pub in_flight: usize,
    /// Number of calls waiting.
    pub queue_depth: usize,
    /// Slots of the current limit that are reserved for the lane.
    pub floor: usize,
}

/// The state of one tenant at a target. Durations are in seconds. Counters start at the creation of
/// the target.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct TenantSnapshot {
    /// Slots in use.
    pub in_flight: usize,
    /// Maximum number of slots ever in use at the same time.
    pub peak_in_flight: usize,
    /// Number of calls waiting.
    pub queue_depth: usize,
    /// Slots of the current limit that are reserved for the tenant.
    pub floor: usize,
    /// Tokens by which the tenant's calls exceeded its own limit of tokens per minute.
    pub debt: u64,
    /// Number of attempts admitted.
    pub admitted: u64,
    /// Number of completed calls that met the TTFT objective.
    pub objective_met: u64,
    /// Calls that have ended, by outcome. The outcomes are those of [`CallRecord::outcome`](crate::CallRecord::outcome).
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Calls rejected, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Input tokens that the provider reported.
    pub input_tokens: u64,
    /// Output tokens that the provider reported.
    pub output_tokens: u64,
    /// Time that admitted attempts waited in the queue.
    pub queue_wait: Quantiles,
    /// Time from the call to its first token, queueing included.
    pub ttft: Quantiles,
    /// Duration of completed calls.
    pub duration: Quantiles,
}

/// The state of one tool.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct ToolSnapshot {
    /// Limit in force, in slots.
    pub limit: usize,
    /// The adaptive limit. `None` if the limit is fixed.
    pub adaptive: Option<LimitSnapshot>,
    /// Slots in use.
    pub in_flight: usize,
    /// Maximum number of slots ever in use at the same time.
    pub peak_in_flight: usize,
    /// Number of tasks waiting for the tool.
    pub queue_depth: usize,
    /// Time that admitted tasks waited for the tool, in seconds.
    pub wait: Quantiles,
    /// Waits rejected, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Waits that mode `observe` would have delayed (`wait`) or rejected (by reason).
    pub would: BTreeMap<&'static str, u64>,
    /// Model slots that a task held when it asked for this tool, by target and result: the task
    /// `got` the tool at once, `waited` for it, or `yielded` the slot.
    pub slot_held: BTreeMap<Arc<str>, BTreeMap<&'static str, u64>>,
}

impl TargetSnapshot {
    /// Returns the current state of a target.
    pub(crate) fn from_target(target: &Target, now: Instant) -> Self {
        let view = target.admission().view();
        let metrics = target.metrics();
        Self {
            limit: view.limit,
            adaptive: view.adaptive.as_ref().map(|view| LimitSnapshot::from_view(view, now)),
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
                .map(|view| ReplicaSnapshot::from_view(view, now))
                .collect(),
            replicas_problem: target.pool().and_then(TargetPool::problem),
            lanes: Lane::ALL
                .into_iter()
                .zip(&view.lanes)
                .map(|(lane, view)| (lane.as_str(), view.into()))
                .collect(),
            attempts: metrics.attempts.get(),
            retries: metrics.counts(TargetCounter::Retries),
            failed_attempts: metrics.counts(TargetCounter::Failures),
            gave_up: metrics.counts(TargetCounter::GaveUp),
            cool_downs: metrics.counts(TargetCounter::CoolDowns),
            fallbacks: metrics.counts(TargetCounter::Fallbacks),
            hedges: metrics.counts(TargetCounter::Hedges),
            would: metrics.counts(TargetCounter::Would),
            upstream_ttft: Quantiles::from_histograms([&metrics.upstream_ttft]),
            tpot: Quantiles::from_histograms([&metrics.tpot]),
            tenants: tenants(metrics, &view),
        }
    }
}

/// Joins the counters of tenants with the scheduler's state, by name. Tenants without their own
/// label are included while they hold or await slots.
fn tenants(metrics: &TargetMetrics, view: &SchedulerView) -> BTreeMap<String, TenantSnapshot> {
    let mut tenants: BTreeMap<String, TenantSnapshot> =
        metrics.all_tenants().map(|(name, tenant)| (name.to_owned(), tenant.into())).collect();
    for current in &view.tenants {
        let known = tenants.contains_key(&*current.name);
        if known || current.in_flight + current.waiting > 0 {
            let tenant = tenants.entry(current.name.to_string()).or_default();
            tenant.in_flight = current.in_flight;
            tenant.peak_in_flight = current.peak;
            tenant.queue_depth = current.waiting;
            tenant.floor = current.floor;
            tenant.debt = current.debt;
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

impl From<&kv::KvView> for KvSnapshot {
    fn from(view: &kv::KvView) -> Self {
        Self { capacity: view.capacity, usable: view.usable, held: view.held, peak: view.peak }
    }
}

impl From<&LaneView> for LaneSnapshot {
    fn from(view: &LaneView) -> Self {
        Self { in_flight: view.in_flight, queue_depth: view.waiting, floor: view.floor }
    }
}

impl From<&TenantMetrics> for TenantSnapshot {
    fn from(metrics: &TenantMetrics) -> Self {
        let outcomes = Outcome::ALL.map(Outcome::as_str).into_iter().zip(&metrics.outcomes);
        let refused = Reason::ALL.map(Reason::as_str).into_iter().zip(&metrics.refused);
        let nonzero =
            |(label, counter): (_, &IntCounter)| Some((label, counter.get())).filter(|(_, n)| *n > 0);
        Self {
            admitted: metrics.admitted.get(),
            objective_met: metrics.objective.get(),
            outcomes: outcomes.filter_map(nonzero).collect(),
            refused: refused.filter_map(nonzero).collect(),
            input_tokens: metrics.input_tokens.get(),
            output_tokens: metrics.output_tokens.get(),
            queue_wait: Quantiles::from_histograms(&metrics.queue_wait),
            ttft: Quantiles::from_histograms(&metrics.ttft),
            duration: Quantiles::from_histograms(&metrics.duration),
            ..Self::default()
        }
    }
}

impl ToolSnapshot {
    /// Returns the state of a tool. `targets` are all targets of the gate, for `slot_held`.
    pub(crate) fn from_view<'a>(
        view: &SchedulerView,
        metrics: &ToolMetrics,
        targets: impl Iterator<Item = &'a Arc<str>>,
        now: Instant,
    ) -> Self {
        Self {
            limit: view.limit,
            adaptive: view.adaptive.as_ref().map(|view| LimitSnapshot::from_view(view, now)),
            in_flight: view.in_flight,
            peak_in_flight: view.peak,
            queue_depth: view.waiting,
            wait: metrics.waits(),
            refused: metrics.rejections(),
            would: metrics.observed_decisions(),
            slot_held: metrics.held_slots(targets),
        }
    }
}
