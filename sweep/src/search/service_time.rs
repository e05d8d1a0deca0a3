//! Estimates how long a call of the mix holds its slot at a cap, and by Little's law the
//! throughput.
//!
//! `throughput = calls in flight / time that a call holds a slot` (J. D. C. Little, *A Proof for
//! the Queuing Formula L = λW*, 1961). Counting completions over time would be less exact, because
//! calls that begin together end together, and a window cuts such a wave.
//!
//! Most of the variance between calls is due to their output length. The length of each call is
//! known, and its mean over the mix is the same at each cap. The mean time is therefore evaluated
//! at the mix's mean length by a linear regression (the regression estimator of survey sampling; a
//! control variate). This also corrects for short windows, which see more short calls than the mix
//! has.
//!
//! A call that has ended by the end of a window is short: a call of duration `t` is only seen if it
//! began at least `t` before the end. Each call is therefore weighted by the number of calls that
//! began but were not seen (Horvitz and Thompson's estimator), or, if nothing predicts the duration
//! of a call, slot time is divided by completions.

/// Minimum share of the variance that the regression must explain.
const MIN_R_SQUARED: f64 = 0.25;
/// Minimum number of samples for a regression.
const MIN_LINE_SAMPLES: f64 = 12.0;
/// Minimum relative error of any mean, because drifts and waves of a live server are not in the
/// samples.
const MIN_RELATIVE_ERROR: f64 = 0.004;

/// If calls of equal length differ by less than this share of the mean, the regression predicts the
/// duration of a call.
const REGULAR_RESIDUAL: f64 = 0.2;
/// Maximum weight of a call.
const MAX_WEIGHT: f64 = 8.0;

/// Relative bias of a window as long as a call, in units of the unexplained variance. Falls with
/// the square of the window length.
const SHORT_WINDOW_BIAS: f64 = 0.35;

/// Relative error of a count of completions over a window as long as a call. Falls with the inverse
/// of the window length.
const WAVE_ERROR: f64 = 0.06;

/// One call that was observed completely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) work: f64,
    /// Time for which the call held slots, in seconds.
    pub(super) seconds: f64,
    /// Time from its start to its end, in seconds.
    pub(super) took: f64,
}

/// Sums over the calls of one step. The sums of two steps can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ServiceTime {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
    /// Squared relative error from short windows, times the number of samples.
    slack: f64,
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MeanEstimate {
    pub(super) value: f64,
    pub(super) error: f64,
}

impl MeanEstimate {
    pub(super) fn relative(&self) -> f64 {
        if self.value > 0.0 { self.error / self.value } else { f64::INFINITY }
    }
}

impl ServiceTime {
    /// Adds a call of `work` output tokens that held its slots for `seconds`.
    pub(super) fn add(&mut self, work: f64, seconds: f64) {
        self.weigh(1.0, work, seconds);
    }

    /// Adds a call with a weight.
    fn weigh(&mut self, weight: f64, work: f64, seconds: f64) {
        self.n += weight;
        self.x += weight * work;
        self.y += weight * seconds;
        self.xx += weight * work * work;
        self.xy += weight * work * seconds;
        self.yy += weight * seconds * seconds;
    }

    /// Estimates from the calls that ended in a window of `window` seconds in which slots were held
    /// for `occupied` slot-seconds. `begun` are the calls that also began in the window, `all` are
    /// all of them.
    pub(super) fn from_window(window: f64, occupied: f64, begun: &[Sample], all: &Self) -> Self {
        let weight = |sample: &Sample| (window / (window - sample.took).max(window / MAX_WEIGHT)).max(1.0);
        let (sum, squares) = begun.iter().map(weight).fold((0.0, 0.0), |sum, w| (sum.0 + w, sum.1 + w * w));
        let mut seen = Self::default();
        if squares > 0.0 {
            // Scales the weights to the effective number of equal samples.
            let scale = sum / squares;
            for sample in begun {
                seen.weigh(scale * weight(sample), sample.work, sample.seconds);
            }
        }
        let unexplained = seen.unexplained();
        if unexplained <= REGULAR_RESIDUAL || all.y <= 0.0 {
            // A call that ended in less than a call time was fast for its length.
            let calls_long = window / (occupied_by_one(&seen, all)).max(1e-9);
            let off = unexplained.min(REGULAR_RESIDUAL) * (SHORT_WINDOW_BIAS / calls_long.powi(2)).min(1.0);
            seen.slack = seen.n * off * off;
            return seen;
        }
        let factor = occupied / all.y;
        let mut counted =
            Self { y: all.y * factor, xy: all.xy * factor, yy: all.yy * factor * factor, ..*all };
        // Calls that began together end together, more or less.
        let off = WAVE_ERROR * counted.y / (counted.n.max(1.0) * window);
        counted.slack = counted.n * off * off;
        counted
    }

