//! Fits a curve of the goodput as a function of the cap.
//!
//! A cap divided by its goodput is the mean time of a call. If calls share the server at a fixed
//! cost each, this time is linear in the cap; with coherence cost it is a parabola (N. J. Gunther's
//! universal scalability law). If the server runs a fixed number of calls and queues the rest,
//! goodput reaches a plateau (an elbow). The better of the two shapes is fitted by weighted least
//! squares. If neither fits, as at a cliff, neighbouring caps are connected by straight lines in
//! log-log scale.
//!
//! The curve is not extrapolated beyond the measured caps, because measurements below the peak do
//! not show where it is.

use super::service_time::MeanEstimate;
use super::share_in_time::ShareInTime;

/// A measured cap with its throughput and goodput in calls per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) cap: usize,
    pub(super) throughput: MeanEstimate,
    pub(super) goodput: MeanEstimate,
    /// Number of answered calls that met the latency objectives.
    pub(super) met: usize,
    pub(super) answered: usize,
}

#[cfg(test)]
impl Point {
    /// Returns a point whose calls all met the objectives.
    pub(super) fn in_time(cap: usize, throughput: MeanEstimate) -> Self {
        Self { cap, throughput, goodput: throughput, met: 100, answered: 100 }
    }
}

/// Share of the highest measured goodput that defines the best cap: the lowest cap that reaches it.
const NEAR_BEST: f64 = 0.97;
/// Caps below the best cap divided by this factor are ignored in the fit.
const SHAPE_RANGE_BELOW: f64 = 6.0;
/// Caps above the best cap times this factor are ignored in the fit.
const SHAPE_RANGE_ABOVE: f64 = 2.6;
/// A shape fits the points only if each residual is at most this number of standard errors, or at
/// most `MAX_RESIDUAL_SHARE` of the measured goodput.
const MAX_RESIDUAL_ERRORS: f64 = 3.0;
/// A residual of at most this share of the measured goodput is accepted, whatever its standard
/// error.
const MAX_RESIDUAL_SHARE: f64 = 0.02;

#[derive(Clone, Debug)]
pub(super) struct Curve {
    points: Vec<Point>,
    shape: Option<Shape>,
    /// Share of the calls that meet the latency objectives. If it is known, `shape` is that of the
    /// throughput, otherwise that of the goodput.
    share: Option<ShareInTime>,
}

/// Knee of a curve: `cap` is the smallest cap whose goodput is within the tolerance of `best`.
/// `best` is the highest goodput of the curve in calls per second, and `best_cap` the lowest cap
/// that has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Knee {
    pub(super) cap: usize,
    pub(super) best_cap: usize,
    pub(super) best: f64,
}

impl Curve {
    /// Fits a curve to points in any order, at most one per cap. Ignores points whose cap, goodput
    /// or standard error is not positive. Returns `None` if no point is left.
    pub(super) fn new(mut points: Vec<Point>) -> Option<Self> {
        let share = ShareInTime::fit(&points);
        let is_positive = |mean: MeanEstimate| mean.value > 0.0 && mean.error > 0.0;
        points.retain(|point| point.cap > 0 && is_positive(fitted(point, share).goodput));
        points.sort_by_key(|point| point.cap);
        let max_goodput = points.iter().map(|point| point.goodput.value).max_by(f64::total_cmp)?;
        let best = points.iter().find(|point| point.goodput.value >= NEAR_BEST * max_goodput)?.cap as f64;
        let shapes_curve = |point: &&Point| {
            let cap = point.cap as f64;
            cap >= best / SHAPE_RANGE_BELOW && cap <= best * SHAPE_RANGE_ABOVE
        };
        let shaping: Vec<Point> =
            points.iter().filter(shapes_curve).map(|point| fitted(point, share)).collect();
        let shapes = Shape::parabola(&shaping).into_iter().chain(Shape::elbows(&shaping));
        let shape = shapes
            .filter(|shape| shape.fits(&shaping))
            .min_by(|a, b| a.misfit(&shaping).total_cmp(&b.misfit(&shaping)));
        Some(Self { points, shape, share })
    }

