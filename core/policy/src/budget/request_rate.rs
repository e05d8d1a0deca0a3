//! Request rate limiter with refunds and debt, built on `governor`.
//!
//! # Rationale
//!
//! `governor` checks a cell and spends it in one step, does not take cells back and does not lend.
//! This module adds the three operations:
//!
//! - A cell that was checked but not used is kept as *reserved*. Refunds are reserved cells as
//!   well. Reserved and grantable cells together never exceed the burst, so neither checks nor
//!   refunds raise the rate.
//! - A request that is taken without a cell is recorded as debt, in time. The cells that `governor`
//!   accrues until the debt ends are discarded.
//! - The quota of a `governor` limiter is fixed. A change of the rate creates a new limiter that
//!   starts with the level of the old one.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use super::token_bucket::{NEVER, after};

type Limiter = RateLimiter<NotKeyed, InMemoryState, ManualClock, NoOpMiddleware<Nanos>>;

/// A clock that returns the time it was last set to, because policies take time as an argument.
#[derive(Debug, Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(self.0.load(Ordering::Relaxed))
    }
}

/// A limiter of requests per second, with a burst.
#[derive(Debug)]
pub(super) struct RequestRate {
    limiter: Limiter,
    origin: Instant,
    /// Time until one more request is allowed.
    period: Duration,
    burst: u32,
    /// Cells that `governor` granted and no request has used.
    reserved: u32,
    /// Time until which all accruing cells repay debt.
    debt_until: Option<Instant>,
    /// Time at which `governor` holds the whole burst if nothing is taken before.
    ///
    /// The exact level follows from this time. The whole cells that `governor` reports would hide
    /// the fraction of the next cell.
    full_at: Instant,
}

impl RequestRate {
    /// Creates a limiter of `rate` requests per second that allows `burst` worth of that rate at
    /// once, at least one request.
    pub(super) fn new(rate: f64, burst: Duration, now: Instant) -> Self {
        // The period is between 1 ns and about 30 years, because `governor` counts nanoseconds in
        // 64 bits.
        let period = Duration::from_nanos((1e9 / rate).ceil().clamp(1.0, 1e18) as u64);
        let burst = (rate * burst.as_secs_f64()).clamp(1.0, 1e6);
        // The time to accrue the whole burst must fit into 64 bits as well.
        let burst = burst.min(1e19 / period.as_nanos() as f64).max(1.0) as u32;
        let cells = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(period).unwrap_or(Quota::per_second(NonZeroU32::MIN));
        let limiter = RateLimiter::direct_with_clock(quota.allow_burst(cells), ManualClock::default());
        Self { limiter, origin: now, period, burst, reserved: 0, debt_until: None, full_at: now }
    }

    /// Returns a limiter with another rate and burst, which keeps the saved requests that fit and
    /// the debt.
    pub(super) fn with_rate(&self, rate: f64, burst: Duration, now: Instant) -> Self {
        let mut new = Self::new(rate, burst, now);
        let level = self.level(now);
        // The casts saturate.
        new.drain(new.burst - (level as u32).min(new.burst), now);
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

    /// Takes one request, into debt if none is available.
    pub(super) fn take(&mut self, now: Instant) {
        match (self.reserve(now), self.debt_until) {
            (None, _) => self.reserved = self.reserved.saturating_sub(1),
            (Some(next), None) => self.debt_until = Some(next),
            (Some(_), Some(until)) => self.debt_until = Some(after(until, self.period.as_secs_f64())),
        }
    }

    /// Refunds one request that was taken but not sent.
    pub(super) fn refund(&mut self, now: Instant) {
        self.debt_until = match self.debt_until.and_then(|until| until.checked_sub(self.period)) {
            Some(until) if until > now => Some(until),
            _ => {
                self.reserved = self.reserved.saturating_add(1);
                None
            }
        };
        self.trim_reserved(now);
    }

    /// Returns the number of requests that may be sent at once. A negative level is debt.
    pub(super) fn level(&self, now: Instant) -> f64 {
        match self.debt_until.map(|until| until.saturating_duration_since(now)) {
            Some(debt) if !debt.is_zero() => -(debt.as_secs_f64() / self.period.as_secs_f64()).round(),
            _ => f64::from(self.grantable(now).saturating_add(self.reserved).min(self.burst)),
        }
    }

    /// Returns the maximum number of requests that may be sent at once.
    pub(super) fn burst(&self) -> u32 {
        self.burst
    }

    /// Repays debt and reserves one cell. Returns `None` on success, otherwise the time when it is
    /// possible.
    fn reserve(&mut self, now: Instant) -> Option<Instant> {
        if let Some(until) = self.debt_until {
            if now < until {
                return Some(after(until, self.period.as_secs_f64()));
            }
            self.drain(self.grantable(until), until);
            self.debt_until = None;
        }
        self.trim_reserved(now);
        if self.reserved > 0 {
            return None;
        }
        self.set_clock(now);
        match self.limiter.check() {
            Ok(()) => {
                self.on_granted(1);
                self.reserved = 1;
                None
            }
            Err(not_until) => {
                Some(after(now, not_until.wait_time_from(self.limiter.clock().now()).as_secs_f64()))
            }
        }
    }

    /// Moves the limiter's clock to `now`. The clock never moves backwards.
    fn set_clock(&self, now: Instant) {
        let past = now.saturating_duration_since(self.origin).as_nanos().min(u128::from(u64::MAX / 4));
        self.limiter.clock().0.fetch_max(past as u64, Ordering::Relaxed);
    }

    /// Discards `count` cells.
    fn drain(&mut self, count: u32, now: Instant) {
        self.set_clock(now);
        if let Some(count) = NonZeroU32::new(count)
            && let Ok(Ok(())) = self.limiter.check_n(count)
        {
            self.on_granted(count.get());
        }
    }

    /// Returns the number of cells that `governor` would grant now.
    fn grantable(&self, now: Instant) -> u32 {
        let missing = self.full_at.saturating_duration_since(now).as_nanos();
        let missing = missing.div_ceil(self.period.as_nanos().max(1));
        self.burst - u32::try_from(missing).unwrap_or(u32::MAX).min(self.burst)
    }

    /// Records that `governor` granted `count` cells at the time its clock shows.
    fn on_granted(&mut self, count: u32) {
        let now = Duration::from_nanos(self.limiter.clock().0.load(Ordering::Relaxed));
        let from = self.origin.checked_add(now).map_or(self.full_at, |now| now.max(self.full_at));
        let took = self.period.checked_mul(count).unwrap_or(NEVER);
        self.full_at = from.checked_add(took.min(NEVER)).unwrap_or(from);
    }

    /// Drops reserved cells that, together with the accrued ones, exceed the burst.
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
