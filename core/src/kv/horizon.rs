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

    /// The most that is held at any moment: its mean and `caution` times its standard deviation.
    pub(super) fn peak(&self, caution: f64) -> f64 {
        let mut sum = Change::default();
        // Where every answer whose progress is seen has ended.
        let mut peak = self.flat + caution * self.flat_variance.max(0.0).sqrt();
        for (moment, change) in self.moments.iter().enumerate().rev() {
            sum.calls += change.calls;
            sum.held += change.held;
            sum.doubt += change.doubt;
            sum.doubt_held += change.doubt_held;
            sum.doubt_squared += change.doubt_squared;
            let t = ends(moment);
            let mean = self.flat + sum.held + sum.calls * t;
            let variance =
                self.flat_variance + sum.doubt_squared + t * (2.0 * sum.doubt_held + t * sum.doubt);
            peak = peak.max(mean + caution * variance.max(0.0).sqrt());
        }
        peak
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
    fn a_moment_ends_no_sooner_than_what_is_in_it_and_hardly_later() {
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
