//! What a scheduler is set up with, and where that comes from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::adaptive;
use crate::config::{
    LaneConfig, LimitConfig, OnFull, PoolConfig, Predict, RateConfig, TargetConfig, TenantConfig, ToolConfig,
};

/// What a scheduler is set up with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most slots. All are in force, unless their number is found.
    pub limit: usize,
    /// How the number of slots in force is found; `None`: it is fixed.
    pub adaptive: Option<adaptive::Settings>,
    /// The most calls that may wait, per tenant.
    pub queue: usize,
    /// The most calls that may wait, of all tenants together.
    pub backlog: usize,
    /// The pool that it is in front of; its replicas are told by [`Scheduler::set_members`](super::Scheduler::set_members). The limit bounds all of them together then,
    /// `adaptive` is how each finds its own.
    pub pool: Option<PoolConfig>,
    /// Tokens that the memory of each replica of a pool holds, where it does not say so for itself; `None`: it is asked.
    pub kv_tokens: Option<u64>,
    /// The share of that memory that is kept free.
    pub kv_headroom: f64,
    /// Queue or refuse.
    pub on_full: OnFull,
    /// The time of waiting that raises a call's lane by one, so that it goes before that lane for an eighth of the capacity, and after which the call is no
    /// longer overtaken; zero: lanes are never raised, and nobody is overtaken.
    pub aging: Duration,
    /// By how much later a call of a thousand tokens stands in its own tenant's queue.
    pub short_bias: Duration,
    /// Whether a call that was lent another's floor may be called back.
    pub reclaim: bool,
    /// When a call is refused because it would wait too long.
    pub predict: Predict,
    /// How much of their own tokens a minute tenants may take at once, as time.
    pub burst: Duration,
    /// Floors, bounds and objectives of the lanes, in the order of [`Lane::ALL`](crate::Lane::ALL). Wait budgets come with each ticket.
    pub lanes: [LaneConfig; 3],
    /// What a tenant that is not named gets.
    pub default_tenant: TenantConfig,
    /// Named tenants.
    pub tenants: BTreeMap<Arc<str>, TenantConfig>,
}

impl Settings {
    /// So many slots, and every default.
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

/// What finds the limit of a target, where it is not fixed.
fn of_target(target: &TargetConfig) -> Option<adaptive::Settings> {
    let LimitConfig::Adaptive(adaptive) = &target.limit else { return None };
    let objectives = target.lanes.iter().filter_map(|lane| {
        let wait =
            if target.on_full == OnFull::Refuse { Some(Duration::ZERO) } else { lane.wait.or(target.wait) };
        Some(upstream(lane.ttft.or(target.ttft)?, wait))
    });
    Some(adaptive::Settings {
        // Of a pool each replica has a limit of its own.
        max: target.pool.as_ref().map_or(target.cap, |pool| pool.cap),
        // One upstream serves all lanes, so the strictest of them sets the pace.
        objective: objectives.min(),
        latency: None,
        tpot: target.tpot,
        adaptive: adaptive.clone(),
    })
}

/// What an objective of user TTFT, the wait for a slot included, leaves the upstream: what no call may wait for, and half of it at least.
fn upstream(ttft: Duration, wait: Option<Duration>) -> Duration {
    wait.map_or(ttft / 2, |wait| ttft.saturating_sub(wait).max(ttft / 2))
}

/// The same of a tool, of which every call is one that does not stream.
fn of_tool(tool: &ToolConfig) -> Option<adaptive::Settings> {
    let LimitConfig::Adaptive(adaptive) = &tool.limit else { return None };
    let (max, latency, adaptive) = (tool.cap, tool.latency, adaptive.clone());
    Some(adaptive::Settings { max, objective: None, latency, tpot: None, adaptive })
}
