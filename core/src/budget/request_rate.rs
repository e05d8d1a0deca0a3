//! Requests over time, on `governor`.
//!
//! governor's limiter answers one question, "may one go now?", and a yes is one cell spent: it cannot be asked without spending, and takes
//! nothing back. So a cell that was asked for and not used is kept *in hand*, and that is also where a refund goes. Cells in hand and those
//! that governor would still grant are never more than the burst together, so neither asking nor refunds raise the rate.
//!
//! Nor does it lend: what went without a cell is owed as time, and what governor saves up until that is over is spent on it.
//!
//! A quota is fixed for a limiter's life: another rate is another limiter, which begins with what the last one still had.

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

/// A clock that shows what it was last told: policies have no clock of their own.
#[derive(Debug, Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(self.0.load(Ordering::Relaxed))
    }
}

/// A rate of requests.
#[derive(Debug)]
pub(super) struct RequestRate {
    limiter: Limiter,
    origin: Instant,
    /// The time that one cell takes to come.
    period: Duration,
    burst: u32,
    /// Cells that governor granted and nobody has used.
    reserved: u32,
    /// Until when every cell that comes is owed.
    debt_until: Option<Instant>,
    /// When governor will have the whole burst again, if nobody asks before: what it has now follows from that to the nanosecond, while the whole cells that it
    /// says are left hide what has come of the next.
    full_at: Instant,
}

impl RequestRate {
    /// `rate` requests a second, `burst` of that rate at once (at least one request).
    pub(super) fn new(rate: f64, burst: Duration, now: Instant) -> Self {
        // Between a thousand million a second and one in thirty years: governor counts nanoseconds in 64 bits.
        let period = Duration::from_nanos((1e9 / rate).ceil().clamp(1.0, 1e18) as u64);
        let burst = (rate * burst.as_secs_f64()).clamp(1.0, 1e6);
        // What a whole burst takes to come must fit into 64 bits as well.
        let burst = burst.min(1e19 / period.as_nanos() as f64).max(1.0) as u32;
        let cells = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(period).unwrap_or(Quota::per_second(NonZeroU32::MIN));
        let limiter = RateLimiter::direct_with_clock(quota.allow_burst(cells), ManualClock::default());
        Self { limiter, origin: now, period, burst, reserved: 0, debt_until: None, full_at: now }
    }

    /// The same at another rate: with what was saved, as far as it fits, and what was owed.
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

    /// Whether a request may go now.
    pub(super) fn is_available(&mut self, now: Instant) -> bool {
        self.reserve(now).is_none()
    }

    /// When one may: `now`, or later.
    pub(super) fn ready_at(&mut self, now: Instant) -> Instant {
        self.reserve(now).unwrap_or(now)
    }

    /// Takes one, without a cell if need be.
    pub(super) fn take(&mut self, now: Instant) {
        match (self.reserve(now), self.debt_until) {
            (None, _) => self.reserved = self.reserved.saturating_sub(1),
            (Some(next), None) => self.debt_until = Some(next),
            (Some(_), Some(until)) => self.debt_until = Some(after(until, self.period.as_secs_f64())),
        }
    }

    /// One was taken and not used.
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

    /// What may go at once now; below zero what is owed.
    pub(super) fn level(&self, now: Instant) -> f64 {
        match self.debt_until.map(|until| until.saturating_duration_since(now)) {
            Some(debt) if !debt.is_zero() => -(debt.as_secs_f64() / self.period.as_secs_f64()).round(),
            _ => f64::from(self.grantable(now).saturating_add(self.reserved).min(self.burst)),
        }
    }

    /// How much may go at once.
    pub(super) fn burst(&self) -> u32 {
        self.burst
    }

    /// Sees to it that nothing is owed and a cell is in hand: `None`, or when that is possible.
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

    fn set_clock(&self, now: Instant) {
        let past = now.saturating_duration_since(self.origin).as_nanos().min(u128::from(u64::MAX / 4));
        self.limiter.clock().0.fetch_max(past as u64, Ordering::Relaxed);
    }

    /// Lets so many cells go.
    fn drain(&mut self, count: u32, now: Instant) {
        self.set_clock(now);
        if let Some(count) = NonZeroU32::new(count)
            && let Ok(Ok(())) = self.limiter.check_n(count)
        {
            self.on_granted(count.get());
        }
    }

    /// What governor would grant now.
    fn grantable(&self, now: Instant) -> u32 {
        let missing = self.full_at.saturating_duration_since(now).as_nanos();
        let missing = missing.div_ceil(self.period.as_nanos().max(1));
        self.burst - u32::try_from(missing).unwrap_or(u32::MAX).min(self.burst)
    }

    /// Governor granted so many, at the moment that it was last told.
    fn on_granted(&mut self, count: u32) {
        let now = Duration::from_nanos(self.limiter.clock().0.load(Ordering::Relaxed));
        let from = self.origin.checked_add(now).map_or(self.full_at, |now| now.max(self.full_at));
        let took = self.period.checked_mul(count).unwrap_or(NEVER);
        self.full_at = from.checked_add(took.min(NEVER)).unwrap_or(from);
    }

    /// Cells that have come meanwhile take the place of those in hand.
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
        /// Over any stretch of any history of asking, taking, refunds and rebuilding: `rate * t + burst`.
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
