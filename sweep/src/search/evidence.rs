//! The evidence from the steps of the current era.
//!
//! A new era begins if the server has changed (drift). Earlier steps are then only kept for the
//! report.

use super::SearchSettings;
use super::curve::{Curve, Knee, Point};
use super::rate_history::RateHistory;
use super::service_time::ServiceTime;
use super::sprt::Sprt;
use super::step_summary::{StepEnd, StepSummary};
use crate::observation::CallObservation;

/// Acceptable failures include the share at low caps plus this many standard errors.
const BASELINE_ERRORS: f64 = 1.0;

/// Why a cap is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RejectionCause {
    /// Too many attempts failed.
    Failures,
    /// The client did not keep the cap busy.
    Client,
    /// The engine's KV cache was full, and the goodput fell.
    Cliff,
    /// The server is slow at this cap and for a while afterwards.
    Overload,
}

/// The lowest cap that is not usable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RejectedCap {
    pub(super) cap: usize,
    pub(super) wall: RejectionCause,
    /// Highest usable cap according to the step itself.
    pub(super) guess: Option<usize>,
    /// Whether the cap just above the guess is worth a try as well.
    pub(super) next: bool,
    /// The highest accepted cap before, and the highest accepted position, if additional calls were
    /// rejected.
    pub(super) edge: Option<(usize, usize)>,
}

impl RejectedCap {
    pub(super) fn new(cap: usize, wall: RejectionCause, guess: Option<usize>) -> Self {
        Self { cap, wall, guess, next: true, edge: None }
    }
}

#[derive(Debug, Default)]
pub(super) struct Evidence {
    summaries: Vec<StepSummary>,
    /// Index of the first step of the era.
    era: usize,
    pub(super) good: Option<usize>,
    pub(super) bad: Option<RejectedCap>,
    /// Work of all calls, for the mean of the mix.
    mix: ServiceTime,
    /// Total tokens of answered calls: count, sum, and sum of squares.
    sizes: [f64; 3],
    /// Number of calls that have ended.
    pub(super) calls: usize,
    pub(super) rate_history: RateHistory,
}

impl Evidence {
    pub(super) fn call(&mut self, seen: &CallObservation) {
        self.calls += 1;
        self.rate_history.call(seen);
        if seen.failure.is_none() {
            self.mix.add(seen.output_tokens as f64, 0.0);
            let size = (seen.input_tokens + seen.output_tokens) as f64;
            self.sizes = [self.sizes[0] + 1.0, self.sizes[1] + size, self.sizes[2] + size * size];
        }
    }

    /// Returns the relative standard error of the mean prompt size at a cap, compared with the mix,
    /// because a step only sends the first prompts.
    pub(super) fn sample_error(&self, cap: usize) -> f64 {
        let [n, sum, squares] = self.sizes;
        let spread = (n * squares / (sum * sum).max(1.0) - 1.0).max(0.0).sqrt();
        let most = self.accepted().filter(|summary| summary.cap == cap).map(|summary| summary.answered).max();
        spread / (most.unwrap_or(0).max(1) as f64).sqrt()
    }

    /// Returns the mean work of a call of the mix, in output tokens.
    pub(super) fn work(&self) -> f64 {
        self.mix.work().unwrap_or_default()
    }

    pub(super) fn summaries(&self) -> &[StepSummary] {
        self.summaries.get(self.era..).unwrap_or_default()
    }

    pub(super) fn all_summaries(&self) -> &[StepSummary] {
        &self.summaries
    }

    pub(super) fn add(&mut self, summary: StepSummary) {
        self.summaries.push(summary);
    }

    /// Starts a new era. Only the last `keep` steps still count.
    pub(super) fn new_era(&mut self, keep: usize) {
        self.era = self.summaries.len().saturating_sub(keep);
        self.good = self.accepted().map(|summary| summary.cap).max();
        self.bad = None;
    }

