//! Predicted memory use of an engine at each future step, as a sum over its calls.
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

/// Number of steps for each doubling of the distance from now, beyond the first `2 * FINE` steps.
const FINE: u32 = 16;

/// Predicted memory use, in tokens, at each future step.
#[derive(Clone, Debug, Default)]
pub(super) struct Horizon {
    /// The decrease of memory use at each step.
    steps: Vec<Change>,
    /// Memory use that is the same at each step, in tokens: that of shared prefixes, and that of
    /// calls whose progress is not observed.
    constant: f64,
    /// Variance of `constant`.
    constant_variance: f64,
}

/// The decrease of the expected memory use and of its variance at one step. See the [module
/// documentation](self).
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// Expected number of calls that end at the step.
    calls: f64,
    /// Expected tokens that the ending calls hold now.
    held: f64,
    /// Decrease of the variance of the number of running calls.
    variance: f64,
    /// Decrease of the covariance between the number of running calls and the tokens that they hold
    /// now.
    variance_held: f64,
    /// Decrease of the variance of the tokens that the running calls hold now.
    variance_held_squared: f64,
}

impl Change {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.held += other.held;
        self.variance += other.variance;
        self.variance_held += other.variance_held;
        self.variance_held_squared += other.variance_held_squared;
    }
}

impl Horizon {
    /// Adds a call (`sign` 1), or removes one that was added with the same arguments (-1). `held`
    /// is the memory that the call holds now, and `remaining` the tokens still to come under each
    /// possible length, the largest first.
    pub(super) fn change(&mut self, sign: f64, held: f64, remaining: impl Iterator<Item = u32> + Clone) {
        let count = remaining.clone().count() as f64;
        let (mut running, mut variance) = (0.0, 0.0);
        for (longer, left) in remaining.enumerate() {
            let step = step_of(left);
            if self.steps.len() <= step {
                self.steps.resize(step + 1, Change::default());
            }
            let Some(at) = self.steps.get_mut(step) else { continue };
            let now_running = (longer + 1) as f64 / count;
            let now_variance = now_running * (1.0 - now_running);
            let (more, more_variance) = (sign * (now_running - running), sign * (now_variance - variance));
            at.calls += more;
            at.held += more * held;
            at.variance += more_variance;
            at.variance_held += more_variance * held;
            at.variance_held_squared += more_variance * held * held;
            (running, variance) = (now_running, now_variance);
        }
    }

    /// Adds (`sign` 1) or removes (-1) memory that stays constant: `held` tokens, with a variance.
    pub(super) fn change_constant(&mut self, sign: f64, held: f64, variance: f64) {
        self.constant += sign * held;
        self.constant_variance += sign * variance;
    }

    /// Adds the memory use of another horizon.
    pub(super) fn add(&mut self, other: &Self) {
        if self.steps.len() < other.steps.len() {
            self.steps.resize(other.steps.len(), Change::default());
        }
        self.steps.iter_mut().zip(&other.steps).for_each(|(at, more)| at.add(more));
        self.change_constant(1.0, other.constant, other.constant_variance);
    }

    /// Returns the peak of the memory use of both horizons together, in tokens: the maximum over
    /// all steps of the mean plus `caution` standard deviations.
    pub(super) fn peak_with(&self, other: &Self, caution: f64) -> f64 {
        let (constant, constant_variance) =
            (self.constant + other.constant, self.constant_variance + other.constant_variance);
        // After all answers with observed progress have ended.
        let mut peak = constant + caution * constant_variance.max(0.0).sqrt();
        let mut sum = Change::default();
        for step in (0..self.steps.len().max(other.steps.len())).rev() {
            let changes = [self.steps.get(step), other.steps.get(step)];
            changes.into_iter().flatten().for_each(|change| sum.add(change));
            let t = tokens_ahead(step);
            let mean = constant + sum.held + sum.calls * t;
            let variance = constant_variance
                + sum.variance_held_squared
                + t * (2.0 * sum.variance_held + t * sum.variance);
            peak = peak.max(mean + caution * variance.max(0.0).sqrt());
        }
        peak
    }

    /// Returns the memory use in tokens after each call has produced one more token, plus `caution`
    /// standard deviations of the constant part.
    pub(super) fn next_step(&self, caution: f64) -> f64 {
        let held: f64 = self.steps.iter().map(|change| change.held + change.calls).sum();
        self.constant + held + caution * self.constant_variance.max(0.0).sqrt()
    }

    /// Removes all calls. The allocated storage is kept.
    pub(super) fn clear(&mut self) {
        self.steps.clear();
        (self.constant, self.constant_variance) = (0.0, 0.0);
    }
}

/// Returns the index of the step at which an answer with `left` tokens to come counts as ended.
fn step_of(left: u32) -> usize {
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

/// Returns the distance of a step from now, in output tokens of each call.
fn tokens_ahead(step: usize) -> f64 {
    let fine = FINE as usize;
    if step < 2 * fine {
        return (step + 1) as f64;
    }
    let shift = step / fine - 1;
    ((step - fine * shift + 1) as f64) * (1u64 << shift.min(32)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_ends_at_or_slightly_after_its_calls() {
        let mut last = 0;
        for left in (1..100_000u32).chain([1 << 20, (1 << 20) + 1, u32::MAX - 1, u32::MAX]) {
            let at = step_of(left);
            assert!(at >= last);
            last = at;
            let (left, end) = (f64::from(left), tokens_ahead(at));
            assert!(
                end >= left && end <= left * (1.0 + 1.0 / f64::from(FINE)) + 1e-9,
                "{left} ends at {end}"
            );
            assert!(at == 0 || tokens_ahead(at - 1) < left, "{left} fits in an earlier step than {at}");
        }
    }
}
