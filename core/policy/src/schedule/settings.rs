//! The settings of a scheduler, and their derivation from the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::adaptive;
use tidegate_config::{
    LaneConfig, LimitConfig, OnFull, PoolConfig, Predict, RateConfig, TargetConfig, TenantConfig, ToolConfig,
};

/// The settings of a scheduler.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The maximum number of slots. All are in force unless the limit is adaptive.
    pub limit: usize,
    /// The adaptive limit, or `None` for a fixed limit.
    pub adaptive: Option<adaptive::LimitSettings>,
    /// The maximum number of waiting calls per tenant.
    pub queue: usize,
    /// The maximum number of waiting calls of all tenants.
    pub backlog: usize,
    /// The pool, if the target is one. [`Scheduler::set_members`](super::Scheduler::set_members)
    /// sets its replicas. `limit` then applies to all replicas together, and `adaptive` to each of
    /// them.
    pub pool: Option<PoolConfig>,
    /// The size of each replica's memory in tokens, unless the replica is configured or asked for
    /// it.
    pub kv_tokens: Option<u64>,
    /// The share of the memory kept free (0 to 1).
    pub kv_headroom: f64,
    /// Whether calls are queued or refused when no slot is free.
    pub on_full: OnFull,
    /// The wait after which a call's lane is raised by one, and after which the call is no longer
    /// overtaken. Zero: lanes are never raised and no call is overtaken.
    pub aging: Duration,
    /// How much later a call is placed in its line for each 1,000 tokens.
    pub short_bias: Duration,
    /// Whether calls in borrowed slots may be preempted.
    pub reclaim: bool,
    /// When a call is refused because its predicted wait is too long.
    pub predict: Predict,
    /// How much of their tokens per minute tenants may take at once, as a duration.
    pub burst: Duration,
    /// Floors, bounds and objectives of the lanes, in the order of [`Lane::ALL`](crate::Lane::ALL).
    /// Wait budgets come with each ticket.
    pub lanes: [LaneConfig; 3],
    /// The settings of tenants that are not named.
    pub default_tenant: TenantConfig,
    /// Named tenants.
    pub tenants: BTreeMap<Arc<str>, TenantConfig>,
}

impl Settings {
    /// Creates settings with `limit` slots and defaults for all else.
    pub fn limited(limit: usize) -> Self {
        Self { limit, adaptive: None, ..Self::from(&TargetConfig::new("")) }
    }
}

impl From<&TargetConfig> for Settings {
    fn from(target: &TargetConfig) -> Self {
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
            aging: target.aging,
            short_bias: target.short_bias.unwrap_or_default(),
            reclaim: target.reclaim,
            predict: target.predict,
            burst: target.rates.burst,
            lanes,
            default_tenant: target.default_tenant.clone(),
            tenants: target.tenants.clone(),
        }
    }
}

impl From<&ToolConfig> for Settings {
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

/// Returns the adaptive limit of a target, or `None` if its limit is fixed.
fn of_target(target: &TargetConfig) -> Option<adaptive::LimitSettings> {
    let LimitConfig::Adaptive(adaptive) = &target.limit else { return None };
    let objectives = target.lanes.iter().filter_map(|lane| {
        let wait =
            if target.on_full == OnFull::Refuse { Some(Duration::ZERO) } else { lane.wait.or(target.wait) };
        Some(upstream(lane.ttft.or(target.ttft)?, wait))
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

/// Returns the upstream's part of a user TTFT objective: what remains after the longest wait, and
/// at least half.
fn upstream(ttft: Duration, wait: Option<Duration>) -> Duration {
    wait.map_or(ttft / 2, |wait| ttft.saturating_sub(wait).max(ttft / 2))
}

/// Returns the adaptive limit of a tool. Calls of tools are not streamed.
fn of_tool(tool: &ToolConfig) -> Option<adaptive::LimitSettings> {
    let LimitConfig::Adaptive(adaptive) = &tool.limit else { return None };
    let (max, latency, adaptive) = (tool.cap, tool.latency, adaptive.clone());
    Some(adaptive::LimitSettings { max, objective: None, latency, tpot: None, adaptive })
}
