//! Evidence that calls come late, and how much room is left before they do.
//!
//! The test is Page's CUSUM (Biometrika, 1954) over the log-likelihood ratio of two shares of late calls: one that is borne, and one that is a breach.
//! A share is a better witness than a quantile: where calls take either long or short, and a few more of them take long, a quantile jumps from one to
//! the other while the share moves by those few. Three late calls in short order are enough; one in a hundred never is, nor is a share that such calls have
//! also when there is room (some prompts are in a cache and some are not; some answers begin with thought).
//!
//! Room is the dead band: the limit is raised only while calls take less than [`HEADROOM`] of what would be late, in the mean. What they differ by is not asked:
//! answers differ by themselves.

use std::time::Instant;

/// The share of late calls that is borne, or what is usual if that is more; and how many more are a breach.
const TOLERATED_SHARE: f64 = 0.01;
const BREACH_MARGIN: f64 = 0.14;
/// No share is taken for usual beyond this.
const MAX_USUAL_SHARE: f64 = 0.5;
/// The evidence at which the limit is cut.
const CUT_THRESHOLD: f64 = 6.0;
/// Below this mean strain, beyond what is usual, there is room.
const HEADROOM: f64 = 0.1;
/// Weight of a call in the averages of strain.
const MEAN_WEIGHT: f64 = 0.2;
/// A call counts as no later than this.
const MAX_NORMALIZED_LATENCY: f64 = 2.0;

/// What calls of a class have when there is room: the share that is late, and the strain in the mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsualLatency {
    pub(super) late_share: f64,
    pub(super) normalized_latency: f64,
}

/// What was seen of the calls that were sent since the last change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Only calls that were sent since then are judged: earlier ones met what was before the change.
    since: Instant,
    log_likelihood: f64,
    mean: f64,
    judged: u32,
}

impl Evidence {
    /// None yet.
    pub(super) fn new(since: Instant) -> Self {
        Self { since, log_likelihood: 0.0, mean: 0.0, judged: 0 }
    }

    /// Whether a call that was sent then is judged.
    pub(super) fn applies_to(&self, sent_at: Instant) -> bool {
        sent_at >= self.since
    }

    /// A call was judged: see [`super::class::LatencyClass::normalized_latency`]. `usual`: what its class has when there is room. Says whether that is enough
    /// for a cut.
    pub(super) fn observe(&mut self, normalized_latency: f64, usual: UsualLatency) -> bool {
        let tolerated = usual.late_share.clamp(TOLERATED_SHARE, MAX_USUAL_SHARE);
        let breach = tolerated + BREACH_MARGIN;
        let ratio =
            if normalized_latency > 1.0 { breach / tolerated } else { (1.0 - breach) / (1.0 - tolerated) };
        self.log_likelihood = (self.log_likelihood + ratio.ln()).max(0.0);
        let normalized_latency =
            normalized_latency.clamp(0.0, MAX_NORMALIZED_LATENCY) - usual.normalized_latency;
        if self.judged == 0 {
            self.mean = normalized_latency;
        }
        self.mean += MEAN_WEIGHT * (normalized_latency - self.mean);
        self.judged = self.judged.saturating_add(1);
        self.log_likelihood >= CUT_THRESHOLD
    }

    /// The upstream said itself that it has no room, or said nothing: half of what is enough.
    pub(super) fn on_overload(&mut self) -> bool {
        self.log_likelihood += CUT_THRESHOLD / 2.0;
        self.log_likelihood >= CUT_THRESHOLD
    }

    /// Whether calls have room, in the mean.
    pub(super) fn has_headroom(&self) -> bool {
        self.mean <= HEADROOM
    }

    /// How many calls were judged.
    pub(super) fn judged(&self) -> u32 {
        self.judged
    }

    /// From 0 to 1: at 1 the limit is cut.
    pub(super) fn fraction(&self) -> f64 {
        (self.log_likelihood / CUT_THRESHOLD).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    /// How many calls it takes until a breach is seen, where every `of`-th is late.
    fn until(of: u32, usual: f64, most: u32) -> Option<u32> {
        let mut evidence = Evidence::new(epoch());
        (1..=most).find(|n| {
            evidence.observe(
                if n % of == 0 { 1.5 } else { 0.1 },
                UsualLatency { late_share: usual, normalized_latency: 0.0 },
            )
        })
    }

    #[test]
    fn three_late_calls_are_a_breach_and_one_percent_is_not() {
        assert_eq!(until(1, 0.0, 10), Some(3));
        assert_eq!(until(100, 0.0, 1_000_000), None);
        assert!(until(6, 0.0, 100).is_some());
        assert_eq!(until(6, 0.17, 1_000_000), None, "what is usual is none");
        assert!(until(2, 0.17, 100).is_some(), "but more than that is");
    }

    #[test]
    fn headroom_is_lost_before_calls_are_late() {
        let mut evidence = Evidence::new(epoch());
        (0..50).for_each(|_| _ = evidence.observe(0.1, UsualLatency::default()));
        assert!(evidence.has_headroom());
        (0..50).for_each(|_| _ = evidence.observe(0.6, UsualLatency::default()));
        assert!(!evidence.has_headroom());
        assert_eq!(evidence.fraction(), 0.0);
    }

    #[test]
    fn only_calls_sent_after_the_change_are_judged() {
        let change = epoch();
        let evidence = Evidence::new(change);
        assert!(evidence.applies_to(change));
        assert!(!evidence.applies_to(change - std::time::Duration::from_nanos(1)));
    }
}
