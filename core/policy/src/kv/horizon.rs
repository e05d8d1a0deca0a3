//! Memory use at each future step, as a sum over calls.
//!
//! # Algorithm
//!
//! Time is counted in output tokens: each call of a batch gains one per step. A call that holds `c`
//! tokens now, and whose possible lengths leave `d1 < d2 < ...` tokens to come, holds `c + t` at
//! step `t` with the probability that its `d` is at least `t`. The sum over calls, and its
//! variance, are polynomials in `t` between two steps at which an answer may end, so five numbers
//! per step suffice for any number of calls.
//!
//! Steps are exact up to 32 tokens ahead, and rounded to a sixteenth of their distance beyond that.
//! An end in between counts at the next step, so memory use is never underestimated.

use super::forecast::Remaining;

/// Number of steps per doubling of the distance.
const FINE: u32 = 16;

/// Memory use at each future step.
#[derive(Clone, Debug, Default)]
pub(super) struct Horizon {
    moments: Vec<Change>,
    /// Memory held by calls whose progress is not observed, for as long as they run, and its
    /// variance.
    flat: f64,
    flat_variance: f64,
}

/// Difference between the use before a step and after it.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// Number of calls still running, and the tokens they held at first.
    calls: f64,
    held: f64,
    /// Variance of each call still running: times 1, times the tokens held at first, and times
    /// their square.
    doubt: f64,
    doubt_held: f64,
    doubt_squared: f64,
}

impl Change {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.held += other.held;
        self.doubt += other.doubt;
        self.doubt_held += other.doubt_held;
        self.doubt_squared += other.doubt_squared;
    }
}

impl Horizon {
    /// Adds a call (`sign` 1), or removes it with the same arguments (-1).
    pub(super) fn change(&mut self, sign: f64, held: f64, remaining: &Remaining<'_>) {
        let count = remaining.count() as f64;
        let (mut there, mut doubt) = (0.0, 0.0);
        for (longer, left) in remaining.descending().enumerate() {
            let moment = moment(left);
            if self.moments.len() <= moment {
                self.moments.resize(moment + 1, Change::default());
            }
            let Some(at) = self.moments.get_mut(moment) else { continue };
            let now_there = (longer + 1) as f64 / count;
            let now_doubt = now_there * (1.0 - now_there);
            let (more, more_doubt) = (sign * (now_there - there), sign * (now_doubt - doubt));
            at.calls += more;
            at.held += more * held;
            at.doubt += more_doubt;
            at.doubt_held += more_doubt * held;
            at.doubt_squared += more_doubt * held * held;
            (there, doubt) = (now_there, now_doubt);
        }
    }

    /// Adds or removes a call whose progress is not observed: it counts in full, `held` with a
    /// variance.
    pub(super) fn change_flat(&mut self, sign: f64, held: f64, variance: f64) {
        self.flat += sign * held;
        self.flat_variance += sign * variance;
    }

    /// Adds everything that another horizon holds.
    pub(super) fn add(&mut self, other: &Self) {
        if self.moments.len() < other.moments.len() {
            self.moments.resize(other.moments.len(), Change::default());
        }
        self.moments.iter_mut().zip(&other.moments).for_each(|(at, more)| at.add(more));
        self.change_flat(1.0, other.flat, other.flat_variance);
    }

    /// Returns the maximum use of both horizons together at any step: the mean plus `caution`
    /// standard deviations, in tokens.
    pub(super) fn peak_with(&self, other: &Self, caution: f64) -> f64 {
        let (flat, flat_variance) = (self.flat + other.flat, self.flat_variance + other.flat_variance);
        // After all answers with observed progress have ended.
        let mut peak = flat + caution * flat_variance.max(0.0).sqrt();
        let mut sum = Change::default();
        for moment in (0..self.moments.len().max(other.moments.len())).rev() {
            let changes = [self.moments.get(moment), other.moments.get(moment)];
            changes.into_iter().flatten().for_each(|change| sum.add(change));
            let t = ends(moment);
            let mean = flat + sum.held + sum.calls * t;
            let variance = flat_variance + sum.doubt_squared + t * (2.0 * sum.doubt_held + t * sum.doubt);
            peak = peak.max(mean + caution * variance.max(0.0).sqrt());
        }
        peak
    }

    /// Returns the use one token from now, before any answer has ended.
    pub(super) fn soon(&self, caution: f64) -> f64 {
        let held: f64 = self.moments.iter().map(|change| change.held + change.calls).sum();
        self.flat + held + caution * self.flat_variance.max(0.0).sqrt()
    }

    /// Removes all calls and keeps the allocated memory.
    pub(super) fn clear(&mut self) {
        self.moments.clear();
        (self.flat, self.flat_variance) = (0.0, 0.0);
    }
}

/// Returns the step at which an answer with `left` tokens to come counts as ended.
fn moment(left: u32) -> usize {
    let left = left.max(1);
    if left <= 2 * FINE {
        return left as usize - 1;
    }
    // Counted from the tokens before the last one: `left` itself belongs to the step that ends with
    // it.
    let before = left - 1;
    let shift = before.ilog2() - FINE.ilog2();
    (FINE * shift + (before >> shift)) as usize
}

/// Returns how many tokens ahead the step is.
fn ends(moment: usize) -> f64 {
    let fine = FINE as usize;
    if moment < 2 * fine {
        return (moment + 1) as f64;
    }
    let shift = moment / fine - 1;
    ((moment - fine * shift + 1) as f64) * (1u64 << shift.min(32)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_ends_at_or_slightly_after_its_calls() {
        let mut last = 0;
        for left in (1..100_000u32).chain([1 << 20, (1 << 20) + 1, u32::MAX - 1, u32::MAX]) {
            let at = moment(left);
            assert!(at >= last);
            last = at;
            let (left, end) = (f64::from(left), ends(at));
            assert!(
                end >= left && end <= left * (1.0 + 1.0 / f64::from(FINE)) + 1e-9,
                "{left} ends at {end}"
            );
            assert!(at == 0 || ends(at - 1) < left, "{left} fits in an earlier moment than {at}");
        }
    }
}
