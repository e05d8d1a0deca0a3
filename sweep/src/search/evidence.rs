//! The evidence of the search: the summaries of the steps in the current era, and what follows from
//! them for a cap.
//!
//! A new era begins when the server has changed. Steps of earlier eras remain only in the report.

use super::SearchSettings;
use super::curve::{Curve, Knee, Point};
use super::noise::NOTABLE;
use super::rate_history::RateHistory;
use super::service_time::{MeanEstimate, ServiceTime};
use super::sprt::Sprt;
use super::step_summary::{StepEnd, StepSummary};
use crate::observation::{CallObservation, LoadSample};

/// Number of standard errors that are added to the share of failures at low caps. The sum is the
/// share of failures that [`Evidence::test`] attributes to causes other than the cap.
const BASELINE_ERRORS: f64 = 1.0;

/// Why the search considers a cap unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RejectionCause {
    /// Too large a share of the attempts at the cap failed.
    Failures,
    /// This client did not keep all slots of the cap in use.
    Client,
    /// The engine's KV cache was full, and the goodput fell.
    Cliff,
    /// The server is slow at this cap, and remains slow for a while afterwards.
    Overload,
}

/// The lowest cap known to be unusable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RejectedCap {
    pub(super) cap: usize,
    pub(super) cause: RejectionCause,
    /// Cap that is probably the highest usable one, and is measured next. It is derived from the
    /// positions of the failures or, if the client was too slow, from the slots in use. `None`
    /// without such an estimate.
    pub(super) guess: Option<usize>,
    /// Whether the cap just above `guess` is measured after `guess`.
    pub(super) try_next: bool,
    /// Two numbers: the highest usable cap when this cap was rejected, and the highest position at
    /// which the rejected step still accepted attempts. The position is the number of open
    /// exchanges just after an attempt was sent. `None` if the position is not above that usable
    /// cap.
    pub(super) edge: Option<(usize, usize)>,
}

impl RejectedCap {
    pub(super) fn new(cap: usize, cause: RejectionCause, guess: Option<usize>) -> Self {
        Self { cap, cause, guess, try_next: true, edge: None }
    }
}

#[derive(Debug, Default)]
pub(super) struct Evidence {
    summaries: Vec<StepSummary>,
    /// Index in `summaries` of the first step of the current era, which is the period since the
    /// server last changed.
    era_start: usize,
    pub(super) good: Option<usize>,
    pub(super) bad: Option<RejectedCap>,
    /// Sums over all answered calls, from which the mean output tokens per call are computed.
    mix: ServiceTime,
    /// Number of answered calls, sum of their input and output tokens, and sum of the squares of
    /// these tokens per call.
    token_sums: [f64; 3],
    /// Number of calls that have ended since the sweep began.
    pub(super) calls: usize,
    /// Number of calls that were sent since the sweep began, including the preflight call.
    pub(super) sent: usize,
    pub(super) rate_history: RateHistory,
}

impl Evidence {
    pub(super) fn on_call(&mut self, seen: &CallObservation) {
        self.calls += 1;
        self.rate_history.on_call(seen);
        if seen.failure.is_none() {
            self.mix.add(seen.output_tokens as f64, 0.0);
            let size = (seen.input_tokens + seen.output_tokens) as f64;
            self.token_sums =
                [self.token_sums[0] + 1.0, self.token_sums[1] + size, self.token_sums[2] + size * size];
        }
    }

    pub(super) fn on_load_sample(&mut self, sample: &LoadSample) {
        self.sent = self.sent.max(sample.sent);
        self.rate_history.on_load_sample(sample);
    }

    /// Returns the relative standard error of the mean tokens per call in the steps at `cap`. The
    /// error arises because a step sends only the first requests of the mix.
    pub(super) fn sample_error(&self, cap: usize) -> f64 {
        let [n, sum, squares] = self.token_sums;
        let spread = (n * squares / (sum * sum).max(1.0) - 1.0).max(0.0).sqrt();
        let most = self.accepted().filter(|summary| summary.cap == cap).map(|summary| summary.answered).max();
        spread / (most.unwrap_or(0).max(1) as f64).sqrt()
    }

