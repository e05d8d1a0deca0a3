//! The summary of a completed step, as the policy uses it.

use super::failure_positions::Edge;
use super::service_time::{MeanEstimate, ServiceTime};
use super::step_monitor::StepMode;
use crate::observation::{AttemptFailure, BlockedBy, LimitHint};
use crate::search_result::EngineUse;

/// What a step has shown about its cap when it ended.
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
    /// Time at which a rate limit had used up its credit, in seconds since the sweep began: when
    /// the first attempt that got a 429 was sent. `None` unless several attempts had been accepted
    /// at the full cap before, and most failures are 429s.
    pub(super) credit_exhausted_at: Option<f64>,
    pub(super) service: ServiceTime,
    pub(super) in_flight: f64,
    /// Number of answered calls that met the latency objectives.
    pub(super) met: usize,
    pub(super) answered: usize,
    pub(super) attempts: usize,
    pub(super) failed: usize,
    /// Numbers of failed and of accepted attempts above the highest position that was known to be
    /// accepted before the step. The position of an attempt is the number of open exchanges just
    /// after it was sent.
    pub(super) above_floor: (usize, usize),
    pub(super) edge: Option<Edge>,
    pub(super) held_by: Option<BlockedBy>,
    pub(super) hint: Option<LimitHint>,
    pub(super) failure: Option<AttemptFailure>,
    /// Longest pause of each evaluated call's stream in seconds, in ascending order.
    pub(super) pauses: Vec<f64>,
    /// Number of sequences that the engine preempted, or `None` if unknown.
    pub(super) preemptions: Option<u64>,
    pub(super) engine: Option<EngineUse>,
}

impl StepSummary {
    /// Returns the throughput in calls per second, by Little's law. `work` is the mean number of
    /// output tokens per call of the mix. Returns `None` with fewer than two calls, or if no slot
    /// was in use.
    pub(super) fn throughput(&self, work: f64) -> Option<MeanEstimate> {
        let service = self.service.at(work)?;
        if service.value <= 0.0 || self.in_flight <= 0.0 {
            return None;
        }
        let value = self.in_flight / service.value;
        Some(MeanEstimate { value, error: value * service.relative() })
    }

    /// Returns the goodput: the calls per second that met the latency objectives. Its standard
    /// error includes that of the share of such calls among all answered ones (Agresti and Coull).
    /// Returns `None` if the throughput is unknown.
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