    /// Records an unusable cap, unless a lower one is known.
    pub(super) fn record_rejected_cap(&mut self, bad: RejectedCap) {
        if self.bad.is_none_or(|known| known.cap >= bad.cap) {
            self.bad = Some(bad);
        }
    }

    /// Keeps only accepted caps below `cap`.
    pub(super) fn keep_accepted_below(&mut self, cap: usize) {
        self.good = self.accepted().map(|summary| summary.cap).filter(|&good| good < cap).max();
    }

    pub(super) fn accepted(&self) -> impl Iterator<Item = &StepSummary> {
        self.summaries().iter().filter(|summary| summary.ended == StepEnd::Accepted)
    }

    /// Returns the test for failures at a cap, above the background of failures at low caps.
    pub(super) fn test(&self, settings: &SearchSettings, cap: usize) -> Sprt {
        let low = self.accepted().filter(|summary| 2 * summary.cap <= cap.max(2 * settings.min_cap));
        let (failed, attempts) =
            low.fold((0, 0), |sum, summary| (sum.0 + summary.failed, sum.1 + summary.attempts));
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

    /// Returns all accepted steps at a cap of this era, merged.
    pub(super) fn pooled(&self, cap: usize) -> Option<StepSummary> {
        let mut at = self.accepted().filter(|summary| summary.cap == cap);
        let mut sum = at.next()?.clone();
        for summary in at {
            let (n, m) = (sum.service.count() as f64, summary.service.count() as f64);
            sum.in_flight = (n * sum.in_flight + m * summary.in_flight) / (n + m).max(1.0);
            sum.service = sum.service.and(&summary.service);
            sum.met += summary.met;
            sum.answered += summary.answered;
            sum.attempts += summary.attempts;
            sum.failed += summary.failed;
            sum.above_floor =
                (sum.above_floor.0 + summary.above_floor.0, sum.above_floor.1 + summary.above_floor.1);
            sum.preemptions += summary.preemptions;
            sum.pauses.extend_from_slice(&summary.pauses);
        }
        sum.pauses.sort_by(f64::total_cmp);
        Some(sum)
    }

    /// Returns the failed and the successful attempts at an accepted cap.
    pub(super) fn attempts_at(&self, cap: usize) -> (usize, usize) {
        self.accepted()
            .filter(|summary| summary.cap == cap)
            .fold((0, 0), |sum, summary| (sum.0 + summary.failed, sum.1 + summary.attempts - summary.failed))
    }

    /// Returns the goodput at each accepted cap.
    pub(super) fn points(&self) -> Vec<Point> {
        let highest = self.good.unwrap_or(0);
        let mut caps: Vec<usize> =
            self.accepted().map(|summary| summary.cap).filter(|&cap| cap <= highest).collect();
        caps.sort_unstable();
        caps.dedup();
        let work = self.work();
        let point = |&cap: &usize| Some(Point { cap, goodput: self.pooled(cap)?.goodput(work)? });
        caps.iter().filter_map(point).collect()
    }

    pub(super) fn curve(&self) -> Option<Curve> {
        Curve::new(self.points())
    }

    pub(super) fn knee(&self, settings: &SearchSettings) -> Option<Knee> {
        self.curve()?.knee(settings.tolerance)
    }

    /// Returns how long a call of the mix holds its slot at a cap, in seconds: as measured, or
    /// otherwise from the curve.
    pub(super) fn service_at(&self, cap: usize) -> Option<f64> {
        if let Some(mean) = self.pooled(cap).and_then(|summary| summary.service.at(self.work())) {
            return Some(mean.value);
        }
        let nearest = self.accepted().min_by_key(|summary| summary.cap.abs_diff(cap))?;
        let curve = self.curve()?;
        let points = curve.points();
        let inside = points.first()?.cap <= cap && cap <= points.last()?.cap;
        if inside {
            Some(cap as f64 / curve.at(cap))
        } else {
            nearest.service.at(self.work()).map(|mean| mean.value)
        }
    }
}
