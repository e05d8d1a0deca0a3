//! The settings of a scheduler, and their derivation from the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::{Lane, adaptive};
use tidegate_config::{
    LaneConfig, LimitConfig, OnFull, PoolConfig, Predict, RateConfig, TargetConfig, TenantConfig, ToolConfig,
};

/// The settings of a [`Scheduler`](super::Scheduler). Usually derived from the configuration of a
/// target or tool by `From`.
#[derive(Clone, Debug)]
pub struct SchedulerSettings {
    /// The maximum number of slots, that is, of calls in flight. An adaptive limit may be lower; a
    /// fixed limit always equals it.
    pub limit: usize,
    /// The settings of the adaptive limit, or `None` if the limit is fixed.
    pub adaptive: Option<adaptive::LimitSettings>,
    /// The maximum number of waiting calls of one tenant, for tenants that do not configure their
    /// own.
    pub queue: usize,
    /// The maximum number of waiting calls of all tenants together.
    pub backlog: usize,
    /// The settings of the pool, or `None` if the upstream is a single server.
    /// [`Scheduler::set_members`](super::Scheduler::set_members) sets its replicas. For a pool,
    /// `limit` applies to all replicas together, and `adaptive` to each of them.
    pub pool: Option<PoolConfig>,
    /// The KV-cache memory of each replica of a pool in tokens, unless the replica configures its
    /// own. `None`: the size that the replica reports, if it reports one. Ignored for a single
    /// server: see [`Resources::kv`](super::Resources::kv).
    pub kv_tokens: Option<u64>,
    /// The share of each replica's memory that is kept free (0 to 1). Ignored for a single server.
    pub kv_headroom: f64,
    /// Whether calls are queued or refused when they are not admissible.
    pub on_full: OnFull,
    /// Whether refused calls are sent to another target. Times in which this target is closed then
    /// count for wait budgets, and retries are not queued with [`OnFull::Refuse`].
    pub has_fallback: bool,
    /// The ageing time. Each time the oldest call of a lane has waited this long, the lane is
    /// raised by one. A lane that is raised to the highest lane with waiting calls may be served
    /// first, within an eighth of the capacity. Once any call has waited this long, other calls of
    /// the same scheduler may no longer take the resources that it lacks. Calls of other schedulers
    /// that share its rate budgets still may: see
    /// [`Resources::budgets`](super::Resources::budgets). Zero: lanes are never raised, and these
    /// resources are reserved at once.
    pub aging: Duration,
    /// The time by which a call is placed later in its line (the waiting calls of one tenant in one
    /// lane) for each 1,000 tokens of input and expected output, so that short calls are preferred.
    /// Zero: calls of a line are dispatched in the order of their age.
    pub short_bias: Duration,
    /// Whether calls without a response head may be preempted to free slots that are reserved for
    /// other tenants or lanes. See [`Scheduler::preempt`](super::Scheduler::preempt).
    pub reclaim: bool,
    /// Whether a call is refused because of its predicted wait, and which limit that wait must not
    /// exceed.
    pub predict: Predict,
    /// The size of each tenant's bucket for its own tokens, given as the time in which it fills at
    /// the tenant's tokens per minute (`tpm`). Calls may use what the bucket holds. A full bucket
    /// admits any call.
    pub burst: Duration,
    /// The TTFT objectives that bound the wait, in the order of [`Lane::ALL`](crate::Lane::ALL):
    /// a call of such a lane is refused when the remaining time is less than the upstream needs.
    /// `None` for lanes without an objective, with a configured wait budget, and for the batch lane
    /// unless it has an objective of its own.
    pub wait_objectives: [Option<Duration>; 3],
    /// The floors, queue maxima and latency objectives of the lanes, in the order of
    /// [`Lane::ALL`](crate::Lane::ALL). Wait budgets are ignored, because each
    /// [`Ticket`](super::Ticket) has its own.
    pub lanes: [LaneConfig; 3],
    /// The settings of tenants that are not in `tenants`.
    pub default_tenant: TenantConfig,
    /// The settings of tenants by name.
    pub tenants: BTreeMap<Arc<str>, TenantConfig>,
}

impl SchedulerSettings {
    /// Creates settings with a fixed limit of `limit` slots. All other settings are those of a
    /// target without configuration.
    pub fn limited(limit: usize) -> Self {
        Self { limit, adaptive: None, ..Self::from(&TargetConfig::new("")) }
    }
}

impl From<&TargetConfig> for SchedulerSettings {
    fn from(target: &TargetConfig) -> Self {
        let wait_objectives = Lane::ALL.map(|lane| {
            let config = &target.lanes[lane as usize];
            let inherited = target.ttft.filter(|_| lane != Lane::Batch);
            config.ttft.or(inherited).filter(|_| config.wait.or(target.wait).is_none())
        });
        let mut lanes = target.lanes.clone();
        for lane in &mut lanes {
            lane.ttft = lane.ttft.or(target.ttft);
        }
        Self {
            limit: target.cap,
            adaptive: of_target(target),
            queue: target.queue,
            backlog: target.backlog,
            pool: target.pool.clone(),
            kv_tokens: target.kv_tokens,
            kv_headroom: target.kv_headroom,
            on_full: target.on_full,
            has_fallback: target.fallback.is_some(),
            aging: target.aging,
            short_bias: target.short_bias.unwrap_or_default(),
            reclaim: target.reclaim,
            predict: target.predict,
            burst: target.rates.burst,
            wait_objectives,
            lanes,
            default_tenant: target.default_tenant.clone(),
            tenants: target.tenants.clone(),
        }
    }
}

impl From<&ToolConfig> for SchedulerSettings {
    fn from(tool: &ToolConfig) -> Self {
        Self {
            limit: tool.cap,
            adaptive: of_tool(tool),
            queue: tool.queue,
            on_full: tool.on_full,
            burst: RateConfig::default().burst,
            ..Self::limited(tool.cap)
        }
    }
}

/// Returns the settings of a target's adaptive limit, or `None` if its limit is fixed.
fn of_target(target: &TargetConfig) -> Option<adaptive::LimitSettings> {
    let LimitConfig::Adaptive(adaptive) = &target.limit else { return None };
    let objectives = target.lanes.iter().filter_map(|lane| {
        let ttft = lane.ttft.or(target.ttft)?;
        let wait =
            if target.on_full == OnFull::Refuse { Some(Duration::ZERO) } else { lane.wait.or(target.wait) };
        // The objective covers the wait and the upstream. The upstream's part is what remains after
        // the longest wait, and at least half.
        Some(wait.map_or(ttft / 2, |wait| ttft.saturating_sub(wait).max(ttft / 2)))
    });
    Some(adaptive::LimitSettings {
        // For a pool, each replica has a limit of its own.
        max: target.pool.as_ref().map_or(target.cap, |pool| pool.cap),
        // One upstream serves all lanes, so the strictest objective counts.
        objective: objectives.min(),
        latency: None,
        tpot: target.tpot,
        adaptive: adaptive.clone(),
    })
}

/// Returns the settings of a tool's adaptive limit, or `None` if its limit is fixed. Answers of
/// tools are not streamed, so there is no objective for the first token.
fn of_tool(tool: &ToolConfig) -> Option<adaptive::LimitSettings> {
    let LimitConfig::Adaptive(adaptive) = &tool.limit else { return None };
    let (max, latency, adaptive) = (tool.cap, tool.latency, adaptive.clone());
    Some(adaptive::LimitSettings { max, objective: None, latency, tpot: None, adaptive })
}
