//! The summary of a completed step.

use super::positions::Edge;
use super::service_time::{MeanEstimate, ServiceTime};
use super::step_monitor::StepMode;
use crate::observation::{AttemptFailure, BlockedBy, LimitHint};

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepEnd {
    Accepted,
    /// Too many attempts failed.
    Rejected,
    /// A rate limit kept the cap from being reached.
    Rate,
    /// The client did not keep the cap busy.
    Client,
    Undecided,
}

#[derive(Clone, Debug)]
pub(super) struct StepSummary {
    pub(super) cap: usize,
    pub(super) began: f64,
    pub(super) ended_at: f64,
    pub(super) ended: StepEnd,
    pub(super) way: StepMode,
    /// Time of the first 429 at a position that had been accepted earlier in the same step, if any.
    pub(super) spent: Option<f64>,
    pub(super) service: ServiceTime,
    pub(super) in_flight: f64,
    /// Number of answered calls that met the objective.
    pub(super) met: usize,
    pub(super) answered: usize,
    pub(super) attempts: usize,
    pub(super) failed: usize,
    /// Failed and accepted attempts above the highest known good position.
    pub(super) above_floor: (usize, usize),
    pub(super) edge: Option<Edge>,
    pub(super) held_by: Option<BlockedBy>,
    pub(super) hint: Option<LimitHint>,
    pub(super) failure: Option<AttemptFailure>,
    /// The longest pause of each call in seconds, ascending.
    pub(super) pauses: Vec<f64>,
    pub(super) preemptions: u64,
}

impl StepSummary {
    /// Returns the throughput in calls per second by Little's law, or `None` with too few calls.
    pub(super) fn throughput(&self, work: f64) -> Option<MeanEstimate> {
        let service = self.service.at(work)?;
        if service.value <= 0.0 || self.in_flight <= 0.0 {
            return None;
        }
        let value = self.in_flight / service.value;
        Some(MeanEstimate { value, error: value * service.relative() })
    }

    /// Returns the calls per second that met the objective. The error of the share is that of
    /// Agresti and Coull, so that 0 of 30 is not certain.
    pub(super) fn goodput(&self, work: f64) -> Option<MeanEstimate> {
        let throughput = self.throughput(work)?;
        if self.met == self.answered {
            return Some(throughput);
        }
        let n = self.answered as f64;
        let share = self.met as f64 / n;
        let smoothed = (self.met as f64 + 2.0) / (n + 4.0);
        let spread = (smoothed * (1.0 - smoothed) / (n + 4.0)).sqrt();
        let error = (throughput.error * share).hypot(throughput.value * spread);
        Some(MeanEstimate { value: throughput.value * share, error })
    }
}
