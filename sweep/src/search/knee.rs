//! Locates the knee of the goodput curve, and selects caps whose measurement locates it better.

use super::SearchSettings;
use super::curve::Curve;
use super::evidence::Evidence;

/// Distance between a usable and an unusable cap, relative to the usable one, up to which no cap
/// between them is measured. The distance is at least one slot.
pub(super) const RESOLUTION: f64 = 0.02;
/// Relative distance between two caps within which a measurement of one also counts for the other.
pub(super) const NEAR: f64 = 0.06;
/// The peak of the goodput counts as passed if the best cap of the curve is at most this share of
/// the highest measured cap.
const PAST_PEAK_SHARE: f64 = 0.8;
/// If the last increase of the cap raised the goodput by less than this factor, the next increase
/// is smaller.
const FLAT_GAIN: f64 = 1.15;
/// The goodput counts as no longer rising if the knee is below this share of the highest measured
/// cap.
const BENT_SHARE: f64 = 0.85;
/// Share of the answer that is measured in the confirmation if a higher cap shows nothing.
const CONFIRM_BELOW: f64 = 0.8;
/// If an objective sets the knee, the cap that is measured in the confirmation, divided by the
/// answer. The shares of late calls at both caps determine the knee with the fewest calls.
const LATE_CALLS_FACTOR: f64 = 1.6;
/// The search measures no cap above this multiple of the lowest cap with nearly the best goodput.
const MAX_KNEE_FACTOR: usize = 4;
/// Share of the best measured goodput that counts as nearly the best.
const NEARLY_BEST: f64 = 0.9;
/// Maximum ratio between the knee and the next lower measured cap for the knee to count as known.
const MAX_GAP_RATIO: f64 = 1.4;

/// Returns `true` if a measurement at cap `a` also counts for cap `b`, because their distance is at
/// most [`NEAR`] of `b` or one slot.
fn is_near(a: usize, b: usize) -> bool {
    a.abs_diff(b) as f64 <= (NEAR * b as f64).max(1.0).min(b as f64 - 1.0)
}

impl Evidence {
    /// Returns `true` if the highest measured cap is more than a third above the next lower one,
    /// but its goodput is less than [`FLAT_GAIN`] times as high.
    pub(super) fn is_flattening(&self) -> bool {
        match self.points().as_slice() {
            [.., below, last] => {
                last.goodput.value < FLAT_GAIN * below.goodput.value && last.cap > 4 * below.cap / 3
            }
            _ => false,
        }
    }

    /// Returns `true` if the goodput no longer rises at the highest measured cap: the engine queues
    /// calls, the curve is smooth and its best cap is at most [`PAST_PEAK_SHARE`] of the highest
    /// cap, or a cap of at most three quarters of the highest has about the same goodput or more.
    pub(super) fn is_past_peak(&self, settings: &SearchSettings) -> bool {
        let points = self.points();
        let Some((last, below)) = points.split_last() else { return false };
        if self.engine_queue().is_some() {
            return true;
        }
        let is_below = |factor: f64, value: f64, error: f64| last.goodput.value < factor * value - error;
        let knee = self.curve().filter(Curve::is_smooth).and_then(|curve| curve.knee(settings.tolerance));
        if knee.is_some_and(|knee| knee.best_cap as f64 <= PAST_PEAK_SHARE * last.cap as f64) {
            return true;
        }
        // If the upward steps are small, the next lower cap shows little.
        below.iter().filter(|point| 4 * point.cap <= 3 * last.cap).any(|point| {
            let error = last.goodput.error.hypot(point.goodput.error);
            // Evidently below the tolerance, or no gain for many more slots.
            is_below(1.0 - settings.tolerance, point.goodput.value, error)
                || is_below(1.0 + 0.5 * settings.tolerance, point.goodput.value, 0.0)
        })
    }

