//! The figures of one run.

use std::time::Duration;

use tidegate_sim::engine::StepCost;
use tidegate_sim::scenario::quantile;

use super::load::{Call, End};
use super::server_metrics::Sample;

/// The time from the start of a run to the part that is called *steady*, in seconds.
pub(super) const WARM_UP: f64 = 5.0;
/// Number of intervals between samples over which [`Run::gap_ratio`] takes means.
const GAP_SAMPLES: usize = 10;

/// The results of the calls of one run, and samples of the server's metrics.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) calls: Vec<Call>,
    pub(super) samples: Vec<Sample>,
    /// Time in which the calls began, in seconds.
    pub(super) lasts: f64,
    /// The time of a step divided by the configured time, at the worst moment: lone calls before
    /// and after the run, and the server's mean time between tokens during the run. 1 in the
    /// simulator.
    pub(super) slowness: f64,
}

impl Run {
    /// Returns the figures that do not depend on an objective, with their names and units.
    pub(super) fn figures(&self) -> [(&'static str, f64); 11] {
        [
            ("calls", self.calls.len() as f64),
            ("rejected", self.count(End::Rejected)),
            ("failed", self.count(End::Failed)),
            ("answered", self.count(End::Answered)),
            ("median TTFT, ms", self.ttft_ms(0.5)),
            ("p99 TTFT, ms", self.ttft_ms(0.99)),
            ("output tokens/s", self.tokens_per_second()),
            ("waiting in the server", self.waiting()),
            ("running in the server", self.running()),
            ("preemptions per call", self.preemptions_per_call()),
            ("cuts per 20 s", self.cuts_per_20_s()),
        ]
    }

    /// Returns the number of calls per second whose first token came within `objective`.
    pub(super) fn goodput(&self, objective: Duration) -> f64 {
        self.in_time(objective) / self.lasts
    }

    /// Returns the share of the calls that were not rejected whose first token came within
    /// `objective`. 1 if there are none.
    pub(super) fn admitted_in_time(&self, objective: Duration) -> f64 {
        let admitted = self.calls.len() as f64 - self.count(End::Rejected);
        if admitted > 0.0 { self.in_time(objective) / admitted } else { 1.0 }
    }

    /// Returns the number of calls whose first token came within `objective`, and that did not
    /// fail.
    fn in_time(&self, objective: Duration) -> f64 {
        let good = |call: &&Call| call.end != End::Failed && call.ttft.is_some_and(|ttft| ttft <= objective);
        self.calls.iter().filter(good).count() as f64
    }

    /// Returns the number of calls that ended with `end`.
    pub(super) fn count(&self, end: End) -> f64 {
        self.calls.iter().filter(|call| call.end == end).count() as f64
    }

    /// Returns the quantile `q` of the time to the first token, in milliseconds, of the calls that
    /// had one.
    pub(super) fn ttft_ms(&self, q: f64) -> f64 {
        let mut times: Vec<f64> =
            self.calls.iter().filter_map(|call| Some(call.ttft?.as_secs_f64() * 1e3)).collect();
        quantile(&mut times, q)
    }

    /// Returns the server's output tokens per second while steady.
    pub(super) fn tokens_per_second(&self) -> f64 {
        self.per_second(|sample| sample.output_tokens)
    }

    /// Returns the mean number of calls in the server's queue while steady.
    pub(super) fn waiting(&self) -> f64 {
        self.mean(|sample| sample.waiting)
    }

    /// Returns the mean number of calls in the server's batch while steady.
    pub(super) fn running(&self) -> f64 {
        self.mean(|sample| sample.running)
    }

    /// Returns the decreases of the adaptive limit per 20 s while steady.
    pub(super) fn cuts_per_20_s(&self) -> f64 {
        20.0 * self.per_second(|sample| sample.cuts)
    }

    /// Returns the number of preemptions, divided by the number of answered calls.
    pub(super) fn preemptions_per_call(&self) -> f64 {
        let (Some(first), Some(last)) = (self.samples.first(), self.samples.last()) else { return f64::NAN };
        (last.preemptions - first.preemptions) / self.count(End::Answered).max(1.0)
    }

    /// Returns the server's mean time between the tokens of an answer, in milliseconds.
    pub(super) fn mean_gap_ms(&self) -> f64 {
        let (Some(first), Some(last)) = (self.samples.first(), self.samples.last()) else { return f64::NAN };
        (last.gap_seconds - first.gap_seconds) / (last.gaps - first.gaps) * 1e3
    }

    /// Returns the mean time between tokens, divided by the time that it should have with the step
    /// times `step`. `None` if sequences were preempted, because their times between tokens include
    /// their time in the queue.
    pub(super) fn gap_ratio(&self, step: &StepCost) -> Option<f64> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        if last.preemptions > first.preemptions {
            return None;
        }
        // The load may change, and long steps have the most tokens.
        let starts = (0..self.samples.len() - 1).step_by(GAP_SAMPLES);
        let expected_ms: f64 = starts
            .filter_map(|start| {
                let samples = self.samples.get(start..)?;
                expected_gaps_ms(step, samples.get(..=GAP_SAMPLES).unwrap_or(samples))
            })
            .sum();
        Some((last.gap_seconds - first.gap_seconds) * 1e3 / expected_ms)
    }

    fn steady(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(|sample| (WARM_UP..=self.lasts).contains(&sample.at))
    }

    fn mean(&self, pick: fn(&Sample) -> f64) -> f64 {
        self.steady().map(pick).sum::<f64>() / self.steady().count() as f64
    }

    fn per_second(&self, pick: fn(&Sample) -> f64) -> f64 {
        let (Some(first), Some(last)) = (self.steady().next(), self.steady().last()) else { return f64::NAN };
        (pick(last) - pick(first)) / (last.at - first.at)
    }
}

/// Returns the sum of the times between tokens, in milliseconds, that an engine with the step times
/// `step` should have during the samples. `None` if it had no calls.
fn expected_gaps_ms(step: &StepCost, samples: &[Sample]) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last()?);
    let busy: Vec<f64> = samples.iter().map(|sample| sample.running).filter(|it| *it > 0.0).collect();
    let running = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
    let computed = |sample: &Sample| sample.prompt_tokens - sample.prefix_hits;
    let prompt_tokens_per_ms = (computed(last) - computed(first)) / ((last.at - first.at) * 1e3);
    let decode_ms = step.base_ms + step.per_sequence_ms * running;
    // Steps of `decode_ms + per_prompt_token_ms * tokens`, with `prompt_tokens_per_ms * step`
    // tokens.
    let gap_ms = decode_ms / (1.0 - step.per_prompt_token_ms * prompt_tokens_per_ms);
    (!busy.is_empty()).then_some(gap_ms * (last.gaps - first.gaps))
}
