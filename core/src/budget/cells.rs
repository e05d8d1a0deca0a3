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

use super::bucket::{NEVER, after};

type Limiter = RateLimiter<NotKeyed, InMemoryState, Told, NoOpMiddleware<Nanos>>;

/// A clock that shows what it was last told: policies have no clock of their own.
#[derive(Debug, Default)]
struct Told(AtomicU64);

impl Clock for Told {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(self.0.load(Ordering::Relaxed))
    }
}

/// A rate of requests.
#[derive(Debug)]
pub(super) struct Cells {
    limiter: Limiter,
    origin: Instant,
    /// The time that one cell takes to come.
    period: Duration,
    burst: u32,
    /// Cells that governor granted and nobody has used.
    hand: u32,
    /// Until when every cell that comes is owed.
    owed: Option<Instant>,
    /// When governor will have the whole burst again, if nobody asks before: what it has now follows from that to the nanosecond, while the whole cells that it
    /// says are left hide what has come of the next.
    full_at: Instant,
}

impl Cells {
    /// `rate` requests a second, `burst` of that rate at once (at least one request).
    pub(super) fn new(rate: f64, burst: Duration, now: Instant) -> Self {
        // Between a thousand million a second and one in thirty years: governor counts nanoseconds in 64 bits.
        let period = Duration::from_nanos((1e9 / rate).ceil().clamp(1.0, 1e18) as u64);
        let burst = (rate * burst.as_secs_f64()).clamp(1.0, 1e6);
        // What a whole burst takes to come must fit into 64 bits as well.
        let burst = burst.min(1e19 / period.as_nanos() as f64).max(1.0) as u32;
        let cells = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(period).unwrap_or(Quota::per_second(NonZeroU32::MIN));
        let limiter = RateLimiter::direct_with_clock(quota.allow_burst(cells), Told::default());
        Self { limiter, origin: now, period, burst, hand: 0, owed: None, full_at: now }
    }

    /// The same at another rate: with what was saved, as far as it fits, and what was owed.
    pub(super) fn rebuilt(&self, rate: f64, burst: Duration, now: Instant) -> Self {
        let mut new = Self::new(rate, burst, now);
        let level = self.level(now);
        // The casts saturate.
        new.drain(new.burst - (level as u32).min(new.burst), now);
        if level < 0.0 {
            new.owed = Some(after(now, -level * new.period.as_secs_f64()));
        }
        new
    }

    /// Whether a request may go now.
    pub(super) fn open(&mut self, now: Instant) -> bool {
        self.pay(now).is_none()
    }

    /// When one may: `now`, or later.
    pub(super) fn ready_at(&mut self, now: Instant) -> Instant {
        self.pay(now).unwrap_or(now)
    }

    /// Takes one, without a cell if need be.
    pub(super) fn take(&mut self, now: Instant) {
        match (self.pay(now), self.owed) {
            (None, _) => self.hand = self.hand.saturating_sub(1),
            (Some(next), None) => self.owed = Some(next),
            (Some(_), Some(until)) => self.owed = Some(after(until, self.period.as_secs_f64())),
        }
    }

    /// One was taken and not used.
    pub(super) fn give(&mut self, now: Instant) {
        self.owed = match self.owed.and_then(|until| until.checked_sub(self.period)) {
            Some(until) if until > now => Some(until),
            _ => {
                self.hand = self.hand.saturating_add(1);
                None
            }
        };
        self.trim(now);
    }

    /// What may go at once now; below zero what is owed.
    pub(super) fn level(&self, now: Instant) -> f64 {
        match self.owed.map(|until| until.saturating_duration_since(now)) {
            Some(owed) if !owed.is_zero() => -(owed.as_secs_f64() / self.period.as_secs_f64()).round(),
            _ => f64::from(self.granted(now).saturating_add(self.hand).min(self.burst)),
        }
    }

    /// How much may go at once.
    pub(super) fn burst(&self) -> u32 {
        self.burst
    }

    /// Sees to it that nothing is owed and a cell is in hand: `None`, or when that is possible.
    fn pay(&mut self, now: Instant) -> Option<Instant> {
        if let Some(until) = self.owed {
            if now < until {
                return Some(after(until, self.period.as_secs_f64()));
            }
            self.drain(self.granted(until), until);
            self.owed = None;
        }
        self.trim(now);
        if self.hand > 0 {
            return None;
        }
        self.tell(now);
        match self.limiter.check() {
            Ok(()) => {
                self.spent(1);
                self.hand = 1;
                None
            }
            Err(not_until) => {
                Some(after(now, not_until.wait_time_from(self.limiter.clock().now()).as_secs_f64()))
            }
        }
    }

