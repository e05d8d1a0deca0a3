//! The state of a gate at one moment, as plain data. It has the same fields in Rust, Python, Node
//! and JSON.

mod limit;
mod replica;
mod share;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use prometheus::IntCounter;
use serde::Serialize;

pub use limit::{DecisionSnapshot, LimitSnapshot};
pub use replica::ReplicaSnapshot;
pub use share::ShareSnapshot;

use crate::budget::BudgetView;
use crate::context::Lane;
use crate::error::Reason;
use crate::kv;
use crate::metrics::{Outcome, Quantiles, TargetCounter, TargetMetrics, TenantMetrics, ToolMetrics};
use crate::pool::TargetPool;
use crate::schedule::{LaneView, SchedulerView};
use crate::target::Target;

/// The state of a gate at one moment, from [`Gate::snapshot`](crate::Gate::snapshot). Durations are
/// in seconds.
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
    /// `true` if new calls are rejected, because [`Gate::drain`](crate::Gate::drain) was called.
    pub draining: bool,
    /// Number of calls in progress, including queued calls and calls that wait for a retry.
    pub active: usize,
    /// The targets by name, including those created for requests that no configured target matches.
    pub targets: BTreeMap<Arc<str>, TargetSnapshot>,
    /// The configured tools, by name.
    pub tools: BTreeMap<String, ToolSnapshot>,
}

/// The state of one target. Durations are in seconds. Counters start at the creation of the target.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct TargetSnapshot {
    /// Current limit, in slots.
    pub limit: usize,
    /// The state of the adaptive limit. `None` if the limit is fixed or, in a pool, if each replica
    /// has its own limit.
    pub adaptive: Option<LimitSnapshot>,
    /// The part of the cap that this process may use. `None` if other processes do not share the
    /// cap.
    pub share: Option<ShareSnapshot>,
    /// Number of slots in use now.
    pub in_flight: usize,
    /// Maximum number of slots that were in use at the same time since the target was created.
    pub peak_in_flight: usize,
    /// Number of calls that wait for a slot, or for the end of a cool-down of their credential and
    /// model.
    pub queue_depth: usize,
    /// Cool-down state of the target as a whole. If several credentials or models use it, each also
    /// has a cool-down of its own.
    ///
    /// - `open`: calls are admitted.
    /// - `cooling`: no call is admitted until the cool-down ends.
    /// - `probing`: single calls test whether the upstream has recovered.
    /// - `ramping`: after a cool-down, calls are admitted at a growing rate.
    pub state: &'static str,
    /// Time until the cool-down ends, in seconds. If several credentials or models use the target,
    /// the longest cool-down of them. `None` if the target does not cool down, or if the time is
    /// not known.
    pub cool_for: Option<f64>,
    /// Time for which free capacity has been reserved for a call that has waited long and does not
    /// fit yet, in seconds. `None` if nothing is reserved.
    pub held_for: Option<f64>,
    /// Share of the time since the creation of the target in which a waiting call met every rule
    /// and was not sent, from 0 to 1. Near 0 unless the scheduler has a defect.
    pub gap_fraction: f64,
    /// Number of retries that the retry budget allows now. The fractional part counts toward the
    /// next retry.
    pub retry_budget: f64,
    /// The rate budgets, by kind of limit. They are configured, or learned from the rate-limit
    /// headers of the provider. Empty if there are none.
    pub budgets: BTreeMap<&'static str, BudgetSnapshot>,
    /// The KV-cache memory of the inference engine. `None` if its size is unknown.
    pub kv: Option<KvSnapshot>,
    /// The replicas of the pool. Empty if the target is not a pool.
    pub replicas: Vec<ReplicaSnapshot>,
    /// Why the latest discovery of replicas through DNS or a file failed. The replicas found
    /// before, if there are any, stay in use. `None` if it succeeded, or if replicas are not
    /// discovered.
    pub replicas_problem: Option<String>,
    /// The lanes, by name: `interactive`, `standard` and `batch`.
    pub lanes: BTreeMap<&'static str, LaneSnapshot>,
    /// Number of attempts sent to the upstream since the target was created.
    pub attempts: u64,
    /// Number of retries by cause: the failure class of the failed attempt, `preempted` (a borrowed
    /// slot was taken back), `elsewhere` (immediately retried at another replica) or
    /// `replica_down`. Causes without retries are omitted.
    pub retries: BTreeMap<&'static str, u64>,
    /// Number of failed attempts by failure class. Classes without failures are omitted.
    pub failed_attempts: BTreeMap<&'static str, u64>,
    /// Number of calls that failed at the target, by the reason why no retry was made. The caller
    /// does not see a failure if a fallback target answers. Reasons without failures are omitted.
    pub gave_up: BTreeMap<&'static str, u64>,
    /// Number of failures that started a cool-down or occurred during one, by kind: `retry_after`
    /// (requested by the provider) or `outage` (repeated failures).
    pub cool_downs: BTreeMap<&'static str, u64>,
    /// Number of calls that were sent to the fallback target, by the reason: that of the rejection,
    /// or `outage` if no connection could be made. Empty if there were none.
    pub fallbacks: BTreeMap<&'static str, u64>,
    /// Number of second attempts (hedges) for calls whose first token was late, by outcome: `sent`,
    /// `won` (the hedge produced the first token), `no_slot` and `no_budget` (the hedge was not
    /// sent). Empty if the target is not a pool.
    pub hedges: BTreeMap<&'static str, u64>,
    /// Number of calls in mode `observe` that mode `enforce` would have queued or rejected, by
    /// decision: `wait` if the call would have been queued, otherwise the reason of the rejection.
    /// Decisions without calls are omitted.
    pub would: BTreeMap<&'static str, u64>,
    /// Times from sending an attempt to its first token, in seconds.
    pub upstream_ttft: Quantiles,
    /// Mean times per output token of the responses, without their first tokens, in seconds.
    pub tpot: Quantiles,
    /// The tenants, by name. Tenants that are not configured share the counters of the entry
    /// `other`; they have entries of their own only while they use or await slots.
    pub tenants: BTreeMap<String, TenantSnapshot>,
}