    /// Returns the mean number of output tokens of all answered calls, or 0 before the first one.
    pub(super) fn work(&self) -> f64 {
        self.mix.work().unwrap_or_default()
    }

    pub(super) fn summaries(&self) -> &[StepSummary] {
        self.summaries.get(self.era_start..).unwrap_or_default()
    }

    pub(super) fn all_summaries(&self) -> &[StepSummary] {
        &self.summaries
    }

    pub(super) fn push_summary(&mut self, summary: StepSummary) {
        self.summaries.push(summary);
    }

    /// Starts a new era because the server has changed. Only the last `kept_steps` steps remain
    /// evidence.
    pub(super) fn new_era(&mut self, kept_steps: usize) {
        self.era_start = self.summaries.len().saturating_sub(kept_steps);
        self.good = self.accepted().map(|summary| summary.cap).max();
        self.bad = None;
    }

    /// Records an unusable cap, unless a lower unusable cap is known.
    pub(super) fn record_rejected_cap(&mut self, bad: RejectedCap) {
        if self.bad.is_none_or(|known| known.cap >= bad.cap) {
            self.bad = Some(bad);
        }
    }

    /// Sets the highest usable cap to the highest accepted cap below `cap`, or to `None` if there
    /// is none.
    pub(super) fn keep_accepted_below(&mut self, cap: usize) {
        self.good = self.accepted().map(|summary| summary.cap).filter(|&good| good < cap).max();
    }

    pub(super) fn accepted(&self) -> impl Iterator<Item = &StepSummary> {
        self.summaries().iter().filter(|summary| summary.ended == StepEnd::Accepted)
    }

    /// Returns the test that decides whether too many attempts fail at `cap`. The share of failures
    /// in accepted steps at half of the cap and below is attributed to other causes, so it is added
    /// to both thresholds of the test.
    pub(super) fn test(&self, settings: &SearchSettings, cap: usize) -> Sprt {
        let low_cap_steps =
            self.accepted().filter(|summary| 2 * summary.cap <= cap.max(2 * settings.min_cap));
        let (failed, attempts) =
            low_cap_steps.fold((0, 0), |sum, summary| (sum.0 + summary.failed, sum.1 + summary.attempts));
        let baseline = if failed == 0 {
            0.0
        } else {
            let (failed, n) = (failed as f64, attempts as f64);
            (failed / n + BASELINE_ERRORS * failed.sqrt() / n).min(0.5)
        };
        // A false rejection is made less likely than a false acceptance, because it costs more.
        Sprt::new(
            settings.fine + baseline,
            settings.too_many + baseline,
            settings.error_rate / 4.0,
            settings.error_rate,
        )
    }

    /// Returns one summary that pools the accepted steps at `cap`, or `None` if there is none.
    /// Pools all of them or, if the steps are noisy, the faster half, because other programs only
    /// slow a server.
    pub(super) fn pooled(&self, cap: usize) -> Option<StepSummary> {
        let mut steps_at_cap: Vec<&StepSummary> =
            self.accepted().filter(|summary| summary.cap == cap).collect();
        if steps_at_cap.len() > 1 && self.noise() >= NOTABLE {
            let work = self.work();
            let speed = |summary: &StepSummary| summary.throughput(work).map_or(0.0, |mean| mean.value);
            steps_at_cap.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
            steps_at_cap.truncate(steps_at_cap.len().div_ceil(2));
        }
        let mut steps_at_cap = steps_at_cap.into_iter();
        let mut sum = steps_at_cap.next()?.clone();
        for summary in steps_at_cap {
            let (n, m) = (sum.service.count() as f64, summary.service.count() as f64);
            sum.in_flight = (n * sum.in_flight + m * summary.in_flight) / (n + m).max(1.0);
            sum.service = sum.service.merge(&summary.service);
            sum.met += summary.met;
            sum.answered += summary.answered;
            sum.attempts += summary.attempts;
            sum.failed += summary.failed;
            sum.above_floor =
                (sum.above_floor.0 + summary.above_floor.0, sum.above_floor.1 + summary.above_floor.1);
            sum.preemptions = sum.preemptions.zip(summary.preemptions).map(|(a, b)| a + b);
            sum.pauses.extend_from_slice(&summary.pauses);
        }
        sum.pauses.sort_by(f64::total_cmp);
        Some(sum)
    }

