//! Estimates the service time of a call of the mix at a cap (the time for which the call occupies a
//! slot), and by Little's law the throughput.
//!
//! `throughput = calls in flight / service time` (J. D. C. Little, *A Proof for the Queuing Formula
//! L = λW*, 1961). Counting completions over time would be less exact, because calls that start
//! together end together, and the end of a step cuts such a wave.
//!
//! Most of the variance between calls is due to their output length, which is known for each call,
//! and whose mean over the mix is the same at each cap. A linear regression of the service time on
//! the output length is therefore evaluated at the mean length of the mix (the regression estimator
//! of survey sampling, a control variate). This also corrects for short steps, in which more short
//! calls than long calls end.
//!
//! A call of duration `t` is observed only if it started at least `t` before the end of the step.
//! Each call is therefore weighted by the number of calls that started but were not observed
//! (Horvitz and Thompson's estimator). If the output length does not predict the duration, the
//! total slot time is divided by the completions instead.

/// Minimum share of the variance that the regression must explain to be used.
const MIN_R_SQUARED: f64 = 0.25;
/// Minimum number of calls for the regression of the service time on the output length.
const MIN_LINE_SAMPLES: f64 = 12.0;
/// Minimum relative standard error of every mean, because changes of a live server within a step do
/// not show in the samples.
const MIN_RELATIVE_ERROR: f64 = 0.004;

/// The output length counts as predicting the duration of a call if [`ServiceTime::unexplained`] is
/// at most this value.
const REGULAR_RESIDUAL: f64 = 0.2;
/// Maximum weight of an observed call, that is, the number of calls that it represents.
const MAX_WEIGHT: f64 = 8.0;

/// Relative error of the mean service time that a window as long as a mean call causes, divided by
/// [`ServiceTime::unexplained`]. The error falls with the square of the window's length.
const SHORT_WINDOW_BIAS: f64 = 0.35;

/// Relative error of the number of completed calls in a window that is as long as a mean call. The
/// error is inversely proportional to the window's length.
const WAVE_ERROR: f64 = 0.06;

/// A call that started and ended in the evaluated window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) work: f64,
    /// Service time of the call, in seconds.
    pub(super) seconds: f64,
    /// Time from the call's admission to its end, in seconds.
    pub(super) duration: f64,
}

/// Sums over the calls of a step: their number, work (x, in output tokens), service time (y, in
/// seconds), and the products of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ServiceTime {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
    /// Squared relative error that a short window causes, multiplied by the number of calls, so
    /// that the values of several steps can be added.
    slack: f64,
}

