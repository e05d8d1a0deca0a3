//! How long the answers to one call will be.

use super::lengths::{Lengths, NOTHING};

/// What is expected of a call's output, in tokens of all its answers together. Never above what the call allows.
///
/// A snapshot: what is learned later does not change it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Output {
    lengths: Lengths,
    /// The longest one answer can be.
    most: f64,
    answers: f64,
}

impl Output {
    pub(super) fn new(lengths: Lengths, most: Option<u64>, answers: u64) -> Self {
        Self { lengths, most: most.map_or(f64::INFINITY, |most| most as f64), answers: answers.max(1) as f64 }
    }

    /// Of a call that has none.
    pub(super) fn none() -> Self {
        Self::new(Lengths::all(0), Some(0), 1)
    }

    /// The mean: what the output of many such calls adds up to.
    pub fn mean(&self) -> u64 {
        whole(self.lengths.mean.min(self.most) * self.answers)
    }

    /// So long or shorter is it with this probability (clamped to 0..=1). Of several answers each is taken to be so long.
    pub fn quantile(&self, probability: f64) -> u64 {
        self.remaining_quantile(0, probability)
    }

    /// How many tokens are still to come, in the mean, once so many have: of several answers, of all of them so far.
    ///
    /// Beyond everything that was ever seen, half as many again.
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

    /// The same with this probability, in place of the mean.
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

    /// The most that the call allows, where it says.
    pub fn most(&self) -> Option<u64> {
        self.most.is_finite().then(|| whole(self.most * self.answers))
    }

    /// The part of the distribution above a length.
    fn longer_than(&self, length: f64) -> impl Iterator<Item = (f64, f64, f64)> {
        self.lengths.spans().filter_map(move |(share, from, to)| {
            if from >= length {
                return Some((share, from, to));
            }
            (to > length).then(|| (share * (to - length) / (to - from), length, to))
        })
    }

    /// Of all answers, and not beyond what is allowed of them.
    fn within(&self, left: f64, produced: u64) -> u64 {
        let most = self.most().map_or(u64::MAX, |most| most.saturating_sub(produced));
        whole(left.max(0.0) * self.answers).min(most)
    }
}

/// The cast saturates.
fn whole(tokens: f64) -> u64 {
    tokens.round() as u64
}