    /// Returns the residual standard deviation, relative to the mean.
    pub(super) fn unexplained(&self) -> f64 {
        let (sxx, sxy, syy) = self.spread();
        if self.n < 4.0 || self.y <= 0.0 {
            return f64::INFINITY;
        }
        let left = if self.explained() < MIN_R_SQUARED { syy } else { syy - sxy * sxy / sxx };
        (left.max(0.0) / (self.n - 2.0)).sqrt() * self.n / self.y
    }

    /// Returns `true` if the output length predicts the duration of a call.
    pub(super) fn is_regular(&self) -> bool {
        self.unexplained() <= REGULAR_RESIDUAL
    }

    /// Returns the sums of both.
    pub(super) fn and(mut self, other: &Self) -> Self {
        self.n += other.n;
        self.x += other.x;
        self.y += other.y;
        self.xx += other.xx;
        self.xy += other.xy;
        self.yy += other.yy;
        self.slack += other.slack;
        self
    }

    pub(super) fn count(&self) -> usize {
        self.n as usize
    }

    /// Returns the mean work of the added calls.
    pub(super) fn work(&self) -> Option<f64> {
        (self.n > 0.0).then(|| self.x / self.n)
    }

    /// Returns the share of the variance in time that the work explains (r squared), or 0 without a
    /// regression.
    pub(super) fn explained(&self) -> f64 {
        let (sxx, sxy, syy) = self.spread();
        if self.n < MIN_LINE_SAMPLES || sxx <= 1e-9 * self.xx || syy <= 0.0 {
            return 0.0;
        }
        (sxy * sxy / (sxx * syy)).clamp(0.0, 1.0)
    }

    /// Returns the mean time of a call of `work` output tokens, in seconds, or `None` below two
    /// samples.
    pub(super) fn at(&self, work: f64) -> Option<MeanEstimate> {
        if self.n < 2.0 {
            return None;
        }
        let (sxx, sxy, syy) = self.spread();
        let (mean_x, mean_y) = (self.x / self.n, self.y / self.n);
        let mean = |value: f64, variance: f64| MeanEstimate {
            value,
            error: variance.max(0.0).sqrt().hypot(self.slack_share() * value).max(MIN_RELATIVE_ERROR * value),
        };
        if self.explained() < MIN_R_SQUARED {
            return Some(mean(mean_y, syy / (self.n - 1.0) / self.n));
        }
        let slope = sxy / sxx;
        let residual = (syy - slope * sxy).max(0.0) / (self.n - 2.0);
        let off = work - mean_x;
        let value = mean_y + slope * off;
        if value <= 0.0 {
            return Some(mean(mean_y, syy / (self.n - 1.0) / self.n));
        }
        Some(mean(value, residual * (1.0 / self.n + off * off / sxx)))
    }

    fn slack_share(&self) -> f64 {
        (self.slack / self.n.max(1.0)).sqrt()
    }

    fn spread(&self) -> (f64, f64, f64) {
        let n = self.n.max(1.0);
        (
            (self.xx - self.x * self.x / n).max(0.0),
            self.xy - self.x * self.y / n,
            (self.yy - self.y * self.y / n).max(0.0),
        )
    }
}

/// Returns the mean call time, as the larger of both estimates, because unseen calls are longer.
fn occupied_by_one(seen: &ServiceTime, all: &ServiceTime) -> f64 {
    let mean = |service: &ServiceTime| if service.n > 0.0 { service.y / service.n } else { 0.0 };
    mean(seen).max(mean(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_corrects_a_window_of_short_calls() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut seen = ServiceTime::default();
        // The mean of the mix is 200 tokens; only calls below 160 ended in the window.
        for _ in 0..40 {
            let tokens = 40.0 + 120.0 * rng.f64();
            seen.add(tokens, (0.5 + 0.02 * tokens) * (0.98 + 0.04 * rng.f64()));
        }
        let mean = seen.at(200.0).expect("enough samples");
        assert!((mean.value - 4.5).abs() < 0.1, "{mean:?}");
        assert!(mean.relative() < 0.02);
    }

    #[test]
    fn mean_is_plain_without_a_regression() {
        let mut seen = ServiceTime::default();
        for i in 0..20 {
            seen.add(100.0, 1.0 + f64::from(i % 2));
        }
        let mean = seen.at(500.0).expect("enough samples");
        assert!((mean.value - 1.5).abs() < 1e-9);
        assert_eq!(seen.explained(), 0.0);
        assert_eq!(ServiceTime::default().at(1.0), None);
    }
}
