//! The distribution of the lengths of answers, learned from complete and incomplete answers.
//!
//! An answer that is in flight, was cancelled or broke off is a right-censored sample: its length
//! is at least the tokens seen so far. For each bucket of lengths, [`LengthCounts`] counts the
//! answers that reached the bucket and the answers that ended in it. The quotient is the
//! probability that an answer which reaches the bucket ends there. The product over the buckets is
//! the product-limit estimator (Kaplan and Meier, 1958). If every answer was complete, the result
//! is the histogram of their lengths. See `docs/design/output-length-estimates.md`.

use super::weighted_average::{DECAY, WARM_COUNT, own_weight};

/// The number of buckets: one for length 0, four for each of the 18 doublings from 1 to
/// [`MAX_LENGTH`], and one for [`MAX_LENGTH`] itself. The error of a quantile is at most a tenth.
pub(super) const BUCKETS: usize = 74;

/// The number of buckets from one length to twice that length.
const BUCKETS_PER_DOUBLING: usize = 4;

/// The maximum length of one answer, in tokens. Longer answers count as this long.
pub(super) const MAX_LENGTH: u64 = 1 << 18;

/// The maximum length of an answer, as a multiple of the 99th percentile of the observed lengths.
/// Longer answers count as this long. Applies from eight complete answers on.
const MAX_OUTLIER: f64 = 4.0;

/// The weight up to which a count is set to 0. The weight of a single answer decreases to this
/// value after about 4,000 more answers.
const MIN_WEIGHT: f32 = 1e-9;

/// The ratio of the end of a bucket to its start: the fourth root of 2.
const BUCKET_RATIO: f64 = 1.189_207_115_002_721;

/// The probability up to which a sum of bucket probabilities counts as 0, because of rounding
/// errors.
pub(super) const MIN_MASS: f64 = 1e-5;

/// The distribution of the length of one answer, in tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LengthDistribution {
    /// The probability of each bucket. The sum is 1.
    pub(super) shares: [f32; BUCKETS],
    /// The mean length, which is more exact than the buckets.
    pub(super) mean: f64,
}

impl LengthDistribution {
    /// Creates the distribution in which every answer has this length.
    pub(super) fn single(length: u64) -> Self {
        let mut shares = [0.0; BUCKETS];
        if let Some(share) = shares.get_mut(bucket(length)) {
            *share = 1.0;
        }
        Self { shares, mean: length as f64 }
    }

    /// Returns (probability, start, end) of each bucket, with the start and the end in tokens.
    pub(super) fn spans(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let mut edge = 1.0;
        self.shares.iter().enumerate().map(move |(at, share)| {
            if at == 0 {
                return (f64::from(*share), 0.0, 0.0);
            }
            let from = edge;
            edge *= BUCKET_RATIO;
            (f64::from(*share), from, edge)
        })
    }
}

/// The length in the middle of each bucket, in tokens.
const MIDPOINTS: [f64; BUCKETS] = {
    let (mut middles, mut from, mut at) = ([0.0; BUCKETS], 1.0, 1);
    while at < BUCKETS {
        middles[at] = from * (1.0 + BUCKET_RATIO) / 2.0;
        from *= BUCKET_RATIO;
        at += 1;
    }
    middles
};

/// Returns the index of the bucket that a length is in.
fn bucket(length: u64) -> usize {
    if length == 0 {
        return 0;
    }
    (1 + (4.0 * (length as f64).log2()) as usize).min(BUCKETS - 1)
}

/// The length up to which the answers of one attempt were counted by the
/// [`Estimator`](crate::Estimator).
///
/// Each attempt has its own sample, which starts as the default. An answer that never ends stays
/// counted as at least as long as observed, so the sample of a failed attempt is just dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct LengthSample {
    /// The first bucket in which the answers are not counted yet, for each of the three entries of
    /// the estimator that the call belongs to (model, class, tenant). 0 before the first token.
    pub(super) next: [u8; 3],
    /// The number of output tokens, over all answers, at which the answers reach the next bucket.
    due: u64,
}

impl LengthSample {
    /// Returns `true` if answers with `tokens` output tokens in total have reached a bucket in
    /// which they are not counted yet.
    pub fn is_due(&self, tokens: u64) -> bool {
        tokens > 0 && tokens >= self.due
    }

