//! What is known of the server, from the steps of the present era.
//!
//! An era ends where the server turns out to be another than before (drift): what was seen earlier is then kept for the report and no longer counted.

use super::SearchSettings;
use super::curve::{Curve, Knee, Point};
use super::rate_history::RateHistory;
use super::service_time::ServiceTime;
use super::sprt::Sprt;
use super::step_summary::{StepEnd, StepSummary};
use crate::observation::CallObservation;

/// Failures are fine up to the share seen at low caps and this many standard errors more.
const BASELINE_ERRORS: f64 = 1.0;

/// Why a cap cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RejectionCause {
    /// Too much failed.
    Failures,
    /// The client did not hold it.
    Client,
    /// The engine's memory was full, and the goodput fell.
    Cliff,
    /// It is slow there, and for a while afterwards.
    Overload,
}

/// The lowest cap that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RejectedCap {
    pub(super) cap: usize,
    pub(super) wall: RejectionCause,
    /// The highest cap that may be had, as far as the step itself shows.
    pub(super) guess: Option<usize>,
    /// Whether what lies just above a guess is worth a try as well.
    pub(super) next: bool,
    /// Where it refused what came on top: held before, and the highest position that was taken.
    pub(super) edge: Option<(usize, usize)>,
}

impl RejectedCap {
    pub(super) fn new(cap: usize, wall: RejectionCause, guess: Option<usize>) -> Self {
        Self { cap, wall, guess, next: true, edge: None }
    }
}

#[derive(Debug, Default)]
pub(super) struct Evidence {
    visits: Vec<StepSummary>,
    /// The first visit of this era.
    era: usize,
    pub(super) good: Option<usize>,
    pub(super) bad: Option<RejectedCap>,
    /// Work of all calls, for the mix's mean.
    mix: ServiceTime,
    /// Tokens of all answered calls, in and out: how many calls, sum, sum of squares.
    sizes: [f64; 3],
    /// Calls that have ended.
    pub(super) calls: usize,
    pub(super) tape: RateHistory,
}

impl Evidence {
    pub(super) fn call(&mut self, seen: &CallObservation) {
        self.calls += 1;
        self.tape.call(seen);
        if seen.failure.is_none() {
            self.mix.add(seen.output_tokens as f64, 0.0);
            let size = (seen.input_tokens + seen.output_tokens) as f64;
            self.sizes = [self.sizes[0] + 1.0, self.sizes[1] + size, self.sizes[2] + size * size];
        }
    }

    /// By which share, one standard error, the mean size of the prompts seen at a cap is off the mix's: each step takes them from the first on.
    pub(super) fn sample_error(&self, cap: usize) -> f64 {
        let [n, sum, squares] = self.sizes;
        let spread = (n * squares / (sum * sum).max(1.0) - 1.0).max(0.0).sqrt();
        let most = self.accepted().filter(|visit| visit.cap == cap).map(|visit| visit.answered).max();
        spread / (most.unwrap_or(0).max(1) as f64).sqrt()
    }

    /// The mean work of a call of the mix.
    pub(super) fn work(&self) -> f64 {
        self.mix.work().unwrap_or_default()
    }

    pub(super) fn visits(&self) -> &[StepSummary] {
        self.visits.get(self.era..).unwrap_or_default()
    }

    pub(super) fn all_visits(&self) -> &[StepSummary] {
        &self.visits
    }

    pub(super) fn add(&mut self, visit: StepSummary) {
        self.visits.push(visit);
    }

    /// What was seen before the last `keep` visits counts no more.
    pub(super) fn new_era(&mut self, keep: usize) {
        self.era = self.visits.len().saturating_sub(keep);
        self.good = self.accepted().map(|visit| visit.cap).max();
        self.bad = None;
    }

    /// A cap that cannot be had; one that is lower already stays.
    pub(super) fn wall(&mut self, bad: RejectedCap) {
        if self.bad.is_none_or(|known| known.cap >= bad.cap) {
            self.bad = Some(bad);
        }
    }

    /// Only caps below this one are good still.
    pub(super) fn lower(&mut self, cap: usize) {
        self.good = self.accepted().map(|visit| visit.cap).filter(|&good| good < cap).max();
    }

    pub(super) fn accepted(&self) -> impl Iterator<Item = &StepSummary> {
        self.visits().iter().filter(|visit| visit.ended == StepEnd::Accepted)
    }

    /// The test of a share of failures, above what fails at low caps too.
    pub(super) fn test(&self, settings: &SearchSettings, cap: usize) -> Sprt {
        let low = self.accepted().filter(|visit| 2 * visit.cap <= cap.max(2 * settings.min_cap));
        let (failed, attempts) =
            low.fold((0, 0), |sum, visit| (sum.0 + visit.failed, sum.1 + visit.attempts));
        let baseline = if failed == 0 {
            0.0
        } else {
            let (failed, n) = (failed as f64, attempts as f64);
            (failed / n + BASELINE_ERRORS * failed.sqrt() / n).min(0.5)
        };
        // What is fine is called too many more rarely than was asked: a rejection is cheap where it is right, and dear where it is wrong.
        Sprt::new(
            settings.fine + baseline,
            settings.too_many + baseline,
            settings.error_rate / 4.0,
            settings.error_rate,
        )
    }

    /// All that was seen at a cap in this era, put together.
    pub(super) fn pooled(&self, cap: usize) -> Option<StepSummary> {
        let mut at = self.accepted().filter(|visit| visit.cap == cap);
        let mut sum = at.next()?.clone();
        for visit in at {
            let (n, m) = (sum.service.count() as f64, visit.service.count() as f64);
            sum.in_flight = (n * sum.in_flight + m * visit.in_flight) / (n + m).max(1.0);
            sum.service = sum.service.and(&visit.service);
            sum.met += visit.met;
            sum.answered += visit.answered;
            sum.attempts += visit.attempts;
            sum.failed += visit.failed;
            sum.top = (sum.top.0 + visit.top.0, sum.top.1 + visit.top.1);
            sum.preemptions += visit.preemptions;
            sum.pauses.extend_from_slice(&visit.pauses);
        }
        sum.pauses.sort_by(f64::total_cmp);
        Some(sum)
    }

    /// Attempts that failed and that were taken at a cap that was accepted.
    pub(super) fn attempts_at(&self, cap: usize) -> (usize, usize) {
        self.accepted()
            .filter(|visit| visit.cap == cap)
            .fold((0, 0), |sum, visit| (sum.0 + visit.failed, sum.1 + visit.attempts - visit.failed))
    }

    /// Goodput at the caps that were accepted.
    pub(super) fn points(&self) -> Vec<Point> {
        let highest = self.good.unwrap_or(0);
        let mut caps: Vec<usize> =
            self.accepted().map(|visit| visit.cap).filter(|&cap| cap <= highest).collect();
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

    /// How long a call of the mix holds its slot at a cap, seconds: as it was seen there, else as the curve has it.
    pub(super) fn service_at(&self, cap: usize) -> Option<f64> {
        if let Some(mean) = self.pooled(cap).and_then(|visit| visit.service.at(self.work())) {
            return Some(mean.value);
        }
        let nearest = self.accepted().min_by_key(|visit| visit.cap.abs_diff(cap))?;
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