/// The state of one rate limit in requests or tokens, which is a token bucket.
#[derive(Clone, Debug, Serialize)]
pub struct BudgetSnapshot {
    /// Current limit, in requests or tokens per `window`.
    pub limit: u64,
    /// Length of the window, in seconds: for example, 60 for a limit per minute.
    pub window: f64,
    /// Number of requests or tokens that may be sent now. 0 if there is a debt.
    pub level: u64,
    /// Number of requests or tokens by which calls have exceeded the budget. New calls wait until
    /// the debt is repaid over time.
    pub debt: u64,
    /// Source of the limit: `configured`, or `headers` of the provider's responses.
    pub source: &'static str,
    /// Maximum burst, in seconds: after a pause, calls may use the quota of this many seconds at
    /// the same time.
    pub burst: f64,
    /// How the tokens of a call are counted: `sum`, `larger`, `actual` or `input` (see
    /// [`Counting`](crate::config::Counting)).
    pub counting: &'static str,
    /// The number of processes that share the limit, as last heard. `None` if it is not shared.
    pub processes: Option<usize>,
}

/// The KV-cache memory (key-value cache) of an inference engine, in tokens.
#[derive(Clone, Debug, Serialize)]
pub struct KvSnapshot {
    /// Size of the memory, in tokens.
    pub capacity: u64,
    /// Tokens that calls may use: the capacity minus the configured headroom.
    pub usable: u64,
    /// Number of tokens that the calls in flight occupy now, as far as the gate has observed.
    pub held: u64,
    /// Predicted maximum number of tokens that the calls in flight will occupy at the same time.
    pub peak: u64,
}

/// The state of one lane, which is a priority class, of a target.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LaneSnapshot {
    /// Number of slots of the target in use by calls of the lane.
    pub in_flight: usize,
    /// Number of calls of the lane that wait for a slot.
    pub queue_depth: usize,
    /// Number of slots of the current limit that are reserved for the lane. 0 if none are.
    pub floor: usize,
}

