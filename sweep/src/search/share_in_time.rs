//! Fits the share of the calls that meet the latency objectives as a function of the cap.
//!
//! The share of a single step is known poorly: with 60 calls, its standard error is about 0.05,
//! while the goodput changes by as much between half of the knee and twice the knee. Therefore, one
//! curve is fitted to the shares of all caps: the odds that a call is in time are a power of the
//! cap (logistic regression on the logarithm of the cap). In simulations of vLLM, the exponent is
//! nearly the same at all caps below the engine's queue, whether prompts or outputs take most of
//! the time.

use fastrand::Rng;

use super::curve::Point;
use crate::normal_distribution;

/// Variance of the number of calls in time, divided by that of independent calls. Calls are late
/// together if an engine computes their prompts in the same steps: 1.5 to 1.9 in simulations of
/// vLLM.
const DISPERSION: f64 = 1.8;
/// Standard deviation of the log odds of a cap around the curve, because the curve is only a model.
const MODEL_ERROR: f64 = 0.1;
/// Prior mean and standard deviation of the exponent. They matter only if hardly any call is late,
/// or if the measured caps do not show how steeply the share falls.
const EXPONENT: (f64, f64) = (3.0, 5.0);
/// Prior standard deviation of the log odds at the centre of the curve.
const LOG_ODDS: f64 = 10.0;
/// Maximum number of iterations of the fit, and the maximum change of a parameter in each.
const ITERATIONS: usize = 40;
const MAX_CHANGE: f64 = 2.0;
/// The curve fits the measurements only if each number of calls in time differs from the expected
/// one by at most this number of standard errors and one call.
const MAX_RESIDUAL_ERRORS: f64 = 3.0;

/// Share of the calls in time: its log odds at a cap are `log_odds - exponent * ln(cap / centre)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ShareInTime {
    log_odds: f64,
    exponent: f64,
    log_centre: f64,
}

impl ShareInTime {
    /// Fits the curve by maximum likelihood. Returns `None` if no call is late or none is in time,
    /// with fewer than two caps, or if the measurements do not lie on such a curve.
    pub(super) fn fit(points: &[Point]) -> Option<Self> {
        let met: usize = points.iter().map(|point| point.met).sum();
        let answered: usize = points.iter().map(|point| point.answered).sum();
        if met == 0 || met == answered || points.len() < 2 {
            return None;
        }
        let log_centre =
            points.iter().map(|point| (point.cap as f64).ln()).sum::<f64>() / points.len() as f64;
        let mut curve = Self { log_odds: 0.0, exponent: EXPONENT.0, log_centre };
        for _ in 0..ITERATIONS {
            let change = curve.newton_step(points)?;
            curve.log_odds += change[0].clamp(-MAX_CHANGE, MAX_CHANGE);
            curve.exponent = (curve.exponent + change[1].clamp(-MAX_CHANGE, MAX_CHANGE)).max(0.0);
            if change.iter().all(|change| change.abs() < 1e-6) {
                break;
            }
        }
        curve.fits(points).then_some(curve)
    }

    /// Returns the share of the calls that are in time at `cap`, from 0 to 1.
    pub(super) fn at(&self, cap: usize) -> f64 {
        share(self.log_odds - self.exponent * self.distance(cap))
    }

    /// Draws the number of calls in time of another measurement like `point`.
    pub(super) fn draw_met(&self, point: &Point, rng: &mut Rng) -> usize {
        let log_odds = self.log_odds - self.exponent * self.distance(point.cap);
        let share = share(log_odds + MODEL_ERROR * normal_distribution::draw(rng));
        let independent = (point.answered as f64 / DISPERSION).ceil();
        let met = (0..independent as usize).filter(|_| rng.f64() < share).count();
        (met as f64 / independent.max(1.0) * point.answered as f64).round() as usize
    }

    fn distance(&self, cap: usize) -> f64 {
        (cap as f64).ln() - self.log_centre
    }

    /// Returns the changes of the log odds and of the exponent by one step of Newton's method, or
    /// `None` if they are not determined.
    fn newton_step(&self, points: &[Point]) -> Option<[f64; 2]> {
        let prior = [LOG_ODDS.powi(-2), EXPONENT.1.powi(-2)];
        let mut gradient = [-prior[0] * self.log_odds, -prior[1] * (self.exponent - EXPONENT.0)];
        let (mut aa, mut ab, mut bb) = (prior[0], 0.0, prior[1]);
        for point in points {
            let (n, share, x) = (point.answered as f64, self.at(point.cap), -self.distance(point.cap));
            let variance = n * share * (1.0 - share);
            let weight = 1.0 / (DISPERSION + MODEL_ERROR.powi(2) * variance);
            let residual = weight * (point.met as f64 - n * share);
            gradient = [gradient[0] + residual, gradient[1] + residual * x];
            let information = weight * variance;
            (aa, ab, bb) = (aa + information, ab + information * x, bb + information * x * x);
        }
        let determinant = aa * bb - ab * ab;
        let step = [
            (bb * gradient[0] - ab * gradient[1]) / determinant,
            (aa * gradient[1] - ab * gradient[0]) / determinant,
        ];
        step.iter().all(|value| value.is_finite()).then_some(step)
    }

    fn fits(&self, points: &[Point]) -> bool {
        points.iter().all(|point| {
            let (n, share) = (point.answered as f64, self.at(point.cap));
            let variance = n * share * (1.0 - share);
            let error = (variance * (DISPERSION + MODEL_ERROR.powi(2) * variance)).sqrt();
            (point.met as f64 - n * share).abs() <= MAX_RESIDUAL_ERRORS * error + 1.0
        })
    }
}

fn share(log_odds: f64) -> f64 {
    1.0 / (1.0 + (-log_odds).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::service_time::MeanEstimate;

    fn fit(steps: &[(usize, usize, usize)]) -> Option<ShareInTime> {
        let mean = MeanEstimate { value: 1.0, error: 0.01 };
        let point = |&(cap, met, answered): &(usize, usize, usize)| Point {
            met,
            answered,
            ..Point::in_time(cap, mean)
        };
        ShareInTime::fit(&steps.iter().map(point).collect::<Vec<_>>())
    }

    #[test]
    fn all_caps_together_determine_the_share_at_one() {
        let truth = |cap: usize| share(6.6 - 2.2 * (cap as f64).ln());
        let step = |cap: usize| (cap, (200.0 * truth(cap)).round() as usize, 200);
        let curve = fit(&[4, 8, 16, 24].map(step)).expect("a curve");
        for cap in [2, 6, 11, 20, 30] {
            assert!((curve.at(cap) - truth(cap)).abs() < 0.01, "{cap}: {} for {}", curve.at(cap), truth(cap));
        }
    }

    #[test]
    fn sudden_fall_of_the_share_has_a_steep_curve() {
        let curve = fit(&[(4, 60, 60), (8, 60, 60), (12, 60, 60), (16, 1, 60)]).expect("a curve");
        assert!(curve.at(12) > 0.9 && curve.at(16) < 0.1, "{curve:?}");
    }

    #[test]
    fn there_is_no_curve_without_late_calls_or_calls_in_time() {
        assert_eq!(fit(&[(4, 60, 60), (8, 60, 60)]), None);
        assert_eq!(fit(&[(4, 0, 60), (8, 0, 60)]), None);
        assert_eq!(fit(&[(4, 30, 60)]), None);
    }

    #[test]
    fn shares_that_do_not_fall_smoothly_have_no_curve() {
        assert_eq!(fit(&[(4, 60, 100), (8, 100, 100), (16, 50, 100)]), None);
    }
}