    /// Returns the share of the calls that meet the latency objectives, or `None` if all calls do,
    /// or if their shares do not lie on a smooth curve.
    pub(super) fn share_in_time(&self) -> Option<ShareInTime> {
        self.share
    }

    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns `true` if a parabola or an elbow fits all points near the best cap.
    pub(super) fn is_smooth(&self) -> bool {
        self.shape.is_some()
    }

    /// Returns the goodput at a cap, in calls per second. Outside the measured caps, returns the
    /// value at the nearest one.
    pub(super) fn at(&self, cap: usize) -> f64 {
        let share = self.share.map_or(1.0, |share| share.at(cap));
        share * self.shape.as_ref().and_then(|shape| shape.at(cap)).unwrap_or_else(|| self.between(cap))
    }

    /// Returns the value at a cap on the straight line, in log-log scale, between the points next
    /// to it: the throughput if the share of the calls in time is known, otherwise the goodput.
    fn between(&self, cap: usize) -> f64 {
        let value = |point: &Point| fitted(point, self.share).goodput.value;
        let above = self.points.iter().position(|point| point.cap >= cap);
        let (Some(right), Some(above)) = (above.and_then(|at| self.points.get(at)), above) else {
            return self.points.last().map_or(0.0, value);
        };
        let Some(left) = above.checked_sub(1).and_then(|at| self.points.get(at)) else {
            return value(right);
        };
        let (a, b) = ((left.cap as f64).ln(), (right.cap as f64).ln());
        let share = ((cap as f64).ln() - a) / (b - a);
        ((1.0 - share) * value(left).ln() + share * value(right).ln()).exp()
    }

    /// Returns the knee: the smallest cap whose goodput is at least `1 - tolerance` of the highest
    /// goodput of the curve. Returns `None` without points.
    pub(super) fn knee(&self, tolerance: f64) -> Option<Knee> {
        let (low, high) = (self.points.first()?.cap, self.points.last()?.cap);
        let (best_cap, best) = (low..=high)
            .map(|cap| (cap, self.at(cap)))
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        let cap = (low..=best_cap).find(|&cap| self.at(cap) >= (1.0 - tolerance) * best)?;
        Some(Knee { cap, best_cap, best })
    }
}

/// Returns `point` with the value to which the shape is fitted as its goodput: the throughput if
/// the share of the calls in time is known separately, otherwise the goodput.
fn fitted(point: &Point, share: Option<ShareInTime>) -> Point {
    Point { goodput: if share.is_some() { point.throughput } else { point.goodput }, ..*point }
}

/// A shape of the curve between the caps `low` and `high`: the mean time of a call is `a + b cap +
/// c cap^2` seconds, and the goodput is at most `max_goodput` calls per second.
#[derive(Clone, Debug)]
struct Shape {
    coefficients: [f64; 3],
    max_goodput: f64,
    low: usize,
    high: usize,
}

impl Shape {
    fn parabola(points: &[Point]) -> Option<Self> {
        if points.len() < 4 {
            return None;
        }
        let [low, high] = [points.first()?.cap, points.last()?.cap];
        Some(Self { coefficients: least_squares(points, 3)?, max_goodput: f64::INFINITY, low, high })
    }

    /// Returns a candidate shape for each way to divide the points into a rising part and a
    /// plateau, with at least two points each. The mean call time is linear in the rising part.
    fn elbows(points: &[Point]) -> impl Iterator<Item = Self> {
        (2..points.len().saturating_sub(1)).filter_map(|split| {
            let (rising, level) = points.split_at_checked(split)?;
            let weight = |point: &Point| point.goodput.error.powi(-2);
            let sum: f64 = level.iter().map(weight).sum();
            let max_goodput =
                level.iter().map(|point| weight(point) * point.goodput.value).sum::<f64>() / sum;
            let [low, high] = [points.first()?.cap, points.last()?.cap];
            Some(Self { coefficients: least_squares(rising, 2)?, max_goodput, low, high })
        })
    }

    fn at(&self, cap: usize) -> Option<f64> {
        if cap < self.low || cap > self.high {
            return None;
        }
        let [a, b, c] = self.coefficients;
        let n = cap as f64;
        let time = a + b * n + c * n * n;
        (time > 0.0).then(|| (n / time).min(self.max_goodput))
    }