/// The state of one tenant at a target. Durations are in seconds. Counters start at the creation of
/// the target.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct TenantSnapshot {
    /// Number of slots of the target in use by calls of the tenant.
    pub in_flight: usize,
    /// Maximum number of slots that calls of the tenant used at the same time since the target was
    /// created.
    pub peak_in_flight: usize,
    /// Number of calls of the tenant that wait for a slot.
    pub queue_depth: usize,
    /// Number of slots of the current limit that are reserved for the tenant. 0 if none are.
    pub floor: usize,
    /// Number of tokens by which calls of the tenant exceeded the token limit of the tenant. 0 if
    /// there is no such limit.
    pub debt: u64,
    /// For how long no call of the tenant has been sent because the tenant uses its share of an
    /// adaptive limit or of its first-token capacity. `None` if its calls may be sent.
    pub held_for: Option<f64>,
    /// Number of attempts that were granted a slot.
    pub admitted: u64,
    /// Number of completed calls that met the objective for the time to the first token (`ttft`) of
    /// their lane or, if the lane has none, of the target. Calls that do not stream count if their
    /// duration is within the objective. 0 without an objective.
    pub objective_met: u64,
    /// Number of calls that have ended, by outcome. The outcomes are those of
    /// [`CallRecord::outcome`](crate::CallRecord::outcome).
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Number of calls that admission rejected, by reason. Reasons without rejections are omitted.
    pub refused: BTreeMap<&'static str, u64>,
    /// Number of input tokens that the provider reported.
    pub input_tokens: u64,
    /// Number of output tokens that the provider reported.
    pub output_tokens: u64,
    /// Times that admitted attempts waited in the queue, in seconds.
    pub queue_wait: Quantiles,
    /// Times from the start of a call to its first token, including the time in the queue, in
    /// seconds.
    pub ttft: Quantiles,
    /// Durations of completed calls, including the time in the queue, in seconds.
    pub duration: Quantiles,
}

/// The state of one tool.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct ToolSnapshot {
    /// Current limit, in slots.
    pub limit: usize,
    /// The state of the adaptive limit. `None` if the limit is fixed.
    pub adaptive: Option<LimitSnapshot>,
    /// The part of the cap that this process may use. `None` if other processes do not share the
    /// cap.
    pub share: Option<ShareSnapshot>,
    /// Number of slots in use now.
    pub in_flight: usize,
    /// Maximum number of slots that were in use at the same time since the gate was created.
    pub peak_in_flight: usize,
    /// Number of tasks that wait for a slot of the tool.
    pub queue_depth: usize,
    /// Times that admitted tasks waited for the tool, in seconds.
    pub wait: Quantiles,
    /// Number of rejected requests for the tool, by reason. Reasons without rejections are omitted.
    pub refused: BTreeMap<&'static str, u64>,
    /// Number of requests for the tool in mode `observe` or `off` that mode `enforce` would have
    /// queued or rejected, by decision: `wait` if the request would have been queued, otherwise the
    /// reason of the rejection. Decisions without requests are omitted.
    pub would: BTreeMap<&'static str, u64>,
    /// Number of model slots that tasks held when they requested this tool, by target and then by
    /// result: `got` (the tool was free), `waited` (the task kept the slot while it waited), or
    /// `yielded` (the slot could be released early).
    pub slot_held: BTreeMap<Arc<str>, BTreeMap<&'static str, u64>>,
}

impl TargetSnapshot {
    /// Returns the state of a target at `now`.
    pub(crate) fn from_target(target: &Target, now: Instant) -> Self {
        let view = target.view();
        let metrics = target.metrics();
        let retry_budget = target.divided_retries().balance(now);
        Self {
            limit: view.limit,
            adaptive: view.adaptive.as_ref().map(|view| LimitSnapshot::from_view(view, now)),
            share: view.share.as_ref().map(ShareSnapshot::from),
            in_flight: view.in_flight,
            peak_in_flight: view.peak,
            queue_depth: view.waiting,
            state: view.state.as_str(),
            cool_for: view.cool_for.map(|left| left.as_secs_f64()),
            held_for: view.held_for.map(|held| held.as_secs_f64()),
            gap_fraction: view.gap.as_secs_f64() / view.up.as_secs_f64().max(f64::MIN_POSITIVE),
            retry_budget,
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

/// Returns the state of each tenant of a target, by name: its counters from `metrics`, joined with
/// its slots and queue from `view`. Tenants that share the counters of `other` are included only
/// while they use or await slots.
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
            tenant.held_for = current.held_for.map(|held| held.as_secs_f64());
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
            processes: view.processes,
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
    /// Returns the state of a tool at `now`. `targets` are the names of all targets of the gate,
    /// which `slot_held` needs.
    pub(crate) fn from_view<'a>(
        view: &SchedulerView,
        metrics: &ToolMetrics,
        targets: impl Iterator<Item = &'a Arc<str>>,
        now: Instant,
    ) -> Self {
        Self {
            limit: view.limit,
            adaptive: view.adaptive.as_ref().map(|view| LimitSnapshot::from_view(view, now)),
            share: view.share.as_ref().map(ShareSnapshot::from),
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
