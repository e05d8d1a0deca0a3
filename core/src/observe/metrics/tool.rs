//! The series of one tool.

use std::time::Duration;

use prometheus::{Gauge, Histogram, IntCounter};

use super::families::Families;
use super::target::decisions;
use crate::error::Reason;
use crate::observe::Quantiles;
use crate::schedule::View;

/// Looked up once; each exists from the start.
pub(crate) struct ToolMetrics {
    wait: Histogram,
    refused: Vec<(Reason, IntCounter)>,
    would: Vec<(&'static str, IntCounter)>,
    in_flight: Gauge,
    limit: Gauge,
    waiting: Gauge,
}

impl ToolMetrics {
    pub(super) fn new(families: &Families, tool: &str) -> Self {
        let refused = |reason: Reason| families.tool_refused.with_label_values(&[tool, reason.as_str()]);
        let would = |decision| families.tool_would.with_label_values(&[tool, decision]);
        Self {
            wait: families.tool_wait.with_label_values(&[tool]),
            refused: Reason::ALL.map(|reason| (reason, refused(reason))).into(),
            would: decisions().map(|decision| (decision, would(decision))).collect(),
            in_flight: families.tool_in_flight.with_label_values(&[tool]),
            limit: families.tool_limit.with_label_values(&[tool]),
            waiting: families.tool_waiting.with_label_values(&[tool]),
        }
    }

    pub(crate) fn admitted(&self, waited: Duration) {
        self.wait.observe(waited.as_secs_f64());
    }

    pub(crate) fn refused(&self, reason: Reason) {
        self.refused.iter().filter(|(known, _)| *known == reason).for_each(|(_, count)| count.inc());
    }

    pub(crate) fn would(&self, decision: &str) {
        self.would.iter().filter(|(known, _)| *known == decision).for_each(|(_, count)| count.inc());
    }

    pub(crate) fn wait_seen(&self) -> Quantiles {
        Quantiles::of(&[&self.wait])
    }

    /// What was refused, by reason; nothing that is zero.
    pub(crate) fn refused_seen(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.refused
            .iter()
            .map(|(reason, count)| (reason.as_str(), count.get()))
            .filter(|(_, count)| *count > 0)
    }

    /// What observe mode would have done, by decision; nothing that is zero.
    pub(crate) fn would_seen(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.would.iter().map(|(decision, count)| (*decision, count.get())).filter(|(_, count)| *count > 0)
    }

    pub(crate) fn set(&self, view: &View) {
        self.in_flight.set(view.in_flight as f64);
        self.limit.set(view.limit as f64);
        self.waiting.set(view.waiting as f64);
    }
}
