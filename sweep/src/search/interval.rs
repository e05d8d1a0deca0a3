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
    let share = Curve::new(points.to_vec())?.share_in_time();
    let mut knees: Vec<usize> = (0..BOOTSTRAP_DRAWS)
        .filter_map(|_| {
            let draw = |point: &Point| match share {
                Some(share) => {
                    let throughput = redrawn(point.throughput, &mut rng);
                    let met = share.draw_met(point, &mut rng);
                    let value = throughput.value * met as f64 / point.answered.max(1) as f64;
                    let goodput = MeanEstimate { value, ..point.goodput };
                    Point { throughput, goodput, met, ..*point }
                }
                None => Point { goodput: redrawn(point.goodput, &mut rng), ..*point },
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

fn redrawn(MeanEstimate { value, error }: MeanEstimate, rng: &mut Rng) -> MeanEstimate {
    let error_now = error.hypot(MODEL_ERROR * value);
    let drawn = (value + error_now * normal_distribution::draw(rng)).max(0.05 * value);
    MeanEstimate { value: drawn, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_deterministic_and_contains_the_knee() {
        let point = |cap: usize| {
            let n = cap as f64;
            let value = n / (1.0 + 0.02 * (n - 1.0) + 0.0008 * n * (n - 1.0));
            Point::in_time(cap, MeanEstimate { value, error: 0.008 * value })
        };
        let points: Vec<Point> = [4, 8, 16, 27, 32, 64].map(point).to_vec();
        let interval = knee_interval(&points, 0.02, 0.95).expect("one");
        assert_eq!(knee_interval(&points, 0.02, 0.95), Some(interval));
        assert!(interval.0 <= 28 && interval.1 >= 28 && interval.1 <= 40, "{interval:?}");
    }

    /// The steps of a sweep with about a thousand calls, of a server whose calls miss an
    /// objective more often the higher the cap is.
    #[test]
    fn interval_is_narrow_and_contains_the_knee_if_calls_are_late() {
        for (call_time, log_odds, exponent) in
            [([0.5, 0.05, 0.0], 7.8, 2.6), ([0.3, 0.1, 0.0], 12.0, 4.0), ([0.9, 0.03, 0.0004], 9.0, 3.0)]
        {
            let time = |n: f64| call_time[0] + n * (call_time[1] + n * call_time[2]);
            let share = |n: f64| 1.0 / (1.0 + (exponent * n.ln() - log_odds).exp());
            let goodput = |n: usize| n as f64 / time(n as f64) * share(n as f64);
            let best = (1..60).map(goodput).fold(0.0, f64::max);
            let knee = (1..60).find(|&n| goodput(n) >= 0.98 * best).expect("a knee");
            let (mut covered, mut narrow) = (0, 0);
            for seed in 0..100 {
                let mut rng = Rng::with_seed(seed);
                let mut point = |cap: usize, answered: usize| {
                    let n = cap as f64;
                    let value = n / time(n) * (1.0 + 0.01 * normal_distribution::draw(&mut rng));
                    let throughput = MeanEstimate { value, error: 0.01 * value };
                    let met = (0..answered).filter(|_| rng.f64() < share(n)).count();
                    let value = value * met as f64 / answered as f64;
                    let goodput = MeanEstimate { value, error: 0.03 * value };
                    Point { cap, throughput, goodput, met, answered }
                };
                let far = knee * 8 / 5;
                let steps = [(knee / 3, 40), (knee * 2 / 3, 40), (knee, 400), (far, 320), (2 * knee, 40)];
                let points: Vec<Point> = steps.map(|(cap, answered)| point(cap, answered)).to_vec();
                let (low, high) = knee_interval(&points, 0.02, 0.95).expect("points");
                covered += usize::from((low..=high).contains(&knee));
                let width = (knee as f64 / 4.0).max(1.0);
                narrow +=
                    usize::from(knee as f64 - low as f64 <= width && high as f64 - knee as f64 <= width);
            }
            assert!(covered >= 90 && narrow >= 60, "{knee}: {covered} covered, {narrow} narrow");
        }
    }
}