/// A mean and its standard error, in the same unit.
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
    /// Adds a call with `work` output tokens and a service time of `seconds`.
    pub(super) fn add(&mut self, work: f64, seconds: f64) {
        self.add_weighted(1.0, work, seconds);
    }

    /// Adds a call that counts `weight` times.
    fn add_weighted(&mut self, weight: f64, work: f64, seconds: f64) {
        self.n += weight;
        self.x += weight * work;
        self.y += weight * seconds;
        self.xx += weight * work * work;
        self.xy += weight * work * seconds;
        self.yy += weight * seconds * seconds;
    }

    /// Returns the sums of a step, from which its service time is estimated. `window` is the length
    /// of the step in seconds, and `occupied` the slot-seconds in use during it.
    ///
    /// If the output length predicts the duration of a call, these are the weighted sums of
    /// `begun`, the calls that started and ended in the window. Otherwise, they are `all`, the sums
    /// of all calls that ended in the window, scaled so that the total service time is `occupied`.
    pub(super) fn from_window(window: f64, occupied: f64, begun: &[Sample], all: &Self) -> Self {
        let weight =
            |sample: &Sample| (window / (window - sample.duration).max(window / MAX_WEIGHT)).max(1.0);
        let (sum, squares) = begun.iter().map(weight).fold((0.0, 0.0), |sum, w| (sum.0 + w, sum.1 + w * w));
        let mut seen = Self::default();
        if squares > 0.0 {
            // Scales the weights to the effective number of equal samples.
            let scale = sum / squares;
            for sample in begun {
                seen.add_weighted(scale * weight(sample), sample.work, sample.seconds);
            }
        }
        let unexplained = seen.unexplained();
        if unexplained <= REGULAR_RESIDUAL || all.y <= 0.0 {
            // A call that ended in less than a call time was fast for its length.
            let calls_long = window / (mean_call_time(&seen, all)).max(1e-9);
            let relative_error =
                unexplained.min(REGULAR_RESIDUAL) * (SHORT_WINDOW_BIAS / calls_long.powi(2)).min(1.0);
            seen.slack = seen.n * relative_error * relative_error;
            return seen;
        }
        let factor = occupied / all.y;
        let mut counted =
            Self { y: all.y * factor, xy: all.xy * factor, yy: all.yy * factor * factor, ..*all };
        // Calls that began together end together, more or less.
        let relative_error = WAVE_ERROR * counted.y / (counted.n.max(1.0) * window);
        counted.slack = counted.n * relative_error * relative_error;
        counted
    }

    /// Returns the standard deviation of the service times that the output length does not explain,
    /// divided by the mean service time. Infinite with fewer than four calls.
    pub(super) fn unexplained(&self) -> f64 {
        let (sxx, sxy, syy) = self.central_sums();
        if self.n < 4.0 || self.y <= 0.0 {
            return f64::INFINITY;
        }
        let left = if self.explained() < MIN_R_SQUARED { syy } else { syy - sxy * sxy / sxx };
        (left.max(0.0) / (self.n - 2.0)).sqrt() * self.n / self.y
    }

    /// Returns `true` if the output length predicts the duration of a call, which means that
    /// [`ServiceTime::unexplained`] is at most [`REGULAR_RESIDUAL`].
    pub(super) fn is_regular(&self) -> bool {
        self.unexplained() <= REGULAR_RESIDUAL
    }

    /// Returns the sums over the calls of both values.
    pub(super) fn merge(mut self, other: &Self) -> Self {
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

    /// Returns the mean work of the calls in output tokens, or `None` without calls.
    pub(super) fn work(&self) -> Option<f64> {
        (self.n > 0.0).then(|| self.x / self.n)
    }

    /// Returns the share of the variance of the service time that the regression on the output
    /// length explains (r squared, 0 to 1). Returns 0 with fewer than [`MIN_LINE_SAMPLES`] calls or
    /// if all lengths are equal.
    pub(super) fn explained(&self) -> f64 {
        let (sxx, sxy, syy) = self.central_sums();
        if self.n < MIN_LINE_SAMPLES || sxx <= 1e-9 * self.xx || syy <= 0.0 {
            return 0.0;
        }
        (sxy * sxy / (sxx * syy)).clamp(0.0, 1.0)
    }

    /// Returns the mean service time in seconds of a call with `work` output tokens, or the mean
    /// over all calls if the output length explains too little. Returns `None` with fewer than two
    /// calls.
    pub(super) fn at(&self, work: f64) -> Option<MeanEstimate> {
        if self.n < 2.0 {
            return None;
        }
        let (sxx, sxy, syy) = self.central_sums();
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
        let work_offset = work - mean_x;
        let value = mean_y + slope * work_offset;
        if value <= 0.0 {
            return Some(mean(mean_y, syy / (self.n - 1.0) / self.n));
        }
        Some(mean(value, residual * (1.0 / self.n + work_offset * work_offset / sxx)))
    }

    fn slack_share(&self) -> f64 {
        (self.slack / self.n.max(1.0)).sqrt()
    }

    fn central_sums(&self) -> (f64, f64, f64) {
        let n = self.n.max(1.0);
        (
            (self.xx - self.x * self.x / n).max(0.0),
            self.xy - self.x * self.y / n,
            (self.yy - self.y * self.y / n).max(0.0),
        )
    }
}

/// Returns the mean service time in seconds: the larger of the means of the weighted calls `seen`
/// and of all ended calls `all`.
fn mean_call_time(seen: &ServiceTime, all: &ServiceTime) -> f64 {
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
