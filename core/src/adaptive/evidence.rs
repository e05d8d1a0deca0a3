//! Evidence that calls come late: a sequential test, and how much room is left before.
//!
//! The test is Page's CUSUM over the log-likelihood ratio of two shares of late calls: one that is borne, one that is a breach. A share is a better
//! witness than a quantile: where calls take either long or short, and a few more of them take long, a quantile can jump from one to the other
//! while the share moves by those few.

use std::time::Instant;

/// The share of late calls that is borne, and the one that is a breach.
const BORNE: f64 = 0.01;
const BREACH: f64 = 0.15;
/// The evidence at which the limit is cut: three calls that are late one after the other.
const ENOUGH: f64 = 6.0;
/// Weight of a sample in the averages of strain.
const WEIGHT: f64 = 0.2;
/// A call counts as no later than so many times its threshold.
const MOST: f64 = 2.0;

/// What was seen of the calls that were sent since the last change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Only calls that were sent since are judged: earlier ones met what was before the change.
    since: Instant,
    sum: f64,
    mean: f64,
    deviation: f64,
    judged: u32,
}

impl Evidence {
    pub(super) fn new(since: Instant) -> Self {
        Self { since, sum: 0.0, mean: 0.0, deviation: 0.0, judged: 0 }
    }

    /// Whether a call that was sent then is judged.
    pub(super) fn concerns(&self, sent_at: Instant) -> bool {
        sent_at >= self.since
    }

    /// A call was judged: see [`super::class::Class::strain`]. Says whether that is enough for a cut.
    pub(super) fn saw(&mut self, strain: f64) -> bool {
        let late = strain > 1.0;
        let ratio = if late { (BREACH / BORNE).ln() } else { ((1.0 - BREACH) / (1.0 - BORNE)).ln() };
        self.sum = (self.sum + ratio).max(0.0);
        let strain = strain.clamp(0.0, MOST);
        if self.judged == 0 {
            (self.mean, self.deviation) = (strain, strain / 4.0);
        }
        self.deviation += WEIGHT * ((strain - self.mean).abs() - self.deviation);
        self.mean += WEIGHT * (strain - self.mean);
        self.judged = self.judged.saturating_add(1);
        self.sum >= ENOUGH
    }

    /// What a refusal or a timeout adds: half of what is enough.
    pub(super) fn warned(&mut self) -> bool {
        self.sum += ENOUGH / 2.0;
        self.sum >= ENOUGH
    }

    /// The strain that nearly all calls stay below: their mean and twice what they differ from it by.
    pub(super) fn strain(&self) -> f64 {
        self.mean + 2.0 * self.deviation
    }

    /// From 0 to 1: at 1 the limit is cut.
    pub(super) fn share(&self) -> f64 {
        (self.sum / ENOUGH).min(1.0)
    }
}
