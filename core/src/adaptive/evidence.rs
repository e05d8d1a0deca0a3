//! Evidence that calls come late, and how much room is left before they do.
//!
//! The test is Page's CUSUM (Biometrika, 1954) over the log-likelihood ratio of two shares of late calls: one that is borne, and one that is a breach.
//! A share is a better witness than a quantile: where calls take either long or short, and a few more of them take long, a quantile jumps from one to
//! the other while the share moves by those few. Three late calls in short order are enough; one in a hundred never is.
//!
//! Room is the dead band: the limit is raised only while nearly all calls take less than [`ROOM`] of what would be late.

use std::time::Instant;

/// The share of late calls that is borne, and the one that is a breach.
const BORNE: f64 = 0.01;
const BREACH: f64 = 0.15;
/// The evidence at which the limit is cut.
const ENOUGH: f64 = 6.0;
/// Below this strain nearly all calls have room.
pub(super) const ROOM: f64 = 0.4;
/// Weight of a call in the averages of strain.
const WEIGHT: f64 = 0.2;
/// A call counts as no later than this.
const MOST: f64 = 2.0;

/// What was seen of the calls that were sent since the last change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Only calls that were sent since then are judged: earlier ones met what was before the change.
    since: Instant,
    sum: f64,
    mean: f64,
    deviation: f64,
    judged: u32,
}

impl Evidence {
    /// None yet.
    pub(super) fn new(since: Instant) -> Self {
        Self { since, sum: 0.0, mean: 0.0, deviation: 0.0, judged: 0 }
    }

    /// Whether a call that was sent then is judged.
    pub(super) fn concerns(&self, sent_at: Instant) -> bool {
        sent_at >= self.since
    }

    /// A call was judged: see [`super::class::Class::strain`]. Says whether that is enough for a cut.
    pub(super) fn saw(&mut self, strain: f64) -> bool {
        let ratio = if strain > 1.0 { BREACH / BORNE } else { (1.0 - BREACH) / (1.0 - BORNE) };
        self.sum = (self.sum + ratio.ln()).max(0.0);
        let strain = strain.clamp(0.0, MOST);
        if self.judged == 0 {
            (self.mean, self.deviation) = (strain, strain / 4.0);
        }
        self.deviation += WEIGHT * ((strain - self.mean).abs() - self.deviation);
        self.mean += WEIGHT * (strain - self.mean);
        self.judged = self.judged.saturating_add(1);
        self.sum >= ENOUGH
    }

    /// The upstream said itself that it has no room, or said nothing: half of what is enough.
    pub(super) fn warned(&mut self) -> bool {
        self.sum += ENOUGH / 2.0;
        self.sum >= ENOUGH
    }

    /// Whether nearly all calls have room: their mean strain, and twice what they differ from it by.
    pub(super) fn has_room(&self) -> bool {
        self.mean + 2.0 * self.deviation <= ROOM
    }

    /// From 0 to 1: at 1 the limit is cut.
    pub(super) fn share(&self) -> f64 {
        (self.sum / ENOUGH).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    /// How many calls it takes until a breach is seen, where every `of`-th is late.
    fn until(of: u32, most: u32) -> Option<u32> {
        let mut evidence = Evidence::new(epoch());
        (1..=most).find(|n| evidence.saw(if n % of == 0 { 1.5 } else { 0.1 }))
    }

    #[test]
    fn three_late_calls_are_enough_and_one_in_a_hundred_never_is() {
        assert_eq!(until(1, 10), Some(3));
        assert_eq!(until(100, 1_000_000), None);
        assert!(until(6, 100).is_some());
    }

    #[test]
    fn room_is_lost_before_calls_are_late() {
        let mut evidence = Evidence::new(epoch());
        (0..50).for_each(|_| _ = evidence.saw(0.2));
        assert!(evidence.has_room());
        (0..50).for_each(|_| _ = evidence.saw(0.6));
        assert!(!evidence.has_room());
        assert_eq!(evidence.share(), 0.0);
    }

    #[test]
    fn only_calls_sent_since_the_change_are_judged() {
        let change = epoch();
        let evidence = Evidence::new(change);
        assert!(evidence.concerns(change));
        assert!(!evidence.concerns(change - std::time::Duration::from_nanos(1)));
    }
}
