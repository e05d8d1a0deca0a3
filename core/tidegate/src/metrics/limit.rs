//! The series of an adaptive limit of a target or tool. A fixed limit has none.

use prometheus::{Gauge, IntCounter};

use super::families::Families;
use crate::adaptive::{AdaptiveView, DecisionCause};

/// The owner of a limit, which determines the metric families.
#[derive(Clone, Copy)]
pub(super) enum LimitOwner {
    Target,
    Tool,
}

/// The series of one adaptive limit, looked up once. Each exists from the start.
pub(super) struct LimitMetrics {
    /// In the order of [`DecisionCause::ALL`].
    moves: [IntCounter; DecisionCause::ALL.len()],
    saturated: Gauge,
    /// `None` for tools, which have no first tokens.
    first_tokens: Option<FirstTokens>,
}

struct FirstTokens {
    awaited: Gauge,
    most: Gauge,
}

impl LimitMetrics {
    pub(super) fn new(families: &Families, owner: LimitOwner, name: &str) -> Self {
        let (moves, saturated) = match owner {
            LimitOwner::Target => (&families.limit_moves, &families.limit_saturated),
            LimitOwner::Tool => (&families.tool_limit_moves, &families.tool_limit_saturated),
        };
        let first_tokens = || FirstTokens {
            awaited: families.awaiting.with_label_values(&[name]),
            most: families.awaiting_limit.with_label_values(&[name]),
        };
        Self {
            moves: DecisionCause::ALL.map(|cause| moves.with_label_values(&[name, cause.as_str()])),
            saturated: saturated.with_label_values(&[name]),
            first_tokens: matches!(owner, LimitOwner::Target).then(first_tokens),
        }
    }

    /// Sets the series from a view, before they are exported.
    pub(super) fn set(&self, view: &AdaptiveView) {
        for (counter, seen) in self.moves.iter().zip(view.limit.moves) {
            counter.inc_by(seen.saturating_sub(counter.get()));
        }
        self.saturated.set(f64::from(u8::from(view.saturated)));
        if let Some(first_tokens) = &self.first_tokens {
            first_tokens.awaited.set(view.limit.awaiting as f64);
            first_tokens.most.set(view.limit.awaiting_limit as f64);
        }
    }
}
