//! Confidence interval of the knee.
//!
//! Uses a parametric bootstrap (B. Efron): the measured goodputs are redrawn with their errors, and
//! the knee of each draw is computed. The random generator is seeded with the measurements, so
//! equal measurements have equal intervals.

use fastrand::Rng;

use super::curve::{Curve, Point};
use super::service_time::MeanEstimate;
use crate::normal_distribution;

const BOOTSTRAP_DRAWS: usize = 300;
/// Standard error, relative to the goodput, that is added to the error of each point, because the
/// curve is only a model of the server.
const MODEL_ERROR: f64 = 0.015;

/// Returns the confidence interval of the knee at the level `confidence` (clamped to 0.5 to 0.999),
/// both ends inclusive. This share of the bootstrapped knees lies in the interval. Returns `None`
/// without points.
pub(super) fn knee_interval(points: &[Point], tolerance: f64, confidence: f64) -> Option<(usize, usize)> {
    let seed = points.iter().fold(points.len() as u64, |seed, point| {
        seed.rotate_left(7) ^ point.goodput.value.to_bits() ^ point.cap as u64
    });
    let mut rng = Rng::with_seed(seed);
    let mut knees: Vec<usize> = (0..BOOTSTRAP_DRAWS)
        .filter_map(|_| {
            let draw = |point: &Point| {
                let MeanEstimate { value, error } = point.goodput;
                let error_now = error.hypot(MODEL_ERROR * value);
                let drawn = (value + error_now * normal_distribution::draw(&mut rng)).max(0.05 * value);
                Point { goodput: MeanEstimate { value: drawn, error }, ..*point }
            };
            let points: Vec<Point> = points.iter().map(draw).collect();
            Some(Curve::new(points)?.knee(tolerance)?.cap)
        })
        .collect();
    knees.sort_unstable();
    let tail = (1.0 - confidence.clamp(0.5, 0.999)) / 2.0;
    let at = |share: f64| knees.get(((knees.len() as f64 - 1.0) * share).round() as usize).copied();
    at(tail).zip(at(1.0 - tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_deterministic_and_contains_the_knee() {
        let point = |cap: usize| {
            let n = cap as f64;
            let value = n / (1.0 + 0.02 * (n - 1.0) + 0.0008 * n * (n - 1.0));
            Point { cap, goodput: MeanEstimate { value, error: 0.008 * value } }
        };
        let points: Vec<Point> = [4, 8, 16, 27, 32, 64].map(point).to_vec();
        let interval = knee_interval(&points, 0.02, 0.95).expect("one");
        assert_eq!(knee_interval(&points, 0.02, 0.95), Some(interval));
        assert!(interval.0 <= 28 && interval.1 >= 28 && interval.1 <= 40, "{interval:?}");
    }
}
