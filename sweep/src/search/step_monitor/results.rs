//! The summary of a completed step for the search, and its result for the report.

use super::{MIN_REPORTED_CALLS, MIN_TURNED_OVER, StepMode, StepMonitor};
use crate::result::{Estimate, StepResult, StepVerdict};
use crate::search::positions::{self, Edge};
use crate::search::quantiles;
use crate::search::service_time::MeanEstimate;
use crate::search::step_summary::{StepEnd, StepSummary};

impl StepMonitor {
    /// Returns the summary for the search.
    pub(in crate::search) fn summary(&self, now: f64) -> StepSummary {
        let ended = if self.is_rejected() {
            StepEnd::Rejected
        } else if self.task.way != StepMode::Plain {
            let drained = self.task.way != StepMode::Paced && self.is_empty();
            if drained { StepEnd::Rate } else { StepEnd::Accepted }
        } else if self.held_by_rate().is_some() {
            StepEnd::Rate
        } else if self.is_client() {
            StepEnd::Client
        } else if self.answered < 2 || !self.is_fine_enough() {
            StepEnd::Undecided
        } else {
            StepEnd::Accepted
        };
        let mut pauses: Vec<f64> = self.calls.iter().filter_map(|call| call.longest_pause).collect();
        pauses.sort_by(f64::total_cmp);
        StepSummary {
            cap: self.task.cap,
            began: self.began,
            ended_at: now,
            ended,
            way: self.task.way,
            spent: self.spent(),
            service: self.service(),
            in_flight: self.in_flight(),
            met: self.met,
            answered: self.answered,
            attempts: self.all.0 + self.all.1,
            failed: self.all.0,
            above_floor: self.above_floor,
            edge: self.edge(),
            held_by: self.held_by_rate(),
            hint: self.hints.last().copied(),
            failure: self.last_failure.clone(),
            pauses,
            preemptions: self
                .preemptions
                .1
                .zip(self.preemptions.0)
                .map_or(0, |(now, then)| now.saturating_sub(then)),
        }
    }

    /// Returns [`StepSummary::spent`].
    fn spent(&self) -> Option<f64> {
        let limited = 2 * self.limited > self.all.0;
        self.first_limited.filter(|_| limited && self.turned_over >= MIN_TURNED_OVER)
    }

    fn edge(&self) -> Option<Edge> {
        positions::edge(&self.marks)
    }

    /// Returns the result for the report.
    pub(in crate::search) fn result(&self, summary: &StepSummary, work: f64, z: f64) -> StepResult {
        let answered = || self.calls.iter().filter(|call| call.failure.is_none());
        // A rejection may precede the first answers, and the slot times of a few calls give no
        // throughput.
        let told = answered().count() >= MIN_REPORTED_CALLS;
        let throughput = summary.throughput(work).filter(|_| told);
        let goodput = summary.goodput(work).filter(|_| told);
        let estimate = |mean: Option<MeanEstimate>| {
            mean.map(|mean| Estimate {
                value: mean.value,
                low: (mean.value - z * mean.error).max(0.0),
                high: mean.value + z * mean.error,
            })
        };
        StepResult {
            step: self.task.step,
            cap: self.task.cap,
            purpose: self.task.purpose,
            began: self.began,
            ended: summary.ended_at,
            warm_up: self.warm_up,
            calls: self.calls.len(),
            attempts: self.marks.len() + self.refused,
            failures: self.failures.clone(),
            verdict: self.verdict(summary),
            throughput: estimate(throughput),
            goodput: estimate(goodput),
            latency: quantiles::compute(answered().map(|call| call.ended_at - call.admitted_at)),
            ttft: quantiles::compute(answered().filter_map(|call| call.ttft)),
            tpot: quantiles::compute(answered().filter_map(|call| call.tpot)),
            in_flight: self.in_flight(),
            gap_fraction: self.share_of(self.gap),
            forbidden: self.share_of(self.forbidden),
        }
    }

    fn verdict(&self, summary: &StepSummary) -> StepVerdict {
        let (bad, good) = self.above_floor;
        match summary.ended {
            StepEnd::Accepted => StepVerdict::Accepted,
            StepEnd::Rejected => StepVerdict::Rejected(if self.task.floor > 0 && bad > 0 {
                format!("{bad} of {} attempts above {} concurrent calls failed", bad + good, self.task.floor)
            } else {
                format!("{} of {} attempts failed", summary.failed, summary.attempts)
            }),
            StepEnd::Rate => {
                StepVerdict::Invalid("a rate limit held calls back, so the cap was not reached".into())
            }
            StepEnd::Client => StepVerdict::Invalid(format!(
                "this client kept only {:.1} of {} slots busy, although nothing limited it",
                self.in_flight(),
                self.task.cap
            )),
            StepEnd::Undecided => {
                StepVerdict::Undecided(format!("{} calls are too few for a decision", self.calls.len()))
            }
        }
    }
}
