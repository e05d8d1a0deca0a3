//! Detects contradictory observations: falling goodput with preemptions (a cliff), a cap that
//! behaves differently than before, and caps that do not fit one curve.

use super::SearchSettings;
use super::curve::Point;
use super::evidence::Evidence;
use super::noise::NOTABLE;
use super::service_time::MeanEstimate;
use super::step_summary::StepSummary;

/// A goodput below this share of the best goodput of a lower cap may mean that the server has
/// changed.
const DROP_SHARE: f64 = 0.85;
/// A pause in a stream indicates a preempted sequence if it is longer than this multiple of the
/// median pause at the next lower cap, and longer than `MIN_PAUSE_S`.
const PAUSE_FACTOR: f64 = 5.0;
/// Minimum length in seconds of a pause that indicates a preempted sequence.
const MIN_PAUSE_S: f64 = 0.5;
/// Preemptions are assumed at a cap only if more than this share of its calls have a pause that
/// indicates a preempted sequence, or if the engine counted more preemptions per attempt than this.
const PAUSED_SHARE: f64 = 0.03;
/// Minimum absolute change of the natural logarithm of the service time for the service time to
/// count as changed.
const MIN_CHANGE: f64 = 0.08;
/// Minimum difference between two measurements, in standard errors, that counts as a change or a
/// contradiction.
const EVIDENT_ERRORS: f64 = 3.5;
/// Thresholds for a change of the service time if the goodput has already fallen: minimum change of
/// the natural logarithm, and minimum change in standard errors.
const SUSPECT_CHANGE: (f64, f64) = (0.12, 1.5);
/// Maximum difference between the natural logarithms of two caps for their goodputs to be compared
/// with each other.
const NEIGHBOUR_DISTANCE: f64 = 0.4;
/// Minimum difference between the natural logarithms of a measured goodput and of the fitted curve
/// at the same cap for the measurement to contradict the curve.
const OFF_CURVE: f64 = 0.12;

impl Evidence {
    /// Returns the lowest cap that has preemptions and whose goodput is below the best goodput of
    /// the lower caps by more than the tolerance and the standard error. Returns `None` if there is
    /// none.
    pub(super) fn cliff(&self, settings: &SearchSettings) -> Option<usize> {
        let points = self.points();
        (1..points.len()).find_map(|at| {
            let (below, above) = points.split_at_checked(at)?;
            let best = below.iter().max_by(|a, b| a.goodput.value.total_cmp(&b.goodput.value))?;
            let at_cap = above.first()?;
            let error = at_cap.goodput.error.hypot(best.goodput.error);
            let fell = at_cap.goodput.value + error < (1.0 - settings.tolerance) * best.goodput.value;
            (fell && self.has_preemptions(at_cap.cap)).then_some(at_cap.cap)
        })
    }

    /// Returns `true` if preempted sequences are more than three times as frequent at `cap` as at
    /// the lower cap with the fewest and at each cap up to half of it, and exceed [`PAUSED_SHARE`].
    /// If the engine does not count
    /// preemptions, long stream pauses are counted instead, unless repeated steps disagree: then
    /// something else stops the streams. Returns `false` if no lower cap was measured.
    pub(super) fn has_preemptions(&self, cap: usize) -> bool {
        let Some(at_cap) = self.pooled(cap) else { return false };
        let below: Vec<StepSummary> = self
            .points()
            .iter()
            .filter(|point| point.cap < cap)
            .filter_map(|point| self.pooled(point.cap))
            .collect();
        let Some(nearest) = below.last() else { return false };
        let usual = nearest.pauses.get(nearest.pauses.len() / 2).copied().unwrap_or(0.0);
        let threshold = (PAUSE_FACTOR * usual).max(MIN_PAUSE_S);
        let paused = |summary: &StepSummary| {
            let long = summary.pauses.iter().filter(|&&pause| pause > threshold).count();
            long as f64 / summary.pauses.len().max(1) as f64
        };
        let preemption_rate =
            |summary: &StepSummary| summary.preemptions.unwrap_or(0) as f64 / summary.attempts.max(1) as f64;
        let is_higher = |of: &dyn Fn(&StepSummary) -> f64| {
            let least = below.iter().map(of).fold(f64::INFINITY, f64::min);
            // Far below a full cache, only something else stops the streams.
            let far_below = below.iter().filter(|summary| 2 * summary.cap <= cap).map(of).fold(0.0, f64::max);
            of(&at_cap) > PAUSED_SHARE && of(&at_cap) > 3.0 * least.max(far_below)
        };
        match at_cap.preemptions {
            Some(_) => is_higher(&preemption_rate),
            None if self.accepted().any(|summary| summary.preemptions.is_some()) => false,
            None => self.noise() < NOTABLE && is_higher(&paused),
        }
    }