    /// Returns `true` if the goodput is known not to rise further: the engine queues calls, or the
    /// knee is below [`BENT_SHARE`] of the highest measured cap.
    pub(super) fn has_stopped_rising(&self, settings: &SearchSettings) -> bool {
        // A cap without goodput is not part of the curve.
        let highest = self.points().last().map_or(0, |point| point.cap);
        self.engine_queue().is_some()
            || self.knee(settings).is_some_and(|knee| (knee.cap as f64) < BENT_SHARE * highest as f64)
    }

    /// Returns the highest cap that the search may measure now: [`MAX_KNEE_FACTOR`] times the
    /// lowest cap that has nearly the best goodput. Returns `None` without measurements.
    pub(super) fn highest_useful_cap(&self) -> Option<usize> {
        let points = self.points();
        let best = points.iter().map(|point| point.goodput.value).fold(0.0, f64::max);
        let lowest = points.iter().find(|point| point.goodput.value >= NEARLY_BEST * best)?;
        Some(MAX_KNEE_FACTOR * lowest.cap)
    }

    /// Returns a cap between the measured cap with the highest goodput and the next lower one if
    /// the former already has preemptions. Returns `None` otherwise, or if the two caps are too
    /// close.
    pub(super) fn below_cliff(&self) -> Option<usize> {
        let points = self.points();
        let best = points.iter().max_by(|a, b| a.goodput.value.total_cmp(&b.goodput.value))?;
        let below = points.iter().rev().find(|point| point.cap < best.cap)?;
        (!is_near(below.cap, best.cap) && self.has_preemptions(best.cap))
            .then(|| (below.cap as f64 * best.cap as f64).sqrt().round() as usize)
    }

    /// Returns a cap whose measurement would locate the knee better, or `None` if the knee is known
    /// well enough. `good` is the highest usable cap.
    pub(super) fn next_knee_cap(&self, settings: &SearchSettings, good: usize) -> Option<usize> {
        let curve = self.curve()?;
        let points = curve.points();
        let best = points.iter().max_by(|a, b| a.goodput.value.total_cmp(&b.goodput.value))?;
        let knee = curve.knee(settings.tolerance)?;
        // At a cliff, extrapolate the rise so far to see how much could still be gained.
        let below = points.iter().rev().find(|point| point.cap < best.cap);
        let above = points.iter().find(|point| point.cap > best.cap);
        if let (Some(below), Some(above)) = (below, above)
            && (!curve.is_smooth() || self.has_preemptions(above.cap))
        {
            let rise =
                (best.goodput.value / below.goodput.value).ln() / (best.cap as f64 / below.cap as f64).ln();
            let gain = (above.cap as f64 / best.cap as f64).ln() * rise.clamp(0.0, 1.0);
            if gain > 2.0 * settings.tolerance && above.cap - best.cap > 1 {
                let middle = (best.cap as f64 * above.cap as f64).sqrt().round() as usize;
                return Some(middle.clamp(best.cap + 1, above.cap - 1));
            }
        }
        let is_measured = |cap: usize| points.iter().any(|point| is_near(point.cap, cap));
        if knee.cap <= good && !is_measured(knee.cap) {
            return Some(knee.cap);
        }
        // The knee is the lowest measured cap.
        let lowest = points.first()?.cap;
        if knee.cap == lowest && lowest > settings.min_cap.max(1) && points.len() > 1 {
            return Some((lowest / 2).max(settings.min_cap));
        }
        // The next lower measured cap must be near the answer, or the answer may be too high by the
        // gap.
        let target = (1.0 - settings.tolerance) * knee.best;
        let mut below =
            points.iter().rev().filter(|point| point.cap < knee.cap && !is_near(point.cap, knee.cap));
        let (low, lower) = (below.next()?, below.next());
        if knee.cap as f64 <= MAX_GAP_RATIO * low.cap as f64 {
            return None;
        }
        // A concave goodput reaches the target no earlier than a straight extrapolation.
        let middle = (low.cap as f64 * knee.cap as f64).sqrt();
        let straight = lower.map(|lower| {
            let rise =
                (low.goodput.value / lower.goodput.value).ln() / (low.cap as f64 / lower.cap as f64).ln();
            low.cap as f64 * (target / low.goodput.value).max(1.0).powf(1.0 / rise.clamp(0.3, 1.0))
        });
        let cap = straight.map_or(middle, |straight| {
            straight.clamp(1.1 * low.cap as f64, middle.max(knee.cap as f64 / 1.15))
        });
        Some(cap.round() as usize).filter(|&cap| !is_measured(cap) && cap > low.cap && cap < knee.cap)
    }

