//! The metrics of a gate, in the Prometheus format.
//!
//! The series of configured targets, tenants and tools exist from the start, so that rates start at
//! zero. Histograms by tenant and lane are the exception: they appear with their first value. The
//! exported text of a target that has not been called, has no configured tenants and is not a pool
//! is at most 16 KiB. Each configured tenant adds at most 4 KiB, and each lane in which a tenant
//! calls the target adds 10 KiB more.
//!
//! Tenants that are not configured share the label `other`. The number of label values is therefore
//! bounded, although callers choose the names of tenants.

mod families;
mod hedge_outcome;
mod limit;
mod outcome;
mod quantiles;
mod replica;
mod target;
mod tenant;
mod tool;

use std::sync::Arc;

use families::Families;
#[cfg(feature = "pool")]
pub(crate) use hedge_outcome::HedgeOutcome;
pub(crate) use outcome::Outcome;
pub(crate) use quantiles::Quantiles;
pub(crate) use target::{
    DEFAULT_TENANT, OTHER_REPLICA, PREEMPTED, REPLICA_DOWN, TargetCounter, TargetMetrics, UNKNOWN,
};
pub(crate) use tenant::TenantMetrics;
pub(crate) use tool::{HeldSlotUse, ToolMetrics};

use crate::budget::BudgetView;
use crate::config::{TargetConfig, ToolConfig};
use crate::error::Error;
use crate::placement::ReplicaView;
use crate::schedule::SchedulerView;

/// The metrics of a gate. Each metric name is a family of Prometheus time series, which differ in
/// their label values.
pub(crate) struct Metrics(Arc<Families>);

impl Metrics {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self(Arc::new(Families::new()?)))
    }

    /// Creates the series of a target, by its name and the tenants and replicas in its
    /// configuration.
    pub(crate) fn target(&self, config: &TargetConfig) -> TargetMetrics {
        TargetMetrics::new(self.0.clone(), config)
    }

    /// Creates the series of a tool. All tools must be created before the targets
    /// ([`Metrics::target`]), because each target creates one series of held slots for each tool.
    pub(crate) fn tool(&self, name: &str, config: &ToolConfig) -> ToolMetrics {
        ToolMetrics::new(&self.0, name, config)
    }

    /// Sets the gauges of the targets to the values in `views`, and returns all series in the
    /// Prometheus text format. Each element has the metrics of a target, its scheduler, its rate
    /// budgets and its replicas. The last two may be empty.
    pub(crate) fn text<'a>(
        &self,
        views: impl Iterator<Item = (&'a TargetMetrics, SchedulerView, Vec<BudgetView>, Vec<ReplicaView>)>,
    ) -> String {
        for (target, view, budgets, replicas) in views {
            target.set(&view, &budgets);
            target.set_replicas(&replicas);
        }
        self.0.text()
    }
}