    /// Records that each of `answers` answers is counted up to `length` tokens.
    pub(super) fn mark_counted(&mut self, length: u64, answers: u64) {
        let end_of_bucket = (bucket(length) as f64 / BUCKETS_PER_DOUBLING as f64).exp2().ceil() as u64;
        self.due = end_of_bucket.max(length.saturating_add(1)).saturating_mul(answers);
    }
}

/// The observed lengths of answers. Each answer that begins multiplies the earlier counts by
/// [`DECAY`].
#[derive(Clone, Debug)]
pub(super) struct LengthCounts {
    /// The number of answers that are at least as long as the start of each bucket.
    reached: [f32; BUCKETS],
    /// The number of complete answers in each bucket.
    ended: [f32; BUCKETS],
    /// The number of complete answers, the sum of their lengths, and the sum of the [`MIDPOINTS`]
    /// of their buckets.
    sums: [f64; 3],
    /// The number of buckets in use. The counts of the others are 0.
    used: usize,
}

impl Default for LengthCounts {
    fn default() -> Self {
        Self { reached: [0.0; BUCKETS], ended: [0.0; BUCKETS], sums: [0.0; 3], used: 0 }
    }
}

impl LengthCounts {
    /// Counts an answer: up to `length` tokens, and as ended there if `complete`.
    ///
    /// `max` is the maximum tokens of the answer. `next` is the first bucket in which the answer is
    /// not counted yet, or 0 for a new answer. It is updated.
    pub(super) fn learn(&mut self, next: &mut u8, length: u64, max: u64, complete: bool) {
        if *next == 0 {
            self.decay();
            *next = 1;
        }
        let mut length = length.min(max).clamp(1, MAX_LENGTH);
        let [count, sum, middles] = self.sums;
        if count >= WARM_COUNT {
            length = length.min((MAX_OUTLIER * self.percentile_99(count).max(MAX_OUTLIER)) as u64);
        }
        let to = bucket(length);
        let newly = self.reached.get_mut(usize::from(*next)..=to).unwrap_or_default();
        newly.iter_mut().for_each(|reached| *reached += 1.0);
        *next = (*next).max(to as u8 + 1);
        self.used = self.used.max(usize::from(*next));
        let at = usize::from(*next) - 1;
        if let Some((ended, middle)) = self.ended.get_mut(at).zip(MIDPOINTS.get(at)).filter(|_| complete) {
            *ended += 1.0;
            self.sums = [count + 1.0, sum + length as f64, middles + middle];
        }
    }

    /// Multiplies the weight of all earlier answers by [`DECAY`].
    fn decay(&mut self) {
        // One loop per array, which the compiler can vectorize.
        for weights in [&mut self.reached, &mut self.ended] {
            for weight in weights.iter_mut().take(self.used) {
                // Arithmetic with subnormal numbers would take a hundred times as long.
                *weight = if *weight > MIN_WEIGHT { *weight * DECAY as f32 } else { 0.0 };
            }
        }
        self.sums = self.sums.map(|sum| sum * DECAY);
        let is_used =
            |at: &usize| [&self.reached, &self.ended].iter().any(|weights| weights.get(*at) > Some(&0.0));
        self.used = (0..self.used).rev().find(is_used).map_or(0, |last| last + 1);
    }

    /// Returns the 99th percentile of the lengths of `count` answers, in tokens: the longest length
    /// that more than a hundredth of `count` answers reach, rounded up to the end of its bucket. 0
    /// if nothing was observed.
    fn percentile_99(&self, count: f64) -> f64 {
        let few = count / 100.0;
        let at = self.reached().iter().rposition(|reached| f64::from(*reached) > few);
        at.map_or(0.0, |at| (at as f64 / BUCKETS_PER_DOUBLING as f64).exp2())
    }

    /// Returns the weighted mean of the observed distribution and of `prior`; see [`own_weight`].
    /// Returns `prior` if nothing was observed.
    pub(super) fn blended_with(&self, prior: LengthDistribution, prior_is_cold: bool) -> LengthDistribution {
        // Every answer, complete or not, reaches the first bucket above length 0.
        let [_, count, ..] = self.reached;
        if count <= 0.0 {
            return prior;
        }
        let own = self.lengths(&prior, prior_is_cold);
        let own_weight = own_weight(f64::from(count), prior_is_cold);
        let mut shares = prior.shares;
        for (share, own) in shares.iter_mut().zip(&own.shares) {
            *share = *share * (1.0 - own_weight) as f32 + own * own_weight as f32;
        }
        LengthDistribution { shares, mean: own_weight * own.mean + (1.0 - own_weight) * prior.mean }
    }

