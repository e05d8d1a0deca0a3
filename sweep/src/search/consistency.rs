//! What does not go together with what else is known: a cliff, a cap that gives something else than before, points that contradict one another.

use super::SearchSettings;
use super::curve::Point;
use super::evidence::Evidence;
use super::step_summary::StepSummary;

/// A goodput that falls to this share of the best may be another server's.
const FALL: f64 = 0.85;
/// Pauses so many times as long as are usual below the cliff, and at least so many seconds, are a sequence that was thrown out;
const PAUSE: f64 = 5.0;
const LEAST_PAUSE: f64 = 0.3;
/// and so large a share of calls has them.
const PAUSED: f64 = 0.03;
/// The time of a call has changed if its logarithm has by so much, and by so many standard errors.
const CHANGE: f64 = 0.08;
const EVIDENT: f64 = 3.5;
/// Both, where there is reason to suspect it.
const SUSPECT: (f64, f64) = (0.12, 1.5);
/// Caps whose logarithms are no further apart are neighbours.
const NEIGHBOUR: f64 = 0.4;
/// And differs from the curve by this.
const OFF: f64 = 0.12;

impl Evidence {
    /// The lowest cap at which sequences were thrown out of the engine's memory as they are not below, and the goodput was evidently lower.
    pub(super) fn cliff(&self, settings: &SearchSettings) -> Option<usize> {
        let points = self.points();
        (1..points.len()).find_map(|at| {
            let (below, above) = points.split_at_checked(at)?;
            let best = below.iter().max_by(|a, b| a.goodput.value.total_cmp(&b.goodput.value))?;
            let here = above.first()?;
            let error = here.goodput.error.hypot(best.goodput.error);
            let fell = here.goodput.value + error < (1.0 - settings.tolerance) * best.goodput.value;
            (fell && self.has_preemptions(here.cap)).then_some(here.cap)
        })
    }

    /// Whether streams stand still in their middle at a cap, or sequences are thrown out, as they are not at the caps below.
    pub(super) fn has_preemptions(&self, cap: usize) -> bool {
        let Some(here) = self.pooled(cap) else { return false };
        let below: Vec<StepSummary> = self
            .points()
            .iter()
            .filter(|point| point.cap < cap)
            .filter_map(|point| self.pooled(point.cap))
            .collect();
        let Some(nearest) = below.last() else { return false };
        let usual = nearest.pauses.get(nearest.pauses.len() / 2).copied().unwrap_or(0.0);
        let bar = (PAUSE * usual).max(LEAST_PAUSE);
        let paused = |visit: &StepSummary| {
            let long = visit.pauses.iter().filter(|&&pause| pause > bar).count();
            long as f64 / visit.pauses.len().max(1) as f64
        };
        let thrown_out = |visit: &StepSummary| visit.preemptions as f64 / visit.attempts.max(1) as f64;
        let more = |of: &dyn Fn(&StepSummary) -> f64| {
            let least = below.iter().map(of).fold(f64::INFINITY, f64::min);
            of(&here) > PAUSED && of(&here) > 3.0 * least
        };
        more(&paused) || more(&thrown_out)
    }

    /// The lowest cap at which sequences were thrown out.
    pub(super) fn lowest_preempting_cap(&self) -> Option<usize> {
        self.accepted().map(|visit| visit.cap).filter(|&cap| self.has_preemptions(cap)).min()
    }

    /// The point with the most goodput.
    pub(super) fn best(&self) -> Option<Point> {
        self.points().into_iter().max_by(|a, b| a.goodput.value.total_cmp(&b.goodput.value))
    }

    /// Whether a cap gives far less than the best.
    pub(super) fn fell(&self, cap: usize) -> bool {
        let here = self.pooled(cap).and_then(|visit| visit.goodput(self.work()));
        here.zip(self.best())
            .is_some_and(|(here, best)| here.value < FALL * best.goodput.value && best.cap < cap)
    }

    /// How the time of a call compares with what it was at the same cap before: its logarithm, where it is evident, or at least to be suspected; `None`: the same, or not known.
    pub(super) fn changed(&self, visit: &StepSummary, suspected: bool) -> Option<f64> {
        let (now, then) = (visit.service.at(self.work())?, self.pooled(visit.cap)?.service.at(self.work())?);
        let change = (now.value / then.value).ln();
        let error = now.relative().hypot(then.relative());
        let (least, bar) = if suspected { SUSPECT } else { (CHANGE, EVIDENT) };
        (change.abs() > least && change.abs() > bar * error).then_some(change)
    }

    /// A cap that was measured before and does not go together with this visit: off the smooth curve, or a neighbour between which and this one a server would have to be
    /// faster with more to do, or lose more than it has more.
    pub(super) fn contradicted(&self, visit: &StepSummary) -> Option<usize> {
        let goodput = visit.goodput(self.work())?;
        let points = self.points();
        let nearest = points
            .iter()
            .min_by_key(|point| point.cap.abs_diff(visit.cap))
            .filter(|point| point.cap != visit.cap)?;
        let inside = points.first()?.cap <= visit.cap && visit.cap <= points.last()?.cap;
        if let Some(curve) = self.curve().filter(|curve| inside && curve.is_smooth()) {
            let off = (goodput.value / curve.at(visit.cap)).ln().abs();
            return (off > OFF && off > EVIDENT * goodput.relative()).then_some(nearest.cap);
        }
        points.iter().map(|point| (point, (visit.cap as f64 / point.cap as f64).ln())).find_map(
            |(point, more)| {
                let rise = (goodput.value / point.goodput.value).ln() * more.signum();
                let beyond = (rise - more.abs()).max(-more.abs() - rise);
                let error = goodput.relative().hypot(point.goodput.relative());
                (more != 0.0 && more.abs() < NEIGHBOUR && beyond > CHANGE / 2.0 && beyond > EVIDENT * error)
                    .then_some(point.cap)
            },
        )
    }
}
