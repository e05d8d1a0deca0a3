//! The metrics of the adaptive limit of a target or tool. Fixed limits have no such metrics.

use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec};

use super::families::{Families, set_or_remove};
use crate::adaptive::{AdaptiveView, DecisionCause};

/// The Prometheus series of one adaptive limit. They are created and looked up once, when the
/// target or tool is created.
pub(super) struct LimitMetrics {
    /// Number of changes of the limit, by cause, in the order of [`DecisionCause::ALL`].
    moves: [IntCounter; DecisionCause::ALL.len()],
    saturated: Gauge,
    /// `None` for tools, whose requests have no first token.
    first_tokens: Option<FirstTokenMetrics>,
}

/// The Prometheus series of the calls of a target that await their first token. They exist while
/// the limit of the target is adaptive.
struct FirstTokenMetrics {
    target: String,
    /// The number of these calls, the maximum of that number, the work of these calls, and the work
    /// that keeps the upstream busy.
    gauges: [GaugeVec; 4],
}

impl LimitMetrics {
    pub(super) fn for_target(families: &Families, name: &str) -> Self {
        let Families { awaiting, awaiting_limit, awaiting_work, first_token_capacity, .. } = families;
        let gauges = [awaiting, awaiting_limit, awaiting_work, first_token_capacity].map(GaugeVec::clone);
        let limit = Self::new(name, &families.limit_moves, &families.limit_saturated);
        Self { first_tokens: Some(FirstTokenMetrics { target: name.to_owned(), gauges }), ..limit }
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

    /// Sets the series to the values in `view`, or to those of a limit that is not adaptive any
    /// more if there is none. Called before the metrics are exported.
    pub(super) fn set(&self, view: Option<&AdaptiveView>) {
        let moves = view.into_iter().flat_map(|view| view.limit.moves);
        for (counter, total) in self.moves.iter().zip(moves) {
            counter.inc_by(total.saturating_sub(counter.get()));
        }
        self.set_saturated(view.is_some_and(|view| view.saturated));
        if let Some(FirstTokenMetrics { target, gauges }) = &self.first_tokens {
            let values = view.map(|AdaptiveView { limit, .. }| {
                let capacity = limit.first_token_capacity.map(|capacity| capacity as f64);
                let known = [limit.awaiting as f64, limit.awaiting_limit as f64, limit.awaiting_work as f64];
                let [awaiting, awaiting_limit, work] = known.map(Some);
                [awaiting, awaiting_limit, work, capacity]
            });
            for (gauge, value) in gauges.iter().zip(values.unwrap_or_default()) {
                set_or_remove(gauge, &[target.as_str()], value);
            }
        }
    }

    /// Sets whether the limit is saturated.
    pub(super) fn set_saturated(&self, is_saturated: bool) {
        self.saturated.set(f64::from(u8::from(is_saturated)));
    }
}