    /// Returns the numbers of failed and of successful attempts in accepted steps at `cap`.
    pub(super) fn attempts_at(&self, cap: usize) -> (usize, usize) {
        self.accepted()
            .filter(|summary| summary.cap == cap)
            .fold((0, 0), |sum, summary| (sum.0 + summary.failed, sum.1 + summary.attempts - summary.failed))
    }

    /// Returns the goodput at each accepted cap up to the highest usable one, in order of the caps.
    /// The standard errors include the [noise](Evidence::noise).
    pub(super) fn points(&self) -> Vec<Point> {
        let highest = self.good.unwrap_or(0);
        let mut caps: Vec<usize> =
            self.accepted().map(|summary| summary.cap).filter(|&cap| cap <= highest).collect();
        caps.sort_unstable();
        caps.dedup();
        let (work, noise) = (self.work(), self.noise());
        let point = |&cap: &usize| {
            let pooled = self.pooled(cap)?;
            let steps = self.accepted().filter(|summary| summary.cap == cap).count();
            let with_noise = |mean: MeanEstimate| MeanEstimate {
                error: mean.error.hypot(noise * mean.value / (steps as f64).sqrt()),
                ..mean
            };
            let (throughput, goodput) =
                (with_noise(pooled.throughput(work)?), with_noise(pooled.goodput(work)?));
            Some(Point { cap, throughput, goodput, met: pooled.met, answered: pooled.answered })
        };
        caps.iter().filter_map(point).collect()
    }

    /// Fits the curve to the caps that can contain the knee: if the engine has a queue, those up to
    /// the number of calls that it runs at once, and one eighth more. Above that number, calls also
    /// miss an objective because they wait, so those caps are left out if calls miss it below.
    pub(super) fn curve(&self) -> Option<Curve> {
        let mut points = self.points();
        if let Some(queue) = self.engine_queue() {
            let is_late = |point: &Point| point.cap <= queue.running && point.met < point.answered;
            let is_missed = !queue.is_kv_full && points.iter().any(is_late);
            let highest = if is_missed { queue.running } else { queue.highest_knee };
            points.retain(|point| point.cap <= highest);
        }
        Curve::new(points)
    }

    /// Returns `true` if calls were answered at usable caps, but none of them met the objectives.
    pub(super) fn is_always_late(&self) -> bool {
        let points = self.points();
        !points.is_empty() && points.iter().all(|point| point.goodput.value <= 0.0)
    }

    /// Returns `true` if calls miss the objectives at a cap that can contain the knee.
    pub(super) fn has_late_calls(&self) -> bool {
        let is_late = |point: &Point| point.met < point.answered;
        self.curve().is_some_and(|curve| curve.points().iter().any(is_late))
    }

    pub(super) fn knee(&self, settings: &SearchSettings) -> Option<Knee> {
        self.curve()?.knee(settings.tolerance)
    }

    /// Returns the mean service time at `cap` in seconds. If `cap` was not measured, the service
    /// time is taken from the curve or, outside of the curve, from the nearest measured cap.
    /// Returns `None` without measurements.
    pub(super) fn service_at(&self, cap: usize) -> Option<f64> {
        if let Some(mean) = self.pooled(cap).and_then(|summary| summary.service.at(self.work())) {
            return Some(mean.value);
        }
        let nearest = self.accepted().min_by_key(|summary| summary.cap.abs_diff(cap))?;
        // Late calls take slots, too.
        let throughput = |point: &Point| Point { goodput: point.throughput, met: point.answered, ..*point };
        let curve = Curve::new(self.curve()?.points().iter().map(throughput).collect())?;
        let points = curve.points();
        let inside = points.first()?.cap <= cap && cap <= points.last()?.cap;
        if inside {
            Some(cap as f64 / curve.at(cap))
        } else {
            nearest.service.at(self.work()).map(|mean| mean.value)
        }
    }
}
