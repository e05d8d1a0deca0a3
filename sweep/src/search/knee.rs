//! Where the knee is, and which cap would tell more of it.

use super::SearchSettings;
use super::curve::Curve;
use super::evidence::Evidence;

/// A bracket is closed at this share of the cap, or one slot.
pub(super) const RESOLUTION: f64 = 0.02;
/// A cap counts as measured where one so near was.
pub(super) const NEAR: f64 = 0.06;
/// The peak of the curve is this far below the highest cap: it has been passed.
const PAST: f64 = 0.8;
/// Twice the cap gave no more than this: smaller steps from here.
const FLAT: f64 = 1.15;
/// The knee is this far below the highest cap: the goodput was seen to stop rising.
const BENT: f64 = 0.85;
/// The next cap that was measured below the answer is no further off.
const SPREAD: f64 = 1.4;

/// Whether one cap is as good as measured where the other was.
fn near(a: usize, b: usize) -> bool {
    a.abs_diff(b) as f64 <= (NEAR * b as f64).max(1.0).min(b as f64 - 1.0)
}

impl Evidence {
    /// The last doubling gave little: the peak is near.
    pub(super) fn is_flattening(&self) -> bool {
        match self.points().as_slice() {
            [.., below, last] => {
                last.goodput.value < FLAT * below.goodput.value && last.cap > 4 * below.cap / 3
            }
            _ => false,
        }
    }

    /// The highest cap is evidently worse than one below it, or no better than half of it.
    pub(super) fn is_past_peak(&self, settings: &SearchSettings) -> bool {
        let points = self.points();
        let Some((last, below)) = points.split_last() else { return false };
        let bar = |factor: f64, value: f64, error: f64| last.goodput.value < factor * value - error;
        let bends = self.curve().filter(Curve::is_smooth).and_then(|curve| curve.knee(settings.tolerance));
        if bends.is_some_and(|knee| knee.best_cap as f64 <= PAST * last.cap as f64) {
            return true;
        }
        // Where the steps upwards are small, the next below says little.
        below.iter().filter(|point| 4 * point.cap <= 3 * last.cap).any(|point| {
            let error = last.goodput.error.hypot(point.goodput.error);
            // Evidently lower than the best may be, or nothing to show for so many more.
            bar(1.0 - settings.tolerance, point.goodput.value, error)
                || bar(1.0 + 0.5 * settings.tolerance, point.goodput.value, 0.0)
        })
    }

    /// Whether the goodput was seen to stop rising above the knee.
    pub(super) fn is_bent(&self, settings: &SearchSettings) -> bool {
        self.curve().is_some_and(|curve| {
            let highest = curve.points().last().map_or(0, |point| point.cap);
            curve.knee(settings.tolerance).is_some_and(|knee| (knee.cap as f64) < BENT * highest as f64)
        })
    }

    /// The best is over the cliff already, and what is below it has not been seen: a cap in between.
    pub(super) fn below_cliff(&self) -> Option<usize> {
        let points = self.points();
        let best = points.iter().max_by(|a, b| a.goodput.value.total_cmp(&b.goodput.value))?;
        let below = points.iter().rev().find(|point| point.cap < best.cap)?;
        (!near(below.cap, best.cap) && self.has_preemptions(best.cap))
            .then(|| (below.cap as f64 * best.cap as f64).sqrt().round() as usize)
    }

    /// A cap that would tell more of where the knee is; `None`: it is known.
    pub(super) fn bend(&self, settings: &SearchSettings, good: usize) -> Option<usize> {
        let curve = self.curve()?;
        let points = curve.points();
        let best = points.iter().max_by(|a, b| a.goodput.value.total_cmp(&b.goodput.value))?;
        let knee = curve.knee(settings.tolerance)?;
        if !curve.is_smooth() {
            // A cliff: how high it would still go, as it has gone up to here.
            let below = points.iter().rev().find(|point| point.cap < best.cap);
            let above = points.iter().find(|point| point.cap > best.cap);
            if let (Some(below), Some(above)) = (below, above) {
                let rise = (best.goodput.value / below.goodput.value).ln()
                    / (best.cap as f64 / below.cap as f64).ln();
                let gain = (above.cap as f64 / best.cap as f64).ln() * rise.clamp(0.0, 1.0);
                if gain > 2.0 * settings.tolerance && above.cap - best.cap > 1 {
                    return Some((best.cap as f64 * above.cap as f64).sqrt().round() as usize)
                        .map(|cap| cap.clamp(best.cap + 1, above.cap - 1));
                }
            }
        }
        let is_measured = |cap: usize| points.iter().any(|point| near(point.cap, cap));
        if knee.cap <= good && !is_measured(knee.cap) {
            return Some(knee.cap);
        }
        // The best is as low as was looked.
        let lowest = points.first()?.cap;
        if knee.cap == lowest && lowest > settings.min_cap.max(1) && points.len() > 1 {
            return Some((lowest / 2).max(settings.min_cap));
        }
        // What is below the answer must be near it, or the answer may be too high by the whole gap.
        let target = (1.0 - settings.tolerance) * knee.best;
        let mut below =
            points.iter().rev().filter(|point| point.cap < knee.cap && !near(point.cap, knee.cap));
        let (low, lower) = (below.next()?, below.next());
        if knee.cap as f64 <= SPREAD * low.cap as f64 {
            return None;
        }
        // A goodput that bends down reaches the target no earlier than as it has risen up to here.
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

    /// The smallest cap that was measured and is within tolerance of the best.
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

    /// What the answer is confirmed against.
    pub(super) fn above(&self, settings: &SearchSettings, answer: usize) -> Option<usize> {
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
}