    /// Returns the lowest accepted cap with preemptions, or `None` if there is none.
    pub(super) fn lowest_preempting_cap(&self) -> Option<usize> {
        self.accepted().map(|summary| summary.cap).filter(|&cap| self.has_preemptions(cap)).min()
    }

    /// Returns the measured cap with the highest goodput, or `None` without measurements.
    pub(super) fn best(&self) -> Option<Point> {
        self.points().into_iter().max_by(|a, b| a.goodput.value.total_cmp(&b.goodput.value))
    }

    /// Returns `true` if the measured cap with the best goodput is below `cap`, and the goodput at
    /// `cap` is below [`DROP_SHARE`] of that goodput.
    pub(super) fn is_goodput_drop(&self, cap: usize) -> bool {
        let at_cap = self.pooled(cap).and_then(|summary| summary.goodput(self.work()));
        at_cap.zip(self.best()).is_some_and(|(at_cap, best)| {
            at_cap.value * (1.0 + self.noise()) < DROP_SHARE * best.goodput.value && best.cap < cap
        })
    }

    /// Returns the change of the natural logarithm of the service time between the earlier steps at
    /// the cap of `summary` and `summary` itself: above 0 if calls have become slower. Returns
    /// `None` if there was no earlier step, or if the change is within the thresholds. The
    /// thresholds are [`SUSPECT_CHANGE`] if `suspected` is `true`, otherwise [`MIN_CHANGE`] and
    /// [`EVIDENT_ERRORS`].
    pub(super) fn service_time_change(&self, summary: &StepSummary, suspected: bool) -> Option<f64> {
        let (now, then) =
            (summary.service.at(self.work())?, self.pooled(summary.cap)?.service.at(self.work())?);
        let change = (now.value / then.value).ln();
        let error = now.relative().hypot(then.relative()).hypot(self.noise());
        let (least, threshold) = if suspected { SUSPECT_CHANGE } else { (MIN_CHANGE, EVIDENT_ERRORS) };
        (change.abs() > least && change.abs() > threshold * error).then_some(change)
    }

    /// Returns `true` if two steps at the same cap have the same service time, within the
    /// thresholds [`MIN_CHANGE`] and [`EVIDENT_ERRORS`].
    pub(super) fn agree(&self, one: &StepSummary, other: &StepSummary) -> bool {
        let times = one.service.at(self.work()).zip(other.service.at(self.work()));
        times.is_some_and(|(one, other)| {
            let change = (one.value / other.value).ln().abs();
            change <= MIN_CHANGE || change <= EVIDENT_ERRORS * one.relative().hypot(other.relative())
        })
    }

    /// Returns a measured cap whose goodput is inconsistent with that of the step `summary`, or
    /// `None` if there is none.
    ///
    /// If the curve is smooth and covers the cap of the step, the step is compared with the curve.
    /// If the step is too far from the curve, the nearest measured cap is returned. Otherwise, the
    /// step is compared with each neighbouring cap, whose goodput may not differ by a larger factor
    /// than the cap itself.
    pub(super) fn contradicting_cap(&self, summary: &StepSummary) -> Option<usize> {
        let goodput = summary.goodput(self.work())?;
        let goodput = MeanEstimate { error: goodput.error.hypot(self.noise() * goodput.value), ..goodput };
        let points = self.points();
        let nearest = points
            .iter()
            .min_by_key(|point| point.cap.abs_diff(summary.cap))
            .filter(|point| point.cap != summary.cap)?;
        let inside = points.first()?.cap <= summary.cap && summary.cap <= points.last()?.cap;
        if let Some(curve) = self.curve().filter(|curve| inside && curve.is_smooth()) {
            let distance = (goodput.value / curve.at(summary.cap)).ln().abs();
            return (distance > OFF_CURVE && distance > EVIDENT_ERRORS * goodput.relative())
                .then_some(nearest.cap);
        }
        points.iter().map(|point| (point, (summary.cap as f64 / point.cap as f64).ln())).find_map(
            |(point, log_ratio)| {
                let rise = (goodput.value / point.goodput.value).ln() * log_ratio.signum();
                let beyond = (rise - log_ratio.abs()).max(-log_ratio.abs() - rise);
                let error = goodput.relative().hypot(point.goodput.relative());
                (log_ratio != 0.0
                    && log_ratio.abs() < NEIGHBOUR_DISTANCE
                    && beyond > MIN_CHANGE / 2.0
                    && beyond > EVIDENT_ERRORS * error)
                    .then_some(point.cap)
            },
        )
    }
}
