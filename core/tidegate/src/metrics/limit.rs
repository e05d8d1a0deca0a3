//! The metrics of the adaptive limit of a target or tool. Fixed limits have no such metrics.

use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec};

use super::families::Families;
use crate::adaptive::{AdaptiveView, DecisionCause};

/// The Prometheus series of one adaptive limit. They are created and looked up once, when the
/// target or tool is created.
pub(super) struct LimitMetrics {
    /// Number of changes of the limit, by cause, in the order of [`DecisionCause::ALL`].
    moves: [IntCounter; DecisionCause::ALL.len()],
    saturated: Gauge,
    /// The number of calls that await their first token, the maximum of that number, and the work of
    /// these calls. `None` for tools, whose requests have no first token.
    first_tokens: Option<[Gauge; 3]>,
}

impl LimitMetrics {
    pub(super) fn for_target(families: &Families, name: &str) -> Self {
        let gauges = [&families.awaiting, &families.awaiting_limit, &families.awaiting_work];
        let limit = Self::new(name, &families.limit_moves, &families.limit_saturated);
        Self { first_tokens: Some(gauges.map(|family| family.with_label_values(&[name]))), ..limit }
    }

    pub(super) fn for_tool(families: &Families, name: &str) -> Self {
        Self::new(name, &families.tool_limit_moves, &families.tool_limit_saturated)
    }

    fn new(name: &str, moves: &IntCounterVec, saturated: &GaugeVec) -> Self {
        Self {
            moves: DecisionCause::ALL.map(|cause| moves.with_label_values(&[name, cause.as_str()])),
            saturated: saturated.with_label_values(&[name]),
            first_tokens: None,
        }
    }

    /// Sets the series to the values in `view`. Called before the metrics are exported.
    pub(super) fn set(&self, view: &AdaptiveView) {
        for (counter, total) in self.moves.iter().zip(view.limit.moves) {
            counter.inc_by(total.saturating_sub(counter.get()));
        }
        self.saturated.set(f64::from(u8::from(view.saturated)));
        if let Some([awaiting, awaiting_limit, work]) = &self.first_tokens {
            awaiting.set(view.limit.awaiting as f64);
            awaiting_limit.set(view.limit.awaiting_limit as f64);
            work.set(view.limit.awaiting_work as f64);
        }
    }
}