    /// Returns the mean length as in [`LengthCounts::blended_with`], where `prior_mean` is the mean
    /// of the prior. `None` if it depends on the distribution of the prior, because some answers
    /// may become longer than all lengths that were observed.
    pub(super) fn blended_mean(&self, prior_mean: f64, prior_is_cold: bool) -> Option<f64> {
        let [_, count, ..] = self.reached;
        if count <= 0.0 {
            return Some(prior_mean);
        }
        let (shares, longest, left) = self.observed_shares();
        if f64::from(left) > MIN_MASS {
            return None;
        }
        let own_weight = own_weight(f64::from(count), prior_is_cold);
        Some(own_weight * self.mean(&shares, longest + 1) + (1.0 - own_weight) * prior_mean)
    }

    /// Returns the product-limit estimate of the distribution.
    ///
    /// The probability that is left beyond the longest observed length is distributed as in
    /// `prior`. If the prior is cold, a part of that probability, which grows with the number of
    /// complete answers, is instead spread evenly over the buckets up to the prior's longest
    /// length, and at least over one doubling.
    fn lengths(&self, prior: &LengthDistribution, prior_is_cold: bool) -> LengthDistribution {
        let (mut shares, longest, left) = self.observed_shares();
        let [count, ..] = self.sums;
        // The buckets from here on have no share.
        let mut end = longest + 1;
        if f64::from(left) > MIN_MASS {
            end = BUCKETS;
            let from = (longest + 1).min(BUCKETS - 1);
            let farthest = prior.shares.iter().rposition(|share| *share > 0.0).unwrap_or(0);
            let to = farthest.max(longest + BUCKETS_PER_DOUBLING).min(BUCKETS - 1);
            let beyond: f32 = prior.shares.iter().skip(from).sum();
            let spread = match beyond {
                beyond if f64::from(beyond) <= MIN_MASS => 1.0,
                _ if prior_is_cold => own_weight(count, prior_is_cold) as f32,
                _ => 0.0,
            };
            let (even, as_prior) = (left * spread / (to + 1 - from) as f32, left * (1.0 - spread) / beyond);
            for (at, (share, prior)) in shares.iter_mut().zip(&prior.shares).enumerate().skip(from) {
                // If `spread` is 1, `beyond` may be 0, and the quotient is not a number.
                let as_prior = if spread < 1.0 { as_prior * prior } else { 0.0 };
                *share += as_prior + if at <= to { even } else { 0.0 };
            }
        }
        LengthDistribution { mean: self.mean(&shares, end), shares }
    }

    /// Returns the product-limit estimate up to the longest observed bucket, the index of that
    /// bucket, and the probability of longer answers.
    fn observed_shares(&self) -> ([f32; BUCKETS], usize, f32) {
        let longest = self.reached().iter().rposition(|reached| *reached > 0.0).unwrap_or(0);
        let (mut shares, mut left) = ([0.0; BUCKETS], 1.0_f32);
        let counts = self.reached.iter().zip(&self.ended).take(longest + 1);
        for (share, (reached, ended)) in shares.iter_mut().zip(counts) {
            let ends = if *reached > 0.0 { (ended / reached).min(1.0) } else { 0.0 };
            *share = ends * left;
            left *= 1.0 - ends;
        }
        (shares, longest, left)
    }

    /// Returns the numbers of answers that reached the buckets in use.
    fn reached(&self) -> &[f32] {
        self.reached.get(..self.used).unwrap_or_default()
    }

    /// Returns the mean length with the given probabilities of the buckets, which are 0 from `end`
    /// on.
    fn mean(&self, shares: &[f32; BUCKETS], end: usize) -> f64 {
        let [_, sum, middles] = self.sums;
        let shared = shares.iter().zip(&MIDPOINTS).take(end);
        let mean: f64 = shared.map(|(share, middle)| f64::from(*share) * middle).sum();
        // Corrects the midpoints by their error for the complete answers.
        let exact = if middles > 0.0 { sum / middles } else { 1.0 };
        mean * exact
    }
}
