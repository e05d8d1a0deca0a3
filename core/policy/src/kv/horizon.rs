//! What is held at each moment to come, as a sum over calls.
//!
//! Time is counted in output tokens: calls in one batch gain one each in a step. A call that holds `c` now and whose possible lengths leave
//! `d1 < d2 < ...` to come holds `c + t` at `t` with the probability that its `d` is at least `t`. Sums of that, and of its variance, are
//! polynomials in `t` between two moments at which an answer may end, so that five numbers per moment are enough, whatever the number of calls.
//!
//! Moments are kept one by one up to 32 tokens ahead, and to a sixteenth of their distance further out: an end in between counts at the next
//! one, so that what is held is never less than by exact sums.

use super::forecast::Remaining;

/// How many moments are told apart in each doubling of the distance.
const FINE: u32 = 16;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Horizon {
    moments: Vec<Change>,
    /// Of calls whose progress is not seen: what they hold, and its variance, for as long as they last.
    flat: f64,
    flat_variance: f64,
}

/// What is different up to a moment, as against after it.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// Calls still there: how many, and what they held at first.
    calls: f64,
    held: f64,
    /// The variance of each being there: times 1, times what it held at first, times the square of that.
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
    /// Adds a call (`sign` 1), or takes it out again by the same figures (-1).
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

    /// The same of a call whose progress is not seen: it counts as whole, `held` with a variance.
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

    /// Returns the most that both horizons together hold at any moment: the mean plus `caution` times the standard deviation.
    pub(super) fn peak_with(&self, other: &Self, caution: f64) -> f64 {
        let (flat, flat_variance) = (self.flat + other.flat, self.flat_variance + other.flat_variance);
        // Where every answer whose progress is seen has ended.
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

    /// Returns what is held one token from now, when no answer has ended yet.
    pub(super) fn soon(&self, caution: f64) -> f64 {
        let held: f64 = self.moments.iter().map(|change| change.held + change.calls).sum();
        self.flat + held + caution * self.flat_variance.max(0.0).sqrt()
    }

    /// Forgets all of them, but not the room that they took.
    pub(super) fn clear(&mut self) {
        self.moments.clear();
        (self.flat, self.flat_variance) = (0.0, 0.0);
    }
}

/// The moment at which an answer with so many tokens to come counts as ended.
fn moment(left: u32) -> usize {
    let left = left.max(1);
    if left <= 2 * FINE {
        return left as usize - 1;
    }
    // Of the tokens before the last: `left` itself is still in the moment that ends with it.
    let before = left - 1;
    let shift = before.ilog2() - FINE.ilog2();
    (FINE * shift + (before >> shift)) as usize
}

/// How many tokens ahead the moment is.
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
