//! How long answers are: a histogram that forgets.

use super::average::{KEEP, WARM, trust};

/// Zero, and four to each doubling up to [`LONGEST`]: a quantile is off by a tenth at most.
pub(super) const BUCKETS: usize = 74;

/// No answer is believed to be longer, in tokens.
pub(super) const LONGEST: u64 = 1 << 18;

/// An answer longer than so many times the longest but one in a hundred counts as if it were just so long.
const OFF: f64 = 4.0;

/// From one edge to the next.
const STEP: f64 = 1.189_207_115_002_721;

/// Shares of answers by their length, which add up to 1; and their mean, which is kept apart and exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lengths {
    pub(super) shares: [f32; BUCKETS],
    pub(super) mean: f64,
}

impl Lengths {
    /// All of one length.
    pub(super) fn all(length: u64) -> Self {
        let mut shares = [0.0; BUCKETS];
        if let Some(share) = shares.get_mut(bucket(length)) {
            *share = 1.0;
        }
        Self { shares, mean: length as f64 }
    }

    /// Each share with the lengths it stands for, from and to.
    pub(super) fn spans(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let mut edge = 1.0;
        self.shares.iter().enumerate().map(move |(at, share)| {
            if at == 0 {
                return (f64::from(*share), 0.0, 0.0);
            }
            let from = edge;
            edge *= STEP;
            (f64::from(*share), from, edge)
        })
    }
}

fn bucket(length: u64) -> usize {
    if length == 0 {
        return 0;
    }
    (1 + (4.0 * (length as f64).log2()) as usize).min(BUCKETS - 1)
}

/// Lengths as they were observed.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    weights: [f32; BUCKETS],
    /// How many, and their sum.
    sums: [f64; 2],
}

impl Default for Observed {
    fn default() -> Self {
        Self { weights: [0.0; BUCKETS], sums: [0.0; 2] }
    }
}

impl Observed {
    /// An answer was so long, where it could be at most `most`.
    pub(super) fn learn(&mut self, length: u64, most: u64) {
        let [seen, sum] = self.sums;
        let mut length = length.min(most).min(LONGEST);
        if seen >= WARM {
            length = length.min((OFF * self.longest().max(OFF)) as u64);
        }
        for weight in &mut self.weights {
            *weight *= KEEP as f32;
        }
        if let Some(weight) = self.weights.get_mut(bucket(length)) {
            *weight += 1.0;
        }
        self.sums = [seen * KEEP + 1.0, sum * KEEP + length as f64];
    }

    /// What all but one in a hundred are shorter than, to the edge of a bucket.
    fn longest(&self) -> f64 {
        let mut above = self.sums[0] / 100.0;
        for (at, weight) in self.weights.iter().enumerate().rev() {
            above -= f64::from(*weight);
            if above < 0.0 {
                return (at as f64 / 4.0).exp2();
            }
        }
        0.0
    }

    /// The mean, in place of `belief` as far as it is known.
    pub(super) fn mean_instead_of(&self, belief: f64, topmost: bool) -> f64 {
        let [seen, sum] = self.sums;
        if seen <= 0.0 {
            return belief;
        }
        let trust = trust(seen, topmost);
        trust * (sum / seen) + (1.0 - trust) * belief
    }

    /// All of it, in place of `belief` as far as it is known.
    pub(super) fn instead_of(&self, belief: Lengths, topmost: bool) -> Lengths {
        let mean = self.mean_instead_of(belief.mean, topmost);
        let seen = self.sums[0];
        if seen <= 0.0 {
            return belief;
        }
        let trust = trust(seen, topmost);
        let (own, other) = ((trust / seen) as f32, (1.0 - trust) as f32);
        let mut shares = belief.shares;
        for (share, weight) in shares.iter_mut().zip(self.weights) {
            *share = *share * other + weight * own;
        }
        Lengths { shares, mean }
    }
}
