//! Request rate limiter with refunds and debt.
//!
//! # Algorithm
//!
//! The limiter is the generic cell rate algorithm (GCRA). One request accrues per period, up to the
//! burst. The state is a single time: the time at which the whole burst will have accrued. A
//! request moves it one period later. Three operations are added:
//!
//! - A refund moves the time one period earlier.
//! - A request that is taken although none is available becomes debt: the time is then further
//!   ahead than the whole burst takes to accrue.
//! - A change of the rate creates a new limiter in which the same number of requests, including the
//!   accrued part of the next one, has accrued.

use std::time::{Duration, Instant};

use tidegate_share::rates::MAX_DELAY;

/// A limit of requests per second with a burst, refunds and debt.
#[derive(Debug)]
pub(super) struct RequestRate {
    /// Time in which one request accrues.
    period: Duration,
    /// Maximum number of requests that may be sent without a pause, at least 1.
    pub(super) burst: u32,
    /// When the whole burst has accrued if nothing is taken before.
    full_at: Instant,
}

impl RequestRate {
    /// Creates a limit of `rate` requests per second. The requests that accrue within `burst`, at
    /// least one, may be sent without a pause and are available from the start.
    pub(super) fn new(rate: f64, burst: Duration, now: Instant) -> Self {
        // The period is between 1 ns and about 30 years.
        let period = Duration::from_nanos(((1e9 / rate).ceil().clamp(1.0, 1e18) as u64).max(1));
        let burst = (rate * burst.as_secs_f64()).clamp(1.0, 1e6);
        // The time to accrue the whole burst must not overflow either.
        let burst = burst.min(1e19 / period.as_nanos() as f64).max(1.0) as u32;
        Self { period, burst, full_at: now }
    }

    /// Returns a limit with another rate and burst. The available requests, up to the new burst,
    /// the accrued part of the next one, and the debt are kept.
    pub(super) fn with_rate(&self, rate: f64, burst: Duration, now: Instant) -> Self {
        let new = Self::new(rate, burst, now);
        let [old_period, new_period] = [self.period.as_nanos(), new.period.as_nanos()];
        // In nanoseconds of the new limit, rounded up.
        let missing = (self.missing(now).as_nanos() * new_period).div_ceil(old_period);
        let missing = (missing + u128::from(new.burst) * new_period)
            .saturating_sub(u128::from(self.burst) * new_period);
        let missing = u64::try_from(missing).map_or(MAX_DELAY, Duration::from_nanos);
        Self { full_at: later(now, missing), ..new }
    }

    /// Returns `true` if one request may be sent now.
    pub(super) fn is_available(&self, now: Instant) -> bool {
        self.level(now) >= 1.0
    }

    /// Returns the earliest time, not before `now`, at which one request may be sent.
    pub(super) fn ready_at(&self, now: Instant) -> Instant {
        let accrues = self.period.saturating_mul(self.burst - 1);
        later(now, self.missing(now).saturating_sub(accrues))
    }

    /// Takes one request. If none is available, the request becomes debt.
    pub(super) fn take(&mut self, now: Instant) {
        self.full_at = later(self.full_at.max(now), self.period);
    }

    /// Makes a request that was taken and never sent available again, or reduces the debt by it.
    pub(super) fn refund(&mut self) {
        self.full_at = self.full_at.checked_sub(self.period).unwrap_or(self.full_at);
    }

    /// Returns the number of requests that may be sent now. Negative if there is debt.
    pub(super) fn level(&self, now: Instant) -> f64 {
        let missing = self.missing(now).as_nanos().div_ceil(self.period.as_nanos());
        f64::from(self.burst) - missing as f64
    }

    /// Returns the time until the whole burst has accrued.
    fn missing(&self, now: Instant) -> Duration {
        self.full_at.saturating_duration_since(now)
    }
}

/// Returns the time `wait` after `now`, at most [`MAX_DELAY`] after it.
fn later(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait.min(MAX_DELAY)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::epoch;

    #[test]
    fn checking_is_free_and_refunds_are_reusable() {
        let now = epoch();
        let mut requests = RequestRate::new(1.0, Duration::from_secs(3), now);
        (0..100).for_each(|_| assert!(requests.is_available(now)));
        let went = (0..100)
            .filter(|_| {
                requests.is_available(now) && {
                    requests.take(now);
                    true
                }
            })
            .count();
        assert_eq!(went, 3);
        requests.refund();
        assert!(requests.is_available(now));
        requests.take(now);
        let then = requests.ready_at(now);
        assert!(!requests.is_available(then - Duration::from_millis(1)) && requests.is_available(then));
        assert_eq!(then.duration_since(now).as_millis(), 1_000);
    }

    #[test]
    fn debt_is_repaid_before_next_request() {
        let now = epoch();
        let mut requests = RequestRate::new(10.0, Duration::ZERO, now);
        (0..11).for_each(|_| requests.take(now));
        assert_eq!(requests.level(now), -10.0);
        let then = requests.ready_at(now);
        assert_eq!(then.duration_since(now).as_millis(), 1_100);
        assert!(!requests.is_available(then - Duration::from_millis(2)) && requests.is_available(then));
    }

    #[test]
    fn new_rate_keeps_accrued_part_of_request() {
        let start = epoch();
        let mut requests = RequestRate::new(1.0, Duration::ZERO, start);
        requests.take(start);
        let now = start + Duration::from_millis(750);
        let faster = requests.with_rate(2.0, Duration::ZERO, now);
        assert_eq!(faster.ready_at(now), now + Duration::from_millis(125));
        requests.take(now);
        let owing = requests.with_rate(2.0, Duration::from_secs(3), now);
        assert_eq!(owing.ready_at(now), now + Duration::from_millis(625));
        assert_eq!(owing.level(now), -1.0);
    }

    #[test]
    fn extreme_rates_do_not_panic() {
        let now = epoch();
        for rate in [0.0, 1e-300, 1e300, f64::INFINITY, f64::NAN] {
            for burst in [Duration::ZERO, Duration::MAX] {
                let mut requests = RequestRate::new(rate, burst, now).with_rate(rate, burst, now);
                (0..3).for_each(|_| requests.take(now));
                assert!(requests.ready_at(now) >= now);
                let _ = requests.is_available(now + Duration::from_secs(1 << 33));
            }
        }
    }

    proptest! {
        /// Over any part of any history of checks, refunds and rate changes, requests stay within
        /// `rate * t + burst`.
        #[test]
        fn charges_never_exceed_rate_and_burst(rate in 0.1f64..50.0, burst in 100u64..10_000, steps in prop::collection::vec((0u64..2_000, 0u8..6), 1..300)) {
            let start = epoch();
            let burst = Duration::from_millis(burst);
            let mut requests = RequestRate::new(rate, burst, start);
            let (mut at, mut went) = (0u64, Vec::new());
            for (step, what) in steps {
                at += step;
                let now = start + Duration::from_millis(at);
                match what {
                    0 => { let _ = requests.is_available(now); }
                    1 => if let Some(at) = went.pop() { let _: u64 = at; requests.refund(); },
                    2 => requests = requests.with_rate(rate, burst, now),
                    _ => if requests.is_available(now) { requests.take(now); went.push(at); },
                }
                let depth = (rate * burst.as_secs_f64()).max(1.0);
                for (n, then) in went.iter().rev().enumerate() {
                    let most = rate * (at - then) as f64 / 1e3 + depth;
                    prop_assert!((n + 1) as f64 <= most + 1e-6, "{} in {} ms, of {most}", n + 1, at - then);
                }
            }
        }
    }
}
