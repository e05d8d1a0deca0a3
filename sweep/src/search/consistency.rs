//! Detects observations that contradict each other: a cliff, a cap that behaves differently than
//! before, and points that cannot belong to one curve.

use super::SearchSettings;
use super::curve::Point;
use super::evidence::Evidence;
use super::step_summary::StepSummary;

/// A goodput below this share of the best may indicate another state of the server.
const DROP_SHARE: f64 = 0.85;
/// A pause longer than this multiple of the usual pause, and than `MIN_PAUSE_S` seconds, indicates
/// a preempted sequence.
const PAUSE_FACTOR: f64 = 5.0;
const MIN_PAUSE_S: f64 = 0.3;
/// Share of calls with such pauses above which a cap counts as preempting.
const PAUSED_SHARE: f64 = 0.03;
/// Change of the logarithm of the service time that counts as a change, and its minimum in standard
/// errors.
const MIN_CHANGE: f64 = 0.08;
const EVIDENT_ERRORS: f64 = 3.5;
/// The same two thresholds if a change is suspected.
const SUSPECT_CHANGE: (f64, f64) = (0.12, 1.5);
/// Maximum distance of the logarithms of two neighbouring caps.
const NEIGHBOUR_DISTANCE: f64 = 0.4;
/// Distance of the logarithms above which a point is off the curve.
const OFF_CURVE: f64 = 0.12;

impl Evidence {
    /// Returns the lowest cap with more preemptions than the caps below and with an evidently lower
    /// goodput.
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

    /// Returns `true` if streams pause or sequences are preempted at a cap, unlike at the caps
    /// below.
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
        let bar = (PAUSE_FACTOR * usual).max(MIN_PAUSE_S);
        let paused = |summary: &StepSummary| {
            let long = summary.pauses.iter().filter(|&&pause| pause > bar).count();
            long as f64 / summary.pauses.len().max(1) as f64
        };
        let thrown_out = |summary: &StepSummary| summary.preemptions as f64 / summary.attempts.max(1) as f64;
        let more = |of: &dyn Fn(&StepSummary) -> f64| {
            let least = below.iter().map(of).fold(f64::INFINITY, f64::min);
            of(&here) > PAUSED_SHARE && of(&here) > 3.0 * least
        };
        more(&paused) || more(&thrown_out)
    }

    /// Returns the lowest cap with preemptions.
    pub(super) fn lowest_preempting_cap(&self) -> Option<usize> {
        self.accepted().map(|summary| summary.cap).filter(|&cap| self.has_preemptions(cap)).min()
    }

    /// Returns the point with the highest goodput.
    pub(super) fn best(&self) -> Option<Point> {
        self.points().into_iter().max_by(|a, b| a.goodput.value.total_cmp(&b.goodput.value))
    }

    /// Returns `true` if a cap has far less goodput than the best.
    pub(super) fn is_goodput_drop(&self, cap: usize) -> bool {
        let here = self.pooled(cap).and_then(|summary| summary.goodput(self.work()));
        here.zip(self.best())
            .is_some_and(|(here, best)| here.value < DROP_SHARE * best.goodput.value && best.cap < cap)
    }

    /// Returns the logarithmic change of the service time since the same cap was measured before,
    /// if the change is evident, or suspicious with `suspected`.
    pub(super) fn service_time_change(&self, summary: &StepSummary, suspected: bool) -> Option<f64> {
        let (now, then) =
            (summary.service.at(self.work())?, self.pooled(summary.cap)?.service.at(self.work())?);
        let change = (now.value / then.value).ln();
        let error = now.relative().hypot(then.relative());
        let (least, bar) = if suspected { SUSPECT_CHANGE } else { (MIN_CHANGE, EVIDENT_ERRORS) };
        (change.abs() > least && change.abs() > bar * error).then_some(change)
    }

    /// Returns an earlier cap that contradicts this step: either the step is off the smooth curve,
    /// or the change between the two caps is larger than any server's.
    pub(super) fn contradicting_cap(&self, summary: &StepSummary) -> Option<usize> {
        let goodput = summary.goodput(self.work())?;
        let points = self.points();
        let nearest = points
            .iter()
            .min_by_key(|point| point.cap.abs_diff(summary.cap))
            .filter(|point| point.cap != summary.cap)?;
        let inside = points.first()?.cap <= summary.cap && summary.cap <= points.last()?.cap;
        if let Some(curve) = self.curve().filter(|curve| inside && curve.is_smooth()) {
            let off = (goodput.value / curve.at(summary.cap)).ln().abs();
            return (off > OFF_CURVE && off > EVIDENT_ERRORS * goodput.relative()).then_some(nearest.cap);
        }
        points.iter().map(|point| (point, (summary.cap as f64 / point.cap as f64).ln())).find_map(
            |(point, more)| {
                let rise = (goodput.value / point.goodput.value).ln() * more.signum();
                let beyond = (rise - more.abs()).max(-more.abs() - rise);
                let error = goodput.relative().hypot(point.goodput.relative());
                (more != 0.0
                    && more.abs() < NEIGHBOUR_DISTANCE
                    && beyond > MIN_CHANGE / 2.0
                    && beyond > EVIDENT_ERRORS * error)
                    .then_some(point.cap)
            },
        )
    }
}
