//! Every series that a gate exports. Each exists from the start for what is configured, so that a rate over it has a zero to start from.
//! Histograms by tenant and lane are the exception: they appear with their first value. The text of
//! an uncalled target that has no configured tenants and is not a pool is at most 16 KiB. Each
//! configured tenant adds at most 4 KiB, and each lane of a tenant that calls the target 10 KiB
//! more.
//!
//! Tenants that nobody configured share the label `other`: label values never come from outside without a bound.

mod families;
mod hedged;
mod limit;
mod replica;
mod target;
mod tenant;
mod tool;

use std::sync::Arc;

use families::Families;
pub(crate) use hedged::Hedged;
pub(crate) use target::{CALLED_BACK, DEFAULT_TENANT, ELSEWHERE, Family, REPLICA_DOWN, TargetMetrics};
pub(crate) use tenant::{TenantMetrics, TenantSeen};
pub(crate) use tool::{HeldHow, ToolMetrics};

use crate::budget::BudgetView;
use crate::config::{TargetConfig, ToolConfig};
use crate::error::Error;
use crate::placement::ReplicaView;
use crate::schedule::View;

/// The series of a gate.
pub(crate) struct Metrics(Arc<Families>);

impl Metrics {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self(Arc::new(Families::new()?)))
    }

    /// The series of one target, from now on.
    pub(crate) fn target(&self, config: &TargetConfig) -> TargetMetrics {
        TargetMetrics::new(self.0.clone(), config)
    }

    /// The series of one tool, from now on. Those that it has with each target exist for targets that come after it.
    pub(crate) fn tool(&self, name: &str, config: &ToolConfig) -> ToolMetrics {
        ToolMetrics::new(&self.0, name, config)
    }

    /// The text of all series, after the gauges were set from these views.
    pub(crate) fn text<'a>(
        &self,
        views: impl Iterator<Item = (&'a TargetMetrics, View, Vec<BudgetView>, Vec<ReplicaView>)>,
    ) -> String {
        for (target, view, budgets, replicas) in views {
            target.set(&view, &budgets);
            target.set_replicas(&replicas);
        }
        self.0.text()
    }
}
