//! Lengths of answers, learned from complete and incomplete answers.
//!
//! An answer in flight, and one that was cancelled or broke off, is a right-censored sample: its
//! length is at least what was seen of it. For each bucket of lengths, [`Observed`] counts the
//! answers that reached it and the answers that ended in it. The quotient is the probability that
//! an answer which reaches the bucket ends there, and the product over the buckets is the
//! product-limit estimator (Kaplan and Meier, 1958). If every answer was complete, its result is
//! the histogram of their lengths. See `docs/design/output-length-estimates.md`.

use super::average::{KEEP, WARM, trust};

/// Number of buckets: zero, and four per doubling up to [`LONGEST`], so that a quantile is off by
/// at most a tenth.
pub(super) const BUCKETS: usize = 74;

/// Buckets per doubling.
const DOUBLING: usize = 4;

/// Maximum length of an answer that is believed, in tokens.
pub(super) const LONGEST: u64 = 1 << 18;

/// Multiple of the 99th percentile beyond which an answer is clamped.
const OFF: f64 = 4.0;

/// Weight below which an observation is dropped, after about 4,000 answers.
const FORGOTTEN: f32 = 1e-9;

/// Ratio of one bucket's edge to the next.
const STEP: f64 = 1.189_207_115_002_721;

/// Share of answers below which it is a rounding error.
pub(super) const NOTHING: f64 = 1e-5;

/// Shares of answers by length, which add up to 1, and their mean, which is more exact than the
/// buckets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lengths {
    pub(super) shares: [f32; BUCKETS],
    pub(super) mean: f64,
}

impl Lengths {
    /// Creates a distribution with a single length.
    pub(super) fn all(length: u64) -> Self {
        let mut shares = [0.0; BUCKETS];
        if let Some(share) = shares.get_mut(bucket(length)) {
            *share = 1.0;
        }
        Self { shares, mean: length as f64 }
    }

    /// Returns each share with the range of lengths it stands for.
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

/// The middle length of each bucket.
const MIDDLES: [f64; BUCKETS] = {
    let (mut middles, mut from, mut at) = ([0.0; BUCKETS], 1.0, 1);
    while at < BUCKETS {
        middles[at] = from * (1.0 + STEP) / 2.0;
        from *= STEP;
        at += 1;
    }
    middles
};

fn bucket(length: u64) -> usize {
    if length == 0 {
        return 0;
    }
    (1 + (4.0 * (length as f64).log2()) as usize).min(BUCKETS - 1)
}

/// Returns the least length that falls into a later bucket than this one.
fn next_edge(length: u64) -> u64 {
    let edge = (bucket(length) as f64 / DOUBLING as f64).exp2();
    (edge.ceil() as u64).max(length.saturating_add(1))
}

/// How far the length of one answer has been counted. Every attempt has its own.
///
/// An answer that is never ended counts as at least as long as it was seen to be. There is nothing
/// to take back, however its attempt ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct LengthSample {
    /// For each level of the estimator, the first bucket in which the answer is not counted yet; 0
    /// before its first token.
    pub(super) next: [u8; 3],
    /// Output tokens from which the answer is in a later bucket.
    due: u64,
}

impl LengthSample {
    /// Returns `true` if an answer of `tokens` tokens has reached buckets in which it is not
    /// counted yet.
    pub fn is_due(&self, tokens: u64) -> bool {
        tokens > 0 && tokens >= self.due
    }

    /// Records that each of `answers` answers was counted up to `length` tokens.
    pub(super) fn counted(&mut self, length: u64, answers: u64) {
        self.due = next_edge(length).saturating_mul(answers);
    }
}

/// Lengths as they were observed. What was observed before is forgotten as answers begin.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    /// Answers that reached the bucket, by its shortest length.
    reached: [f32; BUCKETS],
    /// Answers that ended in the bucket.
    ended: [f32; BUCKETS],
    /// The number of answers that ended, and the sums of their lengths and of the middles of their
    /// buckets.
    sums: [f64; 3],
}

impl Default for Observed {
    fn default() -> Self {
        Self { reached: [0.0; BUCKETS], ended: [0.0; BUCKETS], sums: [0.0; 3] }
    }
}

