//! What is kept of a step that is over.

use super::positions::Edge;
use super::service_time::{MeanEstimate, ServiceTime};
use super::step_monitor::StepMode;
use crate::observation::{AttemptFailure, BlockedBy, LimitHint};

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepEnd {
    Accepted,
    /// More failed than may.
    Rejected,
    /// A rate did not let the cap be reached.
    Rate,
    /// The client did not hold the cap.
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
    /// When 429s came at positions that had been taken earlier in the same step, if they did.
    pub(super) spent: Option<f64>,
    pub(super) service: ServiceTime,
    pub(super) in_flight: f64,
    /// Calls that met the objective, of those answered.
    pub(super) met: usize,
    pub(super) answered: usize,
    pub(super) attempts: usize,
    pub(super) failed: usize,
    /// Failed and taken above what was known to be good.
    pub(super) top: (usize, usize),
    pub(super) edge: Option<Edge>,
    pub(super) held_by: Option<BlockedBy>,
    pub(super) hint: Option<LimitHint>,
    pub(super) failure: Option<AttemptFailure>,
    /// The longest pause of each call, ascending.
    pub(super) pauses: Vec<f64>,
    pub(super) preemptions: u64,
}

impl StepSummary {
    /// Calls a second, by Little's law; `None` where too few were seen.
    pub(super) fn throughput(&self, work: f64) -> Option<MeanEstimate> {
        let service = self.service.at(work)?;
        if service.value <= 0.0 || self.in_flight <= 0.0 {
            return None;
        }
        let value = self.in_flight / service.value;
        Some(MeanEstimate { value, error: value * service.relative() })
    }

    /// Of these, those that met the objective. The share's error is Agresti and Coull's, so that 0 of 30 is not certain.
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
