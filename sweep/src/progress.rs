//! What a sweep shows while it runs.

use serde::Serialize;

use crate::result::{Purpose, StepResult};
use crate::spend::SweepSpend;

/// Told at each turn of things, and ten times a second.
#[derive(Clone, Debug, Serialize)]
pub struct SweepProgress {
    /// What it is at.
    pub state: SweepState,
    /// The highest cap known to be good.
    pub good: Option<usize>,
    /// The lowest known to be bad.
    pub bad: Option<usize>,
    /// What was taken.
    pub spend: SweepSpend,
    /// Calls that it may still take: least, likely, most.
    pub calls_to_come: (usize, usize, usize),
    /// Seconds that it may still take, as the calls so far went; `None` until some have.
    pub eta: Option<f64>,
    /// Exchanges open.
    pub in_flight: usize,
    /// Calls that wait for a slot.
    pub waiting: usize,
    /// The step that ended just now.
    pub step_ended: Option<StepResult>,
}

/// What a sweep is at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SweepState {
    /// The first call.
    Preflight,
    /// Holds a cap.
    Holding {
        /// The step's number.
        step: usize,
        /// The cap.
        cap: usize,
        /// Why.
        purpose: Purpose,
    },
    /// Sends nothing.
    Resting {
        /// Seconds, once nothing is in flight any more.
        seconds: f64,
    },
    /// Ends: what is in flight may come to its end for a few seconds.
    Ending,
}
