//! Progress of a running sweep.

use serde::Serialize;

use crate::search_result::{Purpose, StepResult};
use crate::spend::SweepSpend;

/// Progress report, made after each step and at least ten times per second.
#[derive(Clone, Debug, Serialize)]
pub struct SweepProgress {
    /// What the sweep does now.
    pub state: SweepState,
    /// Highest cap known to be usable, or `None` if none is known.
    pub good: Option<usize>,
    /// Lowest cap known to be unusable, or `None` if none is known.
    pub bad: Option<usize>,
    /// Calls, tokens, cost and time used so far.
    pub spend: SweepSpend,
    /// Estimated number of calls that the sweep still makes: lower bound, likely value and upper
    /// bound.
    pub calls_to_come: (usize, usize, usize),
    /// Estimated remaining time in seconds, or `None` before the first answered call and during the
    /// shutdown.
    pub eta: Option<f64>,
    /// Number of requests that were sent and whose responses have not ended.
    pub in_flight: usize,
    /// Number of calls that wait for a slot.
    pub waiting: usize,
    /// Result of the step that has just ended, or `None` if this report has another cause.
    pub step_ended: Option<StepResult>,
}

/// What a sweep does at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SweepState {
    /// The sweep makes the preflight call, which checks the server, the model and the key.
    Preflight,
    /// The sweep measures a cap in a step.
    Holding {
        /// Number of the step, from 0.
        step: usize,
        /// Cap that the step measures.
        cap: usize,
        /// Why the search measures this cap.
        purpose: Purpose,
    },
    /// The sweep sends nothing, so that the server recovers from an overload.
    Resting {
        /// Duration of the rest in seconds, counted from when no exchange is in flight.
        seconds: f64,
    },
    /// Shutting down: exchanges in flight have up to 5 s to finish.
    Ending,
}
