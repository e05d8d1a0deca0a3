//! The summary of a completed step, as the policy uses it.

use super::failure_positions::Edge;
use super::service_time::{MeanEstimate, ServiceTime};
use super::step_monitor::StepMode;
use crate::observation::{AttemptFailure, BlockedBy, LimitHint};

/// The conclusion that a step allows about its cap when it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepEnd {
    Accepted,
    /// Too large a share of the attempts failed.
    Rejected,
    /// A rate limit kept slots free, or its credit was used up.
    Rate,
    /// This client did not keep the cap in use.
    Client,
    Undecided,
}

#[derive(Clone, Debug)]
pub(super) struct StepSummary {
    pub(super) cap: usize,
    pub(super) began: f64,
    pub(super) ended_at: f64,
    pub(super) ended: StepEnd,
    pub(super) mode: StepMode,
    /// Time at which the first attempt that got a 429 was sent, in seconds since the sweep began,
    /// if attempts had been accepted at the full cap before. `None` otherwise, or if most failures
    /// are not 429s.
    pub(super) credit_exhausted_at: Option<f64>,
    pub(super) service: ServiceTime,
    pub(super) in_flight: f64,
    /// Number of answered calls that met the latency objectives.
    pub(super) met: usize,
    pub(super) answered: usize,
    pub(super) attempts: usize,
    pub(super) failed: usize,
    /// Numbers of failed and of accepted attempts whose position is above the highest position that
    /// was known to be accepted. The position is the number of open exchanges just after an attempt
    /// was sent.
    pub(super) above_floor: (usize, usize),
    pub(super) edge: Option<Edge>,
    pub(super) held_by: Option<BlockedBy>,
    pub(super) hint: Option<LimitHint>,
    pub(super) failure: Option<AttemptFailure>,
    /// Longest pause of each call's stream in seconds, ascending.
    pub(super) pauses: Vec<f64>,
    pub(super) preemptions: u64,
}

impl StepSummary {
    /// Returns the throughput in calls per second, by Little's law, for a mix with a mean of `work`
    /// output tokens. Returns `None` with fewer than two calls.
    pub(super) fn throughput(&self, work: f64) -> Option<MeanEstimate> {
        let service = self.service.at(work)?;
        if service.value <= 0.0 || self.in_flight <= 0.0 {
            return None;
        }
        let value = self.in_flight / service.value;
        Some(MeanEstimate { value, error: value * service.relative() })
    }

    /// Returns the goodput: the calls per second that met the latency objectives. Its error
    /// includes that of the share of such calls (Agresti and Coull). Returns `None` with fewer than
    /// two calls.
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
