//! How sure the answer is.
//!
//! A parametric bootstrap (B. Efron): the measured goodputs are drawn again, each by its own error, and the knee is found again on each draw. The generator is seeded with what was measured, so
//! that the same sweep has the same interval.

use fastrand::Rng;

use super::curve::{Curve, Point};
use super::service::Mean;

const DRAWS: usize = 300;
/// A curve through the points is a model of the server: so much relative error on top of each.
const MODEL: f64 = 0.01;

/// Knees of the draws that the middle `confidence` of them lie between; `None` of no points.
pub(super) fn of_knee(points: &[Point], tolerance: f64, confidence: f64) -> Option<(usize, usize)> {
    let seed = points.iter().fold(points.len() as u64, |seed, point| {
        seed.rotate_left(7) ^ point.goodput.value.to_bits() ^ point.cap as u64
    });
    let mut rng = Rng::with_seed(seed);
    let mut knees: Vec<usize> = (0..DRAWS)
        .filter_map(|_| {
            let draw = |point: &Point| {
                let Mean { value, error } = point.goodput;
                let error_now = error.hypot(MODEL * value);
                let drawn = (value + error_now * normal(&mut rng)).max(0.05 * value);
                Point { goodput: Mean { value: drawn, error }, ..*point }
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

/// Standard normal, by Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// The quantile of the standard normal (P. J. Acklam's rational approximation; off by at most 1.2e-9 relatively).
pub(super) fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.383_577_518_672_69e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 5] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 4] = [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416];
    let horner = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let p = p.clamp(1e-12, 1.0 - 1e-12);
    let tail = |q: f64| horner(&C, q) / (horner(&D, q) * q + 1.0);
    if p < 0.02425 {
        tail((-2.0 * p.ln()).sqrt())
    } else if p > 1.0 - 0.02425 {
        -tail((-2.0 * (1.0 - p).ln()).sqrt())
    } else {
        let q = p - 0.5;
        let r = q * q;
        horner(&A, r) * q / (horner(&B, r) * r + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_the_normal() {
        for (p, z) in [(0.5, 0.0), (0.975, 1.959964), (0.995, 2.575829), (0.01, -2.326348)] {
            assert!((normal_quantile(p) - z).abs() < 1e-5, "{p}");
        }
    }

    #[test]
    fn the_same_points_have_the_same_interval_and_it_holds_the_knee() {
        let point = |cap: usize| {
            let n = cap as f64;
            let value = n / (1.0 + 0.02 * (n - 1.0) + 0.0008 * n * (n - 1.0));
            Point { cap, goodput: Mean { value, error: 0.008 * value } }
        };
        let points: Vec<Point> = [4, 8, 16, 27, 32, 64].map(point).to_vec();
        let interval = of_knee(&points, 0.02, 0.95).expect("one");
        assert_eq!(of_knee(&points, 0.02, 0.95), Some(interval));
        assert!(interval.0 <= 28 && interval.1 >= 28 && interval.1 <= 40, "{interval:?}");
    }
}