    /// Returns the sum of the squared differences between the shape and the points, each in
    /// standard errors of its point.
    fn misfit(&self, points: &[Point]) -> f64 {
        let residual =
            |point: &Point| (self.at(point.cap).unwrap_or(0.0) - point.goodput.value) / point.goodput.error;
        points.iter().map(|point| residual(point).powi(2)).sum()
    }

    fn fits(&self, points: &[Point]) -> bool {
        points.iter().all(|point| {
            self.at(point.cap).is_some_and(|value| {
                let residual = (value - point.goodput.value).abs();
                residual
                    <= (MAX_RESIDUAL_ERRORS * point.goodput.error)
                        .max(MAX_RESIDUAL_SHARE * point.goodput.value)
            })
        })
    }
}

/// Fits a polynomial of the cap with `terms` terms (1 to 3) to the mean call times. Returns its
/// coefficients in ascending order, with 0 for unused terms, or `None` if the points do not
/// determine them.
fn least_squares(points: &[Point], terms: usize) -> Option<[f64; 3]> {
    // Caps are scaled by the highest one to keep the sums in range.
    let scale = points.last()?.cap as f64;
    let mut sums = [[0.0_f64; 4]; 3];
    for point in points {
        let time = point.cap as f64 / point.goodput.value;
        let weight = (time * point.goodput.relative().max(0.004)).powi(-2);
        let cap = point.cap as f64 / scale;
        let powers = [1.0, cap, cap * cap];
        for (row, power) in sums.iter_mut().zip(powers).take(terms) {
            for (cell, other) in row.iter_mut().zip(powers).take(terms) {
                *cell += weight * power * other;
            }
            row[3] += weight * power * time;
        }
    }
    // An unused term is zero.
    for (at, row) in sums.iter_mut().enumerate().skip(terms) {
        row[at] = 1.0;
    }
    let [a, b, c] = solve(sums)?;
    Some([a, b / scale, c / (scale * scale)])
}

/// Returns the solution of a linear system of three equations, by Gaussian elimination with
/// pivoting. The last number of each row is the right side. Returns `None` if the system is
/// singular.
fn solve(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        let head = rows[column];
        if head[column].abs() < 1e-12 * head[3].abs().max(1e-12) {
            return None;
        }
        for (at, row) in rows.iter_mut().enumerate() {
            if at != column {
                let factor = row[column] / head[column];
                for (cell, above) in row.iter_mut().zip(head) {
                    *cell -= factor * above;
                }
            }
        }
    }
    let mut found = [0.0; 3];
    for (at, value) in found.iter_mut().enumerate() {
        *value = rows[at][3] / rows[at][at];
    }
    found.iter().all(|value| value.is_finite()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usl(cap: usize) -> f64 {
        let n = cap as f64;
        n / (1.0 + 0.02 * (n - 1.0) + 0.0008 * n * (n - 1.0))
    }

    fn curve(caps: &[usize], throughput: impl Fn(usize) -> f64) -> Curve {
        let point = |&cap: &usize| {
            let value = throughput(cap);
            Point::in_time(cap, MeanEstimate { value, error: 0.005 * value })
        };
        Curve::new(caps.iter().map(point).collect()).expect("points")
    }

    #[test]
    fn finds_a_peak_between_two_points() {
        let curve = curve(&[4, 8, 16, 32, 64], usl);
        let truth = (1..=64).find(|&cap| usl(cap) >= 0.98 * usl(35)).expect("one");
        let knee = curve.knee(0.02).expect("a knee");
        assert!(curve.is_smooth());
        assert!(knee.cap.abs_diff(truth) <= 1 && knee.best_cap.abs_diff(35) <= 2, "{knee:?}, {truth}");
    }

    #[test]
    fn server_queue_gives_an_elbow() {
        let curve = curve(&[4, 8, 16, 32, 64, 128], |cap| cap.min(40) as f64);
        assert!((curve.at(32) - 32.0).abs() < 0.1);
        assert_eq!(curve.knee(0.02).map(|knee| knee.cap), Some(40));
        assert!(curve.at(200) <= 40.0 && curve.at(1) >= 4.0, "no extrapolation");
    }

    #[test]
    fn knee_is_the_highest_point_of_a_rising_curve() {
        let knee = curve(&[4, 8, 16, 24], |cap| cap as f64).knee(0.02).expect("a knee");
        assert_eq!((knee.cap, knee.best_cap), (24, 24));
    }
}
