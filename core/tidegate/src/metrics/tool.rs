//! The series of one tool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{Gauge, Histogram, IntCounter};

use super::families::Families;
use super::limit::{LimitMetrics, LimitOwner};
use super::target::decisions;
use crate::config::{LimitConfig, ToolConfig};
use crate::error::Reason;
use crate::metrics::Quantiles;
use crate::schedule::SchedulerView;

/// What happened to a model slot that a task held when it asked for a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldSlotUse {
    /// The tool was free. The slot stays in use while the task holds the tool.
    Got,
    /// The task waited for the tool, and the slot stayed in use.
    Waited,
    /// The response is read ahead meanwhile, so that the slot can be released early.
    Yielded,
}

impl HeldSlotUse {
    pub(super) const ALL: [HeldSlotUse; 3] = [HeldSlotUse::Got, HeldSlotUse::Waited, HeldSlotUse::Yielded];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            HeldSlotUse::Got => "got",
            HeldSlotUse::Waited => "waited",
            HeldSlotUse::Yielded => "yielded",
        }
    }
}

/// The series of one tool, looked up once. Each exists from the start.
pub(crate) struct ToolMetrics {
    name: Arc<str>,
    families: Arc<Families>,
    wait: Histogram,
    refused: Vec<(Reason, IntCounter)>,
    would: Vec<(&'static str, IntCounter)>,
    in_flight: Gauge,
    limit: Gauge,
    adaptive: Option<LimitMetrics>,
    waiting: Gauge,
}

impl ToolMetrics {
    pub(super) fn new(families: &Arc<Families>, tool: &str, config: &ToolConfig) -> Self {
        let refused = |reason: Reason| families.tool_refused.with_label_values(&[tool, reason.as_str()]);
        let would = |decision| families.tool_would.with_label_values(&[tool, decision]);
        families.of_tool(tool);
        Self {
            name: tool.into(),
            families: families.clone(),
            wait: families.tool_wait.with_label_values(&[tool]),
            refused: Reason::ALL.map(|reason| (reason, refused(reason))).into(),
            would: decisions().map(|decision| (decision, would(decision))).collect(),
            in_flight: families.tool_in_flight.with_label_values(&[tool]),
            limit: families.tool_limit.with_label_values(&[tool]),
            adaptive: (config.limit != LimitConfig::Fixed)
                .then(|| LimitMetrics::new(families, LimitOwner::Tool, tool)),
            waiting: families.tool_waiting.with_label_values(&[tool]),
        }
    }

    /// Records how long an admitted call waited for the tool.
    pub(crate) fn admitted(&self, waited: Duration) {
        self.wait.observe(waited.as_secs_f64());
    }

    /// Counts a rejected wait, by reason.
    pub(crate) fn refused(&self, reason: Reason) {
        self.refused.iter().filter(|(known, _)| *known == reason).for_each(|(_, count)| count.inc());
    }

    /// Counts what mode `observe` would have done.
    pub(crate) fn would(&self, decision: &str) {
        self.would.iter().filter(|(known, _)| *known == decision).for_each(|(_, count)| count.inc());
    }

    /// Counts a request for the tool by a task that held a slot of `target`.
    pub(crate) fn asked_while_held(&self, target: &str, how: HeldSlotUse) {
        self.families.held.with_label_values(&[target, &self.name, how.as_str()]).inc();
    }

    /// Returns how often tasks asked for the tool while they held a slot, by target. Omits zeros.
    pub(crate) fn held_seen<'a>(
        &self,
        targets: impl Iterator<Item = &'a Arc<str>>,
    ) -> BTreeMap<Arc<str>, BTreeMap<&'static str, u64>> {
        let of = |target: &Arc<str>| {
            let count = |how: HeldSlotUse| {
                self.families.held.with_label_values(&[target, &self.name, how.as_str()]).get()
            };
            let seen = HeldSlotUse::ALL.map(|how| (how.as_str(), count(how)));
            seen.into_iter().filter(|(_, count)| *count > 0).collect::<BTreeMap<_, _>>()
        };
        let seen = targets.map(|target| (target.clone(), of(target)));
        seen.filter(|(_, seen)| !seen.is_empty()).collect()
    }

    /// Returns the distribution of the waits for the tool.
    pub(crate) fn wait_seen(&self) -> Quantiles {
        Quantiles::of(&[&self.wait])
    }

    /// Returns the number of rejections by reason. Omits zeros.
    pub(crate) fn refused_seen(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.refused
            .iter()
            .map(|(reason, count)| (reason.as_str(), count.get()))
            .filter(|(_, count)| *count > 0)
    }

    /// Returns what mode `observe` would have done, by decision. Omits zeros.
    pub(crate) fn would_seen(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.would.iter().map(|(decision, count)| (*decision, count.get())).filter(|(_, count)| *count > 0)
    }

    /// Sets the gauges from a view, before they are exported.
    pub(crate) fn set(&self, view: &SchedulerView) {
        self.in_flight.set(view.in_flight as f64);
        self.limit.set(view.limit as f64);
        if let (Some(limit), Some(seen)) = (&self.adaptive, &view.adaptive) {
            limit.set(seen);
        }
        self.waiting.set(view.waiting as f64);
    }
}