    fn tell(&self, now: Instant) {
        let past = now.saturating_duration_since(self.origin).as_nanos().min(u128::from(u64::MAX / 4));
        self.limiter.clock().0.fetch_max(past as u64, Ordering::Relaxed);
    }

    /// Lets so many cells go.
    fn drain(&mut self, cells: u32, now: Instant) {
        self.tell(now);
        if let Some(cells) = NonZeroU32::new(cells)
            && let Ok(Ok(())) = self.limiter.check_n(cells)
        {
            self.spent(cells.get());
        }
    }

    /// What governor would grant now.
    fn granted(&self, now: Instant) -> u32 {
        let missing = self.full_at.saturating_duration_since(now).as_nanos();
        let missing = missing.div_ceil(self.period.as_nanos().max(1));
        self.burst - u32::try_from(missing).unwrap_or(u32::MAX).min(self.burst)
    }

    /// Governor granted so many, at the moment that it was last told.
    fn spent(&mut self, cells: u32) {
        let told = Duration::from_nanos(self.limiter.clock().0.load(Ordering::Relaxed));
        let from = self.origin.checked_add(told).map_or(self.full_at, |told| told.max(self.full_at));
        let took = self.period.checked_mul(cells).unwrap_or(NEVER);
        self.full_at = from.checked_add(took.min(NEVER)).unwrap_or(from);
    }

    /// Cells that have come meanwhile take the place of those in hand.
    fn trim(&mut self, now: Instant) {
        self.hand = self.hand.min(self.burst - self.granted(now));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::epoch;

    #[test]
    fn asking_spends_nothing_and_a_refund_can_be_had_again() {
        let now = epoch();
        let mut cells = Cells::new(1.0, Duration::from_secs(3), now);
        (0..100).for_each(|_| assert!(cells.open(now)));
        let went = (0..100)
            .filter(|_| {
                cells.open(now) && {
                    cells.take(now);
                    true
                }
            })
            .count();
        assert_eq!(went, 3);
        cells.give(now);
        assert!(cells.open(now));
        cells.take(now);
        let then = cells.ready_at(now);
        assert!(!cells.open(then - Duration::from_millis(1)) && cells.open(then));
        assert_eq!(then.duration_since(now).as_millis(), 1_000);
    }

    #[test]
    fn what_went_without_a_cell_is_paid_first() {
        let now = epoch();
        let mut cells = Cells::new(10.0, Duration::ZERO, now);
        (0..11).for_each(|_| cells.take(now));
        assert_eq!(cells.level(now), -10.0);
        let then = cells.ready_at(now);
        assert_eq!(then.duration_since(now).as_millis(), 1_100);
        assert!(!cells.open(then - Duration::from_millis(2)) && cells.open(then));
    }

    #[test]
    fn impossible_rates_do_no_harm() {
        let now = epoch();
        for rate in [0.0, 1e-300, 1e300, f64::INFINITY, f64::NAN] {
            for burst in [Duration::ZERO, Duration::MAX] {
                let mut cells = Cells::new(rate, burst, now).rebuilt(rate, burst, now);
                (0..3).for_each(|_| cells.take(now));
                assert!(cells.ready_at(now) >= now);
                let _ = cells.open(now + Duration::from_secs(1 << 33));
            }
        }
    }

    proptest! {
        /// Over any stretch of any history of asking, taking, refunds and rebuilding: `rate * t + burst`.
        #[test]
        fn never_more_than_the_rate(rate in 0.1f64..50.0, burst in 100u64..10_000, steps in prop::collection::vec((0u64..2_000, 0u8..6), 1..300)) {
            let start = epoch();
            let burst = Duration::from_millis(burst);
            let mut cells = Cells::new(rate, burst, start);
            let (mut at, mut went) = (0u64, Vec::new());
            for (step, what) in steps {
                at += step;
                let now = start + Duration::from_millis(at);
                match what {
                    0 => { let _ = cells.open(now); }
                    1 => if let Some(at) = went.pop() { let _: u64 = at; cells.give(now); },
                    2 => cells = cells.rebuilt(rate, burst, now),
                    _ => if cells.open(now) { cells.take(now); went.push(at); },
                }
                prop_assert!(cells.hand <= cells.burst);
                let depth = (rate * burst.as_secs_f64()).max(1.0);
                for (n, then) in went.iter().rev().enumerate() {
                    let most = rate * (at - then) as f64 / 1e3 + depth + 1.0;
                    prop_assert!((n + 1) as f64 <= most + 1e-6, "{} in {} ms, of {most}", n + 1, at - then);
                }
            }
        }
    }
}
