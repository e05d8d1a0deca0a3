//! The distribution of a call's output.

use super::lengths::{Lengths, NOTHING};

/// The expected output of a call in tokens, over all its answers and never above what the call
/// allows.
///
/// A snapshot: later learning does not change it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Output {
    lengths: Lengths,
    /// Maximum length of one answer.
    most: f64,
    answers: f64,
}

impl Output {
    pub(super) fn new(lengths: Lengths, most: Option<u64>, answers: u64) -> Self {
        Self { lengths, most: most.map_or(f64::INFINITY, |most| most as f64), answers: answers.max(1) as f64 }
    }

    /// Returns the mean output in tokens.
    pub fn mean(&self) -> u64 {
        whole(self.lengths.mean.min(self.most) * self.answers)
    }

    /// Returns the output at the given quantile, in tokens. `probability` is clamped to 0..=1.
    /// Several answers all have that length.
    pub fn quantile(&self, probability: f64) -> u64 {
        self.remaining_quantile(0, probability)
    }

    /// Returns the mean number of tokens still to come after `produced` tokens, over all answers.
    ///
    /// Beyond the longest length observed, half as many again.
    pub fn remaining(&self, produced: u64) -> u64 {
        let so_far = produced as f64 / self.answers;
        let (mut mass, mut sum) = (0.0, 0.0);
        for (share, from, to) in self.longer_than(so_far) {
            mass += share;
            sum += share * ((from + to) / 2.0).min(self.most);
        }
        let left = if mass > NOTHING { sum / mass - so_far } else { so_far / 2.0 };
        self.within(left, produced)
    }

    /// Returns the number of tokens still to come at the given quantile.
    pub fn remaining_quantile(&self, produced: u64, probability: f64) -> u64 {
        let so_far = produced as f64 / self.answers;
        let probability = if probability.is_nan() { 1.0 } else { probability.clamp(0.0, 1.0) };
        let mass: f64 = self.longer_than(so_far).map(|(share, ..)| share).sum();
        if mass <= NOTHING {
            return self.within(so_far / 2.0, produced);
        }
        let mut wanted = mass * probability;
        let mut reached = so_far;
        for (share, from, to) in self.longer_than(so_far) {
            if share <= 0.0 {
                continue;
            }
            reached = from + (to - from) * (wanted / share).min(1.0);
            wanted -= share;
            if wanted <= 0.0 {
                break;
            }
        }
        self.within(reached - so_far, produced)
    }

    /// Returns the maximum output that the call allows, if it limits it.
    pub fn most(&self) -> Option<u64> {
        self.most.is_finite().then(|| whole(self.most * self.answers))
    }

    /// Returns the part of the distribution above a length.
    fn longer_than(&self, length: f64) -> impl Iterator<Item = (f64, f64, f64)> {
        self.lengths.spans().filter_map(move |(share, from, to)| {
            if from >= length {
                return Some((share, from, to));
            }
            (to > length).then(|| (share * (to - length) / (to - from), length, to))
        })
    }

    /// Returns the tokens of all answers, limited to what is allowed.
    fn within(&self, left: f64, produced: u64) -> u64 {
        let most = self.most().map_or(u64::MAX, |most| most.saturating_sub(produced));
        whole(left.max(0.0) * self.answers).min(most)
    }
}

/// Rounds to whole tokens. The cast saturates.
fn whole(tokens: f64) -> u64 {
    tokens.round() as u64
}
