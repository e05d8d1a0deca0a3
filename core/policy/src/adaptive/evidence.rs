//! Evidence that too many calls are late, or that they have headroom.
//!
//! # Algorithm
//!
//! The test is Page's CUSUM (Biometrika, 1954) on the log-likelihood ratio of two shares of late
//! calls: a tolerated share and a breach. Three late calls in a row are a breach. One percent of
//! late calls never is, nor is a share that the class also has on an uncongested upstream (for
//! example because some prompts are cached).
//!
//! *Headroom* implements a dead band: the limit is raised only while the mean normalized latency
//! exceeds the usual one by at most [`HEADROOM`].
//!
//! # Rationale
//!
//! A share is more robust than a quantile. If calls are either fast or slow, and slightly more of
//! them become slow, a quantile jumps from one mode to the other, while the share changes only
//! slightly.

use std::time::Instant;

/// Tolerated share of late calls, unless the usual share is larger.
const TOLERATED_SHARE: f64 = 0.01;
/// Excess over the tolerated share of late calls that is a breach.
const BREACH_MARGIN: f64 = 0.14;
/// Upper limit of the usual share of late calls that is tolerated.
const MAX_USUAL_SHARE: f64 = 0.5;
/// Log-likelihood ratio of a breach against a tolerated share of late calls at which the limit is
/// cut.
const CUT_THRESHOLD: f64 = 6.0;
/// Maximum excess of the mean normalized latency over the usual one at which the limit may be
/// raised. The distance from a class's baseline to its threshold is 1.0.
const HEADROOM: f64 = 0.1;
/// Weight of a call in the mean normalized latency.
const MEAN_WEIGHT: f64 = 0.2;
/// Upper limit of the normalized latency of one call in the mean.
const MAX_NORMALIZED_LATENCY: f64 = 2.0;

/// What is usual for a latency class on an uncongested upstream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsualLatency {
    /// Share of late calls, from 0 to 1.
    pub(super) late_share: f64,
    /// Mean normalized latency that the deviation from the baseline causes.
    pub(super) normalized_latency: f64,
}

/// The evidence that calls are late, from the calls sent since a change of the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Calls sent before this time are not counted, because they were sent under the previous
    /// limit.
    since: Instant,
    /// Log-likelihood ratio of a breach against a tolerated share of late calls, at least 0.
    log_likelihood: f64,
    /// Decaying mean of the excess of the normalized latency over the usual one.
    mean: f64,
    /// Number of calls added.
    pub(super) judged: u32,
}

impl Evidence {
    /// Creates empty evidence from calls sent at or after `since`.
    pub(super) fn new(since: Instant) -> Self {
        Self { since, log_likelihood: 0.0, mean: 0.0, judged: 0 }
    }

    /// Returns `true` if a call sent at `sent_at` counts as evidence.
    pub(super) fn applies_to(&self, sent_at: Instant) -> bool {
        sent_at >= self.since
    }

    /// Adds a call. Returns `true` if the evidence suffices for a cut.
    ///
    /// `latency` is the
    /// [normalized latency](super::latency_class::LatencyClass::normalized_latency): above 1.0, the
    /// call is late. `usual` describes the call's class on an uncongested upstream.
    pub(super) fn observe(&mut self, latency: f64, usual: UsualLatency) -> bool {
        let tolerated = usual.late_share.clamp(TOLERATED_SHARE, MAX_USUAL_SHARE);
        let breach = tolerated + BREACH_MARGIN;
        let ratio = if latency > 1.0 { breach / tolerated } else { (1.0 - breach) / (1.0 - tolerated) };
        self.log_likelihood = (self.log_likelihood + ratio.ln()).max(0.0);
        let excess = latency.clamp(0.0, MAX_NORMALIZED_LATENCY) - usual.normalized_latency;
        if self.judged == 0 {
            self.mean = excess;
        }
        self.mean += MEAN_WEIGHT * (excess - self.mean);
        self.judged = self.judged.saturating_add(1);
        self.log_likelihood >= CUT_THRESHOLD
    }

    /// Adds an overload response or a timeout: half of the evidence that a cut needs. Returns
    /// `true` if the evidence suffices for a cut.
    pub(super) fn on_overload(&mut self) -> bool {
        self.log_likelihood += CUT_THRESHOLD / 2.0;
        self.log_likelihood >= CUT_THRESHOLD
    }

    /// Returns `true` if the mean normalized latency is at most [`HEADROOM`] above the usual one.
    pub(super) fn has_headroom(&self) -> bool {
        self.mean <= HEADROOM
    }

    /// Returns the evidence as a fraction of what a cut needs, from 0 to 1.
    pub(super) fn fraction(&self) -> f64 {
        (self.log_likelihood / CUT_THRESHOLD).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    /// Returns after how many calls a breach is detected if every `of`-th call is late.
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
        assert_eq!(until(6, 0.17, 1_000_000), None, "the usual share is no breach");
        assert!(until(2, 0.17, 100).is_some(), "but a larger share is");
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