    /// Returns the measured cap that the search recommends. This is the cap nearest to the knee, if
    /// it is within [`NEAR`] of the knee and its goodput is within 1.5 times the tolerance of the
    /// best one. Otherwise, it is the lowest measured cap at or above the knee. Returns `None`
    /// without measurements.
    pub(super) fn answer(&self, settings: &SearchSettings) -> Option<usize> {
        let curve = self.curve()?;
        let knee = curve.knee(settings.tolerance)?;
        let nearest =
            curve.points().iter().map(|point| point.cap).min_by_key(|cap| cap.abs_diff(knee.cap))?;
        let near = nearest.abs_diff(knee.cap) as f64 <= (NEAR * knee.cap as f64).max(1.0);
        let enough = |cap: usize| curve.at(cap) >= (1.0 - 1.5 * settings.tolerance) * knee.best;
        if near && enough(nearest) {
            return Some(nearest);
        }
        curve.points().iter().map(|point| point.cap).find(|&cap| cap >= knee.cap)
    }

    /// Returns the cap whose measurement alternates with that of `answer` in the confirmation: a
    /// higher one, or a lower one if the engine's queue shows that it runs no more calls than
    /// `answer`. Returns `None` if there is no such cap.
    pub(super) fn confirmation_cap(&self, settings: &SearchSettings, answer: usize) -> Option<usize> {
        if let Some(above) = self.cap_with_late_calls(settings, answer) {
            return Some(above);
        }
        if let Some(queue) = self.engine_queue() {
            let best = self.knee(settings).map_or(0, |knee| knee.best_cap);
            let other = if queue.is_kv_full { best } else { queue.running };
            if answer < other && !is_near(answer, other) {
                return Some(other);
            }
            return self.confirmation_cap_below(settings, answer);
        }
        if let Some(bad) = self.bad
            && bad.cap.saturating_sub(answer) <= ((2.0 * RESOLUTION * answer as f64) as usize).max(1)
        {
            return Some(bad.cap);
        }
        let knee = self.knee(settings)?;
        let above = knee.best_cap.max(answer + answer.div_ceil(8));
        let highest = self.bad.map_or(settings.max_cap, |bad| bad.cap - 1);
        (answer < highest).then(|| above.min(highest))
    }

    /// Returns a cap well above `answer` if an objective sets the knee, otherwise `None`. A step at
    /// that cap shows how quickly the share of the calls in time falls.
    fn cap_with_late_calls(&self, settings: &SearchSettings, answer: usize) -> Option<usize> {
        let curve = self.curve()?;
        let share = curve.share_in_time()?;
        let highest = self.engine_queue().map_or(settings.max_cap, |queue| queue.running);
        let highest = self.bad.map_or(highest, |bad| highest.min(bad.cap.saturating_sub(1)));
        let above = ((LATE_CALLS_FACTOR * answer as f64).round() as usize).min(highest);
        let falls = share.at(above) < (1.0 - 2.0 * settings.tolerance) * share.at(answer.div_ceil(2));
        (falls && above > answer && !is_near(above, answer)).then_some(above)
    }

    /// Returns a cap below `answer` whose measurement alternates with that of `answer`: a measured
    /// one near [`CONFIRM_BELOW`] of the answer, if any. Returns `None` if there is no such cap.
    pub(super) fn confirmation_cap_below(&self, settings: &SearchSettings, answer: usize) -> Option<usize> {
        let below = (CONFIRM_BELOW * answer as f64).round() as usize;
        let measured = self.points().iter().map(|point| point.cap).rfind(|&cap| cap <= below);
        let cap = measured.filter(|&cap| cap as f64 >= 0.9 * below as f64).unwrap_or(below);
        (cap >= settings.min_cap && cap < answer).then_some(cap)
    }
}
