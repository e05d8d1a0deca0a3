//! Averages that forget.

/// What remains of an observation after each later one: half of it after 138.
pub(super) const KEEP: f64 = 1.0 - 1.0 / 200.0;

/// After so many observations nothing is left of what was believed before the first: eight, less what is forgotten of them.
pub(super) const WARM: f64 = 7.8;

/// As many observations of its own weigh as much as what is known more generally; of twice as many the square of that.
const SHRINK: f64 = 5.0;

/// How far what is known of something carries, by how often it was seen: between a belief and an average.
///
/// The topmost belief gives way after a few observations, since it is none itself; what is known more generally keeps a share for longer, but not for
/// ever: a tenant of short answers beside one of long ones must not pay for them.
pub(super) fn trust(seen: f64, topmost: bool) -> f64 {
    if topmost { (seen / WARM).min(1.0) } else { seen * seen / (seen * seen + SHRINK * SHRINK) }
}

/// A ratio of two sums, in which older terms count for less. Of plain numbers, weighed 1 each, it is the mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Average {
    seen: f64,
    sum: f64,
    weight: f64,
}

impl Average {
    /// Takes one term; both finite, not negative.
    pub(super) fn learn(&mut self, value: f64, weight: f64) {
        self.seen = self.seen * KEEP + 1.0;
        self.sum = self.sum * KEEP + value;
        self.weight = self.weight * KEEP + weight;
    }

    /// How many observations it rests on, less what is forgotten.
    pub(super) fn seen(&self) -> f64 {
        self.seen
    }

    /// The average, in place of `belief` as far as it is known.
    pub(super) fn instead_of(&self, belief: f64, topmost: bool) -> f64 {
        if self.weight <= 0.0 {
            return belief;
        }
        let trust = trust(self.seen, topmost);
        trust * (self.sum / self.weight) + (1.0 - trust) * belief
    }
}
