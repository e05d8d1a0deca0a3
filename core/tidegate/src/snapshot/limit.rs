//! The state of an adaptive limit, as a snapshot shows it.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::adaptive::AdaptiveView;
use crate::adaptive::Decision;

/// The state of an adaptive limit at one moment. Durations are in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct LimitSnapshot {
    /// Current limit, in slots.
    pub limit: usize,
    /// Maximum of the limit, in slots: the configured cap.
    pub ceiling: usize,
    /// Number of calls in flight that await their first token.
    pub awaiting: usize,
    /// Maximum number of calls that may await their first token at the same time.
    pub awaiting_limit: usize,
    /// Prompt tokens of the calls in flight that await their first token, plus 256 for each of
    /// these calls.
    pub awaiting_tokens: u64,
    /// First-token capacity: the value of `awaiting_tokens` that keeps the upstream busy without a
    /// queue, as far as times to first token have shown. When it is reached, no call of a tenant
    /// that uses its share of it is sent. `None` until it is known.
    pub first_token_capacity: Option<u64>,
    /// `true` while the limit is in slow start: the slots have not been found to be too many, and
    /// each call that meets the objective while all slots are used increases them, usually by one.
    /// Always `false` with a percentile detector.
    pub slow_start: bool,
    /// Latency objective, in seconds. For targets: the maximum time from sending a call to its
    /// first token, which is the configured `ttft` minus the maximum wait in the queue, and at
    /// least half of `ttft`. For tools: the maximum time from sending a call to its end. `None`
    /// without an objective.
    pub objective: Option<f64>,
    /// Share of the recent calls that missed the objective, from 0 to 1. `None` if there is no
    /// recent call that can be compared with the objective.
    pub late: Option<f64>,
    /// Evidence that the objective is missed, from 0. The limit is decreased when it reaches 1.
    /// With a percentile objective: the measured quantile, divided by the upper bound of the
    /// tolerated range around the objective.
    pub evidence: f64,
    /// Number of decreases since the limit was created.
    pub cuts: u64,
    /// Number of increases since the limit was created.
    pub raises: u64,
    /// `true` if two conditions hold. First, no slot is free, or the maximum number of calls await
    /// their first token. Second, the limit detected within the last minute that too many calls
    /// were in flight, even if the limit was already at its minimum. The upstream then needs more
    /// replicas.
    pub saturated: bool,
    /// The latest changes of the limit, at most 32, oldest first. Consecutive increases for the
    /// same cause are merged.
    pub decisions: Vec<DecisionSnapshot>,
}

/// One change of an adaptive limit.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DecisionSnapshot {
    /// Time since the change, in seconds.
    pub ago: f64,
    /// Limit before the change, in slots.
    pub from: usize,
    /// Limit after the change, in slots. Equal to `from` if only `awaiting` changed.
    pub to: usize,
    /// Maximum number of calls awaiting their first token, after the change.
    pub awaiting: usize,
    /// What caused the change. For an increase: `slow_start` or `headroom`. For a decrease: `late`
    /// (calls missed the objective), `slow` (tokens were slower than the TPOT objective), `queued`
    /// (the engine reported that calls wait in its queue), `refused` (status 429), `overloaded`
    /// (503 or 529) or `timed_out`.
    pub cause: &'static str,
}

impl LimitSnapshot {
    pub(crate) fn from_view(view: &AdaptiveView, now: Instant) -> Self {
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
            awaiting_tokens: limit.awaiting_work,
            first_token_capacity: limit.first_token_capacity,
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
