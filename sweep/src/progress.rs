//! Progress of a running sweep.

use serde::Serialize;

use crate::result::{Purpose, StepResult};
use crate::spend::SweepSpend;

/// A progress report, sent after each event and at least ten times per second.
#[derive(Clone, Debug, Serialize)]
pub struct SweepProgress {
    /// What the sweep is doing.
    pub state: SweepState,
    /// Highest cap known to be good.
    pub good: Option<usize>,
    /// Lowest cap known to be bad.
    pub bad: Option<usize>,
    /// Resources used so far.
    pub spend: SweepSpend,
    /// Number of remaining calls: lower bound, likely value and upper bound.
    pub calls_to_come: (usize, usize, usize),
    /// Estimated remaining seconds at the pace so far, or `None` before the first call has ended.
    pub eta: Option<f64>,
    /// Exchanges in flight.
    pub in_flight: usize,
    /// Calls waiting for a slot.
    pub waiting: usize,
    /// The step that has just ended, if any.
    pub step_ended: Option<StepResult>,
}

/// What a sweep is doing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SweepState {
    /// Making the preflight call.
    Preflight,
    /// Holding a cap.
    Holding {
        /// Number of the step.
        step: usize,
        /// The cap.
        cap: usize,
        /// Why the step is made.
        purpose: Purpose,
    },
    /// Sending nothing for a while.
    Resting {
        /// Duration of the rest in seconds, from when nothing is in flight.
        seconds: f64,
    },
    /// Shutting down: calls in flight have a few seconds to finish.
    Ending,
}
