//! Evidence from the latencies of calls: decides whether the limit must be cut because too many
//! calls are late, and whether it may be raised because calls have *headroom*.
//!
//! # Algorithm
//!
//! Page's CUSUM test (Biometrika, 1954) compares two assumptions about the share of late calls: the
//! tolerated share, and a larger share, the *breach*. Each call adds the logarithm of the ratio of
//! the two likelihoods to a sum that does not fall below 0. The limit is cut when the sum reaches
//! [`CUT_THRESHOLD`]. Three late calls in a row suffice, unless later calls have overtaken them.
//! One late call in a hundred never does, nor does a share that the class also has on an
//! uncongested upstream (for example because some prompts are cached).
//!
//! Calls have headroom while their mean normalized latency exceeds the usual one by at most
//! [`HEADROOM`]. Between headroom and a breach lies a dead band in which the limit stays as it is.

use std::time::Instant;

/// Tolerated share of late calls, unless the usual share of the latency class is larger.
const TOLERATED_SHARE: f64 = 0.01;
/// Difference between the share of late calls in a breach and the tolerated share.
const BREACH_MARGIN: f64 = 0.14;
/// Largest share of late calls that is tolerated because it is usual for the latency class.
const MAX_USUAL_SHARE: f64 = 0.5;
/// Tolerated share of late calls that were overtaken, unless the usual share is larger.
const TOLERATED_OVERTAKEN_SHARE: f64 = 0.25;
/// Value of `CongestionEvidence::log_likelihood` at which the limit is cut. Unless late calls are
/// usual for the class, each adds `ln(0.15 / 0.01) = 2.7`, so three late calls in a row reach it.
const CUT_THRESHOLD: f64 = 6.0;
/// Maximum excess of the mean normalized latency over the usual one at which the limit may be
/// raised. Normalized latency is 0.0 at the baseline of a class and 1.0 at its threshold.
const HEADROOM: f64 = 0.1;
/// Weight of each new call in the exponentially decaying mean of the normalized latency.
const MEAN_WEIGHT: f64 = 0.2;
/// Number of mean deviations of the normalized latency of single calls that are added to
/// [`HEADROOM`], because the mean of few calls deviates from the usual one by chance.
const MEAN_DEVIATIONS: f64 = 0.7;
/// Upper bound on the normalized latency with which one call enters the mean.
const MAX_NORMALIZED_LATENCY: f64 = 2.0;

/// The statistics that a latency class has on an uncongested upstream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsualLatency {
    /// Share of late calls, from 0 to 1.
    pub(super) late_share: f64,
    /// Mean absolute deviation of the normalized latency.
    pub(super) deviation: f64,
}

impl UsualLatency {
    /// Returns the mean normalized latency, if calls faster than the baseline count as 0: only half
    /// of the deviation is above the baseline.
    fn mean(self) -> f64 {
        0.5 * self.deviation
    }
}

/// Evidence for cutting or raising the limit, from the calls sent since the limit last changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct CongestionEvidence {
    /// Calls sent before this time are not counted, because they were sent under the previous
    /// limit.
    since: Instant,
    /// Sum of the logarithms of the likelihood ratios of the calls, at least 0. Late calls increase
    /// it, and other calls decrease it.
    log_likelihood: f64,
    /// Decaying mean of the differences between the normalized latency of a call and the usual one
    /// of its class.
    mean: f64,
    /// Number of calls added by [`CongestionEvidence::observe`].
    pub(super) judged: u32,
}

impl CongestionEvidence {
    /// Creates empty evidence, to which only calls sent at or after `since` may be added.
    pub(super) fn new(since: Instant) -> Self {
        Self { since, log_likelihood: 0.0, mean: 0.0, judged: 0 }
    }

    /// Returns `true` if a call sent at `sent_at` counts as evidence, because it was not sent under
    /// the previous limit.
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
        let excess = latency.clamp(0.0, MAX_NORMALIZED_LATENCY) - usual.mean();
        if self.judged == 0 {
            self.mean = excess;
        }
        self.mean += MEAN_WEIGHT * (excess - self.mean);
        self.judged = self.judged.saturating_add(1);
        self.log_likelihood >= CUT_THRESHOLD
    }

    /// Adds a late call that later calls have overtaken. Returns `true` if the evidence suffices
    /// for a cut.
    ///
    /// A single queue does not delay such calls, but one of several queues may. The tolerated share
    /// is therefore at least [`TOLERATED_OVERTAKEN_SHARE`].
    pub(super) fn observe_overtaken(&mut self, usual: UsualLatency) -> bool {
        let tolerated = usual.late_share.clamp(TOLERATED_OVERTAKEN_SHARE, MAX_USUAL_SHARE);
        self.log_likelihood += ((tolerated + BREACH_MARGIN) / tolerated).ln();
        self.log_likelihood >= CUT_THRESHOLD
    }

    /// Adds an overload response or a timeout, which counts as half of the evidence that a cut
    /// needs. Returns `true` if the evidence suffices for a cut.
    pub(super) fn on_overload(&mut self) -> bool {
        self.log_likelihood += CUT_THRESHOLD / 2.0;
        self.log_likelihood >= CUT_THRESHOLD
    }

    /// Returns `true` if the mean normalized latency is at most [`HEADROOM`] above the usual one,
    /// plus what chance explains. `usual` describes the class of the last call.
    pub(super) fn has_headroom(&self, usual: UsualLatency) -> bool {
        self.mean <= HEADROOM + MEAN_DEVIATIONS * usual.deviation
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

    /// Returns the number of calls after which a breach is found if every `of`-th call is late and
    /// `usual` is the usual share of late calls. Returns `None` if `most` calls do not suffice.
    fn until(of: u32, usual: f64, most: u32) -> Option<u32> {
        let mut evidence = CongestionEvidence::new(epoch());
        (1..=most).find(|n| {
            evidence.observe(
                if n % of == 0 { 1.5 } else { 0.1 },
                UsualLatency { late_share: usual, deviation: 0.0 },
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
    fn fifth_of_overtaken_calls_is_tolerated_and_half_is_not() {
        let until = |of: u32| {
            let mut evidence = CongestionEvidence::new(epoch());
            (1..=10_000_u32).find(|n| {
                if n % of == 0 {
                    evidence.observe_overtaken(UsualLatency::default())
                } else {
                    evidence.observe(0.1, UsualLatency::default())
                }
            })
        };
        assert_eq!(until(5), None);
        assert!(until(2).is_some());
    }

    #[test]
    fn headroom_is_lost_before_calls_are_late() {
        let mut evidence = CongestionEvidence::new(epoch());
        (0..50).for_each(|_| _ = evidence.observe(0.1, UsualLatency::default()));
        assert!(evidence.has_headroom(UsualLatency::default()));
        (0..50).for_each(|_| _ = evidence.observe(0.6, UsualLatency::default()));
        assert!(!evidence.has_headroom(UsualLatency::default()));
        assert_eq!(evidence.fraction(), 0.0);
    }

    #[test]
    fn only_calls_sent_after_the_change_are_judged() {
        let change = epoch();
        let evidence = CongestionEvidence::new(change);
        assert!(evidence.applies_to(change));
        assert!(!evidence.applies_to(change - std::time::Duration::from_nanos(1)));
    }
}
