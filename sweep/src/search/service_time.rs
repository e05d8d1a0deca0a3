//! How long a call of the mix holds its slot at a cap, and by Little's law how many complete a second.
//!
//! `throughput = calls in flight / time that a call holds a slot` (J. D. C. Little, *A Proof for the Queuing Formula L = λW*, 1961), and not completions over time:
//! calls that were begun together end together, and a window that cuts such a wave is off by a part of it.
//!
//! Most of the spread between calls is how much they generate. That is known of each, and its mean over the mix is the same at each cap, so that the mean is taken at the mix's
//! own amount of work by a line through the sample (the regression estimator of survey sampling; a control variate). A short window sees more short calls than the mix has; the line
//! takes that out too.
//!
//! What has ended by the end of a window is short, whatever the reason: a call that takes `t` is seen if it was begun at least `t` before the end. So each counts for as many as
//! were begun and not seen (Horvitz and Thompson's estimator), or, where nothing tells how long a call takes, slots' time is put over completions.

/// The least share of the spread that the line must explain before it is believed.
const EXPLAINS: f64 = 0.25;
/// Fewer samples make no line.
const LINE: f64 = 12.0;
/// No mean of a live server is known better than this, however many samples: drifts and waves are in none of them.
const FLOOR: f64 = 0.004;

/// Where calls of the same work differ by less than this share of the mean, the line tells how long each takes.
const REGULAR: f64 = 0.2;
/// No call counts for more than so many.
const MOST_WEIGHT: f64 = 8.0;

/// By this share of what is unexplained a window as long as a call is off; by the square less, the longer it is.
const SHORT: f64 = 0.35;

/// By this share a count of completions is off over a window as long as a call; by its inverse less, the longer it is.
const WAVE: f64 = 0.06;

/// One call that was seen whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) work: f64,
    /// How long it held slots.
    pub(super) seconds: f64,
    /// From its beginning to its end.
    pub(super) took: f64,
}

/// StepSums over calls of one step; two steps' can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ServiceTime {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
    /// Squares of the relative error that a short window adds, as often as there are samples.
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
    /// A call of so much work held its slots for so many seconds.
    pub(super) fn add(&mut self, work: f64, seconds: f64) {
        self.weigh(1.0, work, seconds);
    }

    /// As many as `weight` such calls.
    fn weigh(&mut self, weight: f64, work: f64, seconds: f64) {
        self.n += weight;
        self.x += weight * work;
        self.y += weight * seconds;
        self.xx += weight * work * work;
        self.xy += weight * work * seconds;
        self.yy += weight * seconds * seconds;
    }

    /// Of what ended in a window of so many seconds in which slots were held for `occupied` seconds. `begun`: calls that were begun in it as well. `all`: those that were begun before
    /// as well.
    pub(super) fn from_window(window: f64, occupied: f64, begun: &[Sample], all: &Self) -> Self {
        let weight = |sample: &Sample| (window / (window - sample.took).max(window / MOST_WEIGHT)).max(1.0);
        let (sum, squares) = begun.iter().map(weight).fold((0.0, 0.0), |sum, w| (sum.0 + w, sum.1 + w * w));
        let mut seen = Self::default();
        if squares > 0.0 {
            // Weights that add up to what so many equal samples would be worth.
            let scale = sum / squares;
            for sample in begun {
                seen.weigh(scale * weight(sample), sample.work, sample.seconds);
            }
        }
        let unexplained = seen.unexplained();
        if unexplained <= REGULAR || all.y <= 0.0 {
            // What ended in less time than a call takes was fast for its work.
            let calls_long = window / (occupied_by_one(&seen, all)).max(1e-9);
            let off = unexplained.min(REGULAR) * (SHORT / calls_long.powi(2)).min(1.0);
            seen.slack = seen.n * off * off;
            return seen;
        }
        let factor = occupied / all.y;
        let mut counted =
            Self { y: all.y * factor, xy: all.xy * factor, yy: all.yy * factor * factor, ..*all };
        // Calls that were begun together end together, more or less.
        let off = WAVE * counted.y / (counted.n.max(1.0) * window);
        counted.slack = counted.n * off * off;
        counted
    }

    /// The spread around the line, relative to the mean.
    pub(super) fn unexplained(&self) -> f64 {
        let (sxx, sxy, syy) = self.spread();
        if self.n < 4.0 || self.y <= 0.0 {
            return f64::INFINITY;
        }
        let left = if self.explained() < EXPLAINS { syy } else { syy - sxy * sxy / sxx };
        (left.max(0.0) / (self.n - 2.0)).sqrt() * self.n / self.y
    }

    /// Whether the work tells how long a call takes.
    pub(super) fn is_regular(&self) -> bool {
        self.unexplained() <= REGULAR
    }

    /// Both together.
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

    /// The mean work, of what was added here.
    pub(super) fn work(&self) -> Option<f64> {
        (self.n > 0.0).then(|| self.x / self.n)
    }

    /// The share of the spread in time that the work explains (r squared); 0 where there is no line.
    pub(super) fn explained(&self) -> f64 {
        let (sxx, sxy, syy) = self.spread();
        if self.n < LINE || sxx <= 1e-9 * self.xx || syy <= 0.0 {
            return 0.0;
        }
        (sxy * sxy / (sxx * syy)).clamp(0.0, 1.0)
    }

    /// The mean seconds of a call of so much work; `None` below two samples.
    pub(super) fn at(&self, work: f64) -> Option<MeanEstimate> {
        if self.n < 2.0 {
            return None;
        }
        let (sxx, sxy, syy) = self.spread();
        let (mean_x, mean_y) = (self.x / self.n, self.y / self.n);
        let mean = |value: f64, variance: f64| MeanEstimate {
            value,
            error: variance.max(0.0).sqrt().hypot(self.slack_share() * value).max(FLOOR * value),
        };
        if self.explained() < EXPLAINS {
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

/// How long a call takes, from what was seen; what was not was longer.
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
        // The mix's mean is 200 tokens; only calls below 160 ended in the window.
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
