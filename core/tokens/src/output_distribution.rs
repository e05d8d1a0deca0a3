//! The distribution of the output tokens of a call.

use super::learned_lengths::{LengthDistribution, MIN_MASS};

/// The distribution of the output tokens of a call, summed over its answers.
///
/// All results are at most the maximum output of the call. The value is a snapshot: responses that
/// the [`Estimator`](crate::Estimator) learns later do not change it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Output {
    lengths: LengthDistribution,
    /// The maximum tokens of one answer. Infinite: the call does not limit them.
    max: f64,
    /// The number of answers, at least 1.
    answers: f64,
}

impl Output {
    pub(super) fn new(lengths: LengthDistribution, max: Option<u64>, answers: u64) -> Self {
        Self { lengths, max: max.map_or(f64::INFINITY, |max| max as f64), answers: answers.max(1) as f64 }
    }

    /// Returns the mean output in tokens.
    pub fn mean(&self) -> u64 {
        round(self.lengths.mean.min(self.max) * self.answers)
    }

    /// Returns the output tokens at the given quantile. `probability` is clamped to 0..=1, and NaN
    /// counts as 1. If the call has several answers, the result is the quantile of one answer times
    /// their number.
    pub fn quantile(&self, probability: f64) -> u64 {
        self.remaining_quantile(0, probability)
    }

    /// Returns the mean number of output tokens that remain after `produced` tokens, over all
    /// answers.
    ///
    /// If `produced` exceeds every observed length, half of `produced` remains.
    pub fn remaining(&self, produced: u64) -> u64 {
        let so_far = produced as f64 / self.answers;
        let (mut mass, mut sum) = (0.0, 0.0);
        for (share, from, to) in self.spans_above(so_far) {
            mass += share;
            sum += share * ((from + to) / 2.0).min(self.max);
        }
        let left = if mass > MIN_MASS { sum / mass - so_far } else { so_far / 2.0 };
        self.clamp_remaining(left, produced)
    }

    /// Returns the output tokens, over all answers, that remain after `produced` tokens, at the
    /// given quantile. `probability` is clamped to 0..=1, and NaN counts as 1.
    pub(crate) fn remaining_quantile(&self, produced: u64, probability: f64) -> u64 {
        let so_far = produced as f64 / self.answers;
        let probability = if probability.is_nan() { 1.0 } else { probability.clamp(0.0, 1.0) };
        let mass: f64 = self.spans_above(so_far).map(|(share, ..)| share).sum();
        if mass <= MIN_MASS {
            return self.clamp_remaining(so_far / 2.0, produced);
        }
        let mut wanted = mass * probability;
        let mut reached = so_far;
        for (share, from, to) in self.spans_above(so_far).filter(|(share, ..)| *share > 0.0) {
            reached = from + (to - from) * (wanted / share).min(1.0);
            wanted -= share;
            if wanted <= 0.0 {
                break;
            }
        }
        self.clamp_remaining(reached - so_far, produced)
    }

    /// Returns the maximum output tokens of the call, over all answers. `None`: the call does not
    /// limit them.
    pub fn max(&self) -> Option<u64> {
        self.max.is_finite().then(|| round(self.max * self.answers))
    }

    /// Returns the part of the distribution above a length in tokens, as (probability, start, end)
    /// of each bucket.
    fn spans_above(&self, length: f64) -> impl Iterator<Item = (f64, f64, f64)> {
        self.lengths.spans().filter_map(move |(share, from, to)| {
            if from >= length {
                return Some((share, from, to));
            }
            (to > length).then(|| (share * (to - length) / (to - from), length, to))
        })
    }

    /// Returns `left`, the tokens that remain for one answer, times the number of answers. The
    /// result is at most what the maximum output of the call leaves after `produced` tokens.
    fn clamp_remaining(&self, left: f64, produced: u64) -> u64 {
        let max = self.max().map_or(u64::MAX, |max| max.saturating_sub(produced));
        round(left.max(0.0) * self.answers).min(max)
    }
}

/// Rounds to whole tokens. The cast saturates.
fn round(tokens: f64) -> u64 {
    tokens.round() as u64
}
