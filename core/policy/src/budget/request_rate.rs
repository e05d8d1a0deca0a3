//! Request rate limiter with refunds and debt.
//!
//! # Algorithm
//!
//! The limiter is the generic cell rate algorithm (GCRA). One request accrues per period, up to the
//! burst. The state is a single time: the time at which the whole burst will have accrued. Three
//! operations are added:
//!
//! - A check for availability reserves the request that it grants. Further checks grant the same
//!   request until it is taken. A refunded request is reserved as well. Reserved and accrued
//!   requests together never exceed the burst.
//! - A request that is taken although none is available becomes debt. The debt is stored as a time,
//!   and requests that accrue until then are discarded.
//! - A change of the rate creates a new limiter that starts with the level of the old one.

use std::time::{Duration, Instant};

use tidegate_share::rates::{MAX_DELAY, after};

/// A limit of requests per second with a burst, refunds and debt.
#[derive(Debug)]
pub(super) struct RequestRate {
    /// Time in which one request accrues.
    period: Duration,
    /// Maximum number of requests that may be sent without a pause, at least 1.
    pub(super) burst: u32,
    /// When the whole burst has accrued if nothing is taken before.
    full_at: Instant,
    /// Number of requests that were granted by a check or refunded, and not taken since.
    reserved: u32,
    /// Time until which all accruing requests repay debt. `None` without debt.
    debt_until: Option<Instant>,
}

impl RequestRate {
    /// Creates a limit of `rate` requests per second. The requests that accrue within `burst`, at
    /// least one, may be sent without a pause and are available from the start.
    pub(super) fn new(rate: f64, burst: Duration, now: Instant) -> Self {
        // The period is between 1 ns and about 30 years.
        let period = Duration::from_nanos((1e9 / rate).ceil().clamp(1.0, 1e18) as u64);
        let burst = (rate * burst.as_secs_f64()).clamp(1.0, 1e6);
        // The time to accrue the whole burst must not overflow either.
        let burst = burst.min(1e19 / period.as_nanos() as f64).max(1.0) as u32;
        Self { period, burst, full_at: now, reserved: 0, debt_until: None }
    }

    /// Returns a limit with another rate and burst. The available requests, up to the new burst,
    /// and the debt are kept.
    pub(super) fn with_rate(&self, rate: f64, burst: Duration, now: Instant) -> Self {
        let mut new = Self::new(rate, burst, now);
        let level = self.level(now);
        // The casts saturate.
        new.spend(now, new.burst - (level as u32).min(new.burst));
        if level < 0.0 {
            new.debt_until = Some(after(now, -level * new.period.as_secs_f64()));
        }
        new
    }

    /// Returns `true` if one request may be sent now.
    pub(super) fn is_available(&mut self, now: Instant) -> bool {
        self.reserve(now).is_none()
    }

    /// Returns the earliest time, not before `now`, at which one request may be sent.
    pub(super) fn ready_at(&mut self, now: Instant) -> Instant {
        self.reserve(now).unwrap_or(now)
    }

    /// Takes one request. If none is available, the request becomes debt.
    pub(super) fn take(&mut self, now: Instant) {
        match (self.reserve(now), self.debt_until) {
            (None, _) => self.reserved = self.reserved.saturating_sub(1),
            (Some(next), None) => self.debt_until = Some(next),
            (Some(_), Some(until)) => self.debt_until = Some(after(until, self.period.as_secs_f64())),
        }
    }

    /// Makes a request that was taken and never sent available again, or reduces the debt by it.
    pub(super) fn refund(&mut self, now: Instant) {
        let debt_until = self.debt_until.and_then(|until| until.checked_sub(self.period));
        self.debt_until = debt_until.filter(|until| *until > now);
        if self.debt_until.is_none() {
            self.reserved = self.reserved.saturating_add(1);
        }
        self.trim_reserved(now);
    }

    /// Returns the number of requests that may be sent now. Negative if there is debt.
    pub(super) fn level(&self, now: Instant) -> f64 {
        match self.debt_until.map(|until| until.saturating_duration_since(now)) {
            Some(debt) if !debt.is_zero() => -(debt.as_secs_f64() / self.period.as_secs_f64()).round(),
            _ => f64::from(self.grantable(now).saturating_add(self.reserved).min(self.burst)),
        }
    }

    /// Reserves one request, unless one is reserved already. Returns `None` on success, otherwise
    /// the time at which a request becomes available.
    fn reserve(&mut self, now: Instant) -> Option<Instant> {
        if let Some(until) = self.debt_until {
            if now < until {
                return Some(after(until, self.period.as_secs_f64()));
            }
            self.spend(until, self.grantable(until));
            self.debt_until = None;
        }
        self.trim_reserved(now);
        if self.reserved == 0 {
            let until_full = self.full_at.saturating_duration_since(now);
            let wait = until_full.saturating_sub(self.period * (self.burst - 1));
            if !wait.is_zero() {
                return Some(after(now, wait.as_secs_f64()));
            }
            self.spend(now, 1);
            self.reserved = 1;
        }
        None
    }

    /// Takes `count` of the accrued requests.
    fn spend(&mut self, now: Instant, count: u32) {
        let from = self.full_at.max(now);
        let took = self.period.checked_mul(count).unwrap_or(MAX_DELAY).min(MAX_DELAY);
        self.full_at = from.checked_add(took).unwrap_or(from);
    }

    /// Returns the number of accrued requests, not including reserved ones.
    fn grantable(&self, now: Instant) -> u32 {
        let missing = self.full_at.saturating_duration_since(now).as_nanos();
        let missing = missing.div_ceil(self.period.as_nanos().max(1));
        self.burst - u32::try_from(missing).unwrap_or(u32::MAX).min(self.burst)
    }

    /// Drops reserved requests until the reserved and the accrued ones together do not exceed the
    /// burst.
    fn trim_reserved(&mut self, now: Instant) {
        self.reserved = self.reserved.min(self.burst - self.grantable(now));
    }
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
        requests.refund(now);
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
                    1 => if let Some(at) = went.pop() { let _: u64 = at; requests.refund(now); },
                    2 => requests = requests.with_rate(rate, burst, now),
                    _ => if requests.is_available(now) { requests.take(now); went.push(at); },
                }
                prop_assert!(requests.reserved <= requests.burst);
                let depth = (rate * burst.as_secs_f64()).max(1.0);
                for (n, then) in went.iter().rev().enumerate() {
                    let most = rate * (at - then) as f64 / 1e3 + depth + 1.0;
                    prop_assert!((n + 1) as f64 <= most + 1e-6, "{} in {} ms, of {most}", n + 1, at - then);
                }
            }
        }
    }
}
