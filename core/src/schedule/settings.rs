//! What a scheduler is set up with, and where that comes from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{LaneConfig, OnFull, Predict, RateConfig, TargetConfig, TenantConfig, ToolConfig};

/// What a scheduler is set up with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most slots.
    pub limit: usize,
    /// The most calls that may wait, per tenant.
    pub queue: usize,
    /// The most calls that may wait, of all tenants together.
    pub backlog: usize,
    /// Queue or refuse.
    pub on_full: OnFull,
    /// The time of waiting that raises a call by one lane, and after which it is no longer overtaken; zero: lanes are never raised, and nobody is
    /// overtaken.
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
        Self { limit, ..Self::from(&TargetConfig::named("")) }
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
            queue: target.queue,
            backlog: target.backlog,
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
            queue: tool.queue,
            on_full: tool.on_full,
            burst: RateConfig::default().burst,
            ..Self::limited(tool.cap)
        }
    }
}
