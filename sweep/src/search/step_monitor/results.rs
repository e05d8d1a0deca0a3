//! Converts a completed step into a summary for the policy and a result for the report.

use super::{MIN_ACCEPTED_AFTER_FILL, MIN_REPORTED_CALLS, StepMode, StepMonitor};
use crate::search::failure_positions::{self, Edge};
use crate::search::quantiles;
use crate::search::service_time::MeanEstimate;
use crate::search::step_summary::{StepEnd, StepSummary};
use crate::search_result::{EngineUse, Estimate, StepResult, StepVerdict};

impl StepMonitor {
    /// Returns the summary of the step, as if it ended at `now`, in seconds since the sweep began.
    pub(in crate::search) fn summary(&self, now: f64) -> StepSummary {
        let ended = if self.is_rejected() {
            StepEnd::Rejected
        } else if self.task.mode != StepMode::Plain {
            let drained = self.task.mode != StepMode::Paced && self.is_credit_exhausted();
            if drained { StepEnd::Rate } else { StepEnd::Accepted }
        } else if self.limiting_rate().is_some() {
            StepEnd::Rate
        } else if self.is_client_limited() {
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
            mode: self.task.mode,
            credit_exhausted_at: self.credit_exhausted_at(),
            service: self.service(),
            in_flight: self.in_flight(),
            met: self.within_objective,
            answered: self.answered,
            attempts: self.attempt_counts.0 + self.attempt_counts.1,
            failed: self.attempt_counts.0,
            above_floor: self.above_floor,
            edge: self.edge(),
            held_by: self.limiting_rate(),
            hint: self.hints.last().copied(),
            failure: self.last_failure.clone(),
            pauses,
            preemptions: self
                .preemptions
                .1
                .zip(self.preemptions.0)
                .map(|(now, then)| now.saturating_sub(then)),
            engine: self.engine_use(),
        }
    }

    fn engine_use(&self) -> Option<EngineUse> {
        let n = self.engine.len() as f64;
        let mut running: Vec<u64> = self.engine.iter().filter_map(|engine| engine.running).collect();
        running.sort_unstable();
        let kv: Vec<f64> = self.engine.iter().filter_map(|engine| engine.kv_usage).collect();
        let counted = self.preemptions.1.zip(self.preemptions.0);
        Some(EngineUse {
            running: *running.get(running.len() / 2)? as f64,
            waiting: self.engine.iter().filter_map(|engine| engine.waiting).sum::<u64>() as f64 / n,
            kv_usage: (!kv.is_empty()).then(|| kv.iter().sum::<f64>() / kv.len() as f64),
            preemptions: counted.map(|(now, then)| now.saturating_sub(then)),
        })
    }

    /// Returns the time at which the first attempt that got a 429 was sent, in seconds since the
    /// sweep began. Returns `None` unless at least [`MIN_ACCEPTED_AFTER_FILL`] attempts were
    /// accepted at the full cap before, and most failures are 429s.
    fn credit_exhausted_at(&self) -> Option<f64> {
        let are_mostly_429 = 2 * self.count_429 > self.attempt_counts.0;
        self.first_429_at.filter(|_| are_mostly_429 && self.accepted_after_fill >= MIN_ACCEPTED_AFTER_FILL)
    }

    fn edge(&self) -> Option<Edge> {
        failure_positions::edge(&self.marks)
    }

    /// Returns the result of the step for the report. `work` is the mean number of output tokens
    /// per call of the mix. `z` is half the width of a confidence interval in standard errors.
    pub(in crate::search) fn result(&self, summary: &StepSummary, work: f64, z: f64) -> StepResult {
        let answered = || self.calls.iter().filter(|call| call.failure.is_none());
        // A rejection may precede the first answers, and the slot times of a few calls give no
        // throughput.
        let reportable = answered().count() >= MIN_REPORTED_CALLS;
        let throughput = summary.throughput(work).filter(|_| reportable);
        let goodput = summary.goodput(work).filter(|_| reportable);
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
            attempts: self.marks.len() + self.rejected_requests,
            failures: self.failures.clone(),
            verdict: self.verdict(summary),
            throughput: estimate(throughput),
            goodput: estimate(goodput),
            latency: quantiles::compute(answered().map(|call| call.ended_at - call.admitted_at)),
            ttft: quantiles::compute(answered().filter_map(|call| call.ttft)),
            tpot: quantiles::compute(answered().filter_map(|call| call.tpot)),
            in_flight: self.in_flight(),
            measured_seconds: self.evaluated_seconds,
            engine: summary.engine,
            gap_fraction: self.share_of(self.gap),
            forbidden: self.share_of(self.forbidden),
        }
    }

    fn verdict(&self, summary: &StepSummary) -> StepVerdict {
        let (failed, accepted) = self.above_floor;
        match summary.ended {
            StepEnd::Accepted => StepVerdict::Accepted,
            StepEnd::Rejected => StepVerdict::Rejected(if self.task.floor > 0 && failed > 0 {
                format!(
                    "{failed} of {} attempts above {} concurrent calls failed",
                    failed + accepted,
                    self.task.floor
                )
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
