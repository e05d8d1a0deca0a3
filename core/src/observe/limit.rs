//! What an adaptive limit shows of itself, so that a person can trust it.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::adaptive::AdaptiveView;
use crate::adaptive::Decision;

/// An adaptive limit, as it stands. Times are seconds.
#[derive(Clone, Debug, Serialize)]
pub struct LimitSnapshot {
    /// Slots in force.
    pub limit: usize,
    /// The most that it may come to: the cap.
    pub ceiling: usize,
    /// Calls in flight that await their first token.
    pub awaiting: usize,
    /// The most that may.
    pub awaiting_limit: usize,
    /// Whether no level is known yet that was too much: each call in time raises it by one. Always false under a percentile.
    pub slow_start: bool,
    /// The upstream's part of the objective, where one is set.
    pub objective: Option<f64>,
    /// The share of calls judged of late that were late (0 to 1); `None`: none was judged.
    pub late: Option<f64>,
    /// The evidence of a breach: at 1 the limit is cut. Under a percentile: the quantile over the objective with its dead band.
    pub evidence: f64,
    /// Moves downward so far.
    pub cuts: u64,
    /// Moves upward so far.
    pub raises: u64,
    /// Whether calls press on it though they were found to be too many in the last minute, also at
    /// its floor: a sign that the upstream needs more replicas.
    pub saturated: bool,
    /// The last moves, the youngest last.
    pub decisions: Vec<DecisionSnapshot>,
}

/// One move of a limit.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DecisionSnapshot {
    /// How long ago it was. Seconds.
    pub ago: f64,
    /// The limit before.
    pub from: usize,
    /// The limit since. A cut may leave it as it was, where it was of `awaiting`.
    pub to: usize,
    /// The most calls that may await their first token, since.
    pub awaiting: usize,
    /// `slow_start`, `headroom`, `late`, `slow`, `refused`, `overloaded` or `timed_out`.
    pub cause: &'static str,
}

impl LimitSnapshot {
    pub(crate) fn of(view: &AdaptiveView, now: Instant) -> Self {
        let limit = &view.limit;
        let decision = |decision: &Decision| DecisionSnapshot {
            ago: now.saturating_duration_since(decision.at).as_secs_f64(),
            from: decision.from,
            to: decision.to,
            awaiting: decision.awaiting,
            cause: decision.cause.as_str(),
        };
        Self {
            limit: limit.limit,
            ceiling: view.ceiling,
            awaiting: limit.awaiting,
            awaiting_limit: limit.awaiting_limit,
            slow_start: limit.slow_start,
            objective: limit.objective.as_ref().map(Duration::as_secs_f64),
            late: limit.late,
            evidence: limit.evidence,
            cuts: limit.cuts,
            raises: limit.raises,
            saturated: view.saturated,
            decisions: limit.decisions.iter().map(decision).collect(),
        }
    }
}
