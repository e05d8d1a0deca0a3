//! Averages with exponential forgetting.

/// Weight of an observation after each later one: half of it is left after 138.
pub(super) const KEEP: f64 = 1.0 - 1.0 / 200.0;

/// Observations after which nothing is left of the prior belief: eight, less what is forgotten of
/// them.
pub(super) const WARM: f64 = 7.8;

/// Number of own observations that weigh as much as the more general level.
const SHRINK: f64 = 5.0;

/// Returns the weight of `seen` own observations against a belief, from 0 to 1.
///
/// The topmost belief is a guess and gives way after a few observations. A more general level keeps
/// a share for longer, but not forever, so that a tenant with short answers does not pay for one
/// with long answers.
pub(super) fn trust(seen: f64, topmost: bool) -> f64 {
    if topmost { (seen / WARM).min(1.0) } else { seen * seen / (seen * seen + SHRINK * SHRINK) }
}

/// A ratio of two sums in which older terms weigh less. With weights of 1 it is the mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Average {
    seen: f64,
    sum: f64,
    weight: f64,
}

impl Average {
    /// Adds a term. Both arguments are finite and not negative.
    pub(super) fn learn(&mut self, value: f64, weight: f64) {
        self.seen = self.seen * KEEP + 1.0;
        self.sum = self.sum * KEEP + value;
        self.weight = self.weight * KEEP + weight;
    }

    /// Returns the number of observations, less what is forgotten.
    pub(super) fn seen(&self) -> f64 {
        self.seen
    }

    /// Returns the average, mixed with `belief` according to the number of observations.
    pub(super) fn instead_of(&self, belief: f64, topmost: bool) -> f64 {
        if self.weight <= 0.0 {
            return belief;
        }
        let trust = trust(self.seen, topmost);
        trust * (self.sum / self.weight) + (1.0 - trust) * belief
    }
}