impl Observed {
    /// Counts an answer that is at least `length` tokens long, or exactly if it is complete, and can
    /// be at most `most`. `next` is the first bucket in which it is not counted yet.
    pub(super) fn learn(&mut self, next: &mut u8, length: u64, most: u64, complete: bool) {
        if *next == 0 {
            self.forget();
            *next = 1;
        }
        let mut length = length.min(most).clamp(1, LONGEST);
        let [count, sum, middles] = self.sums;
        if count >= WARM {
            length = length.min((OFF * self.longest(count).max(OFF)) as u64);
        }
        let to = bucket(length);
        for reached in self.reached.iter_mut().take(to + 1).skip(usize::from(*next)) {
            *reached += 1.0;
        }
        *next = (*next).max(to as u8 + 1);
        let at = usize::from(*next) - 1;
        if let Some((ended, middle)) = self.ended.get_mut(at).zip(MIDDLES.get(at)).filter(|_| complete) {
            *ended += 1.0;
            self.sums = [count + 1.0, sum + length as f64, middles + middle];
        }
    }

    fn forget(&mut self) {
        for weight in self.reached.iter_mut().chain(&mut self.ended) {
            // Numbers too small for their full precision would take a hundred times as long.
            *weight = if *weight > FORGOTTEN { *weight * KEEP as f32 } else { 0.0 };
        }
        self.sums = self.sums.map(|sum| sum * KEEP);
    }

    /// Returns the number of answers that began, less what is forgotten of them.
    fn seen(&self) -> f64 {
        let [_, seen, ..] = self.reached;
        f64::from(seen)
    }

    /// Returns the length that no more answers exceed than one in a hundred of `count`, to the edge
    /// of a bucket.
    fn longest(&self, count: f64) -> f64 {
        let few = count / 100.0;
        let at = self.reached.iter().rposition(|reached| f64::from(*reached) > few);
        at.map_or(0.0, |at| (at as f64 / DOUBLING as f64).exp2())
    }

    /// Returns these lengths in place of `belief`, as far as they are known.
    pub(super) fn instead_of(&self, belief: Lengths, topmost: bool) -> Lengths {
        let seen = self.seen();
        if seen <= 0.0 {
            return belief;
        }
        let own = self.lengths(&belief, topmost);
        let trust = trust(seen, topmost);
        let mut shares = belief.shares;
        for (share, own) in shares.iter_mut().zip(&own.shares) {
            *share = *share * (1.0 - trust) as f32 + own * trust as f32;
        }
        Lengths { shares, mean: trust * own.mean + (1.0 - trust) * belief.mean }
    }

    /// Returns the product-limit estimate. What goes on beyond the longest length that was observed
    /// is as `belief` says. The topmost belief is a guess: as answers complete, it gives way to
    /// lengths that are spread evenly over the doublings up to it, and over one doubling at least.
    fn lengths(&self, belief: &Lengths, topmost: bool) -> Lengths {
        let mut shares = [0.0; BUCKETS];
        for ((share, reached), ended) in shares.iter_mut().zip(&self.reached).zip(&self.ended) {
            *share = if *reached > 0.0 { (ended / reached).min(1.0) } else { 0.0 };
        }
        let longest = self.reached.iter().rposition(|reached| *reached > 0.0).unwrap_or(0);
        let mut left = 1.0_f32;
        for share in shares.iter_mut().take(longest + 1) {
            let goes_on = 1.0 - *share;
            *share *= left;
            left *= goes_on;
        }
        let [count, sum, middles] = self.sums;
        if f64::from(left) > NOTHING {
            let from = (longest + 1).min(BUCKETS - 1);
            let farthest = belief.shares.iter().rposition(|share| *share > 0.0).unwrap_or(0);
            let to = farthest.max(longest + DOUBLING).min(BUCKETS - 1);
            let beyond: f32 = belief.shares.iter().skip(from).sum();
            let spread = match beyond {
                beyond if f64::from(beyond) <= NOTHING => 1.0,
                _ if topmost => trust(count, topmost) as f32,
                _ => 0.0,
            };
            let (even, believed) = (left * spread / (to + 1 - from) as f32, left * (1.0 - spread) / beyond);
            for (at, (share, belief)) in shares.iter_mut().zip(&belief.shares).enumerate().skip(from) {
                // A sum of nothing divides nothing.
                let believed = if spread < 1.0 { believed * belief } else { 0.0 };
                *share += believed + if at <= to { even } else { 0.0 };
            }
        }
        let mean: f64 = shares.iter().zip(&MIDDLES).map(|(share, middle)| f64::from(*share) * middle).sum();
        // The middles are off by as much as they are for the answers that ended.
        let exact = if middles > 0.0 { sum / middles } else { 1.0 };
        Lengths { shares, mean: mean * exact }
    }
}
