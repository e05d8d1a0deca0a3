//! A token bucket that can go into debt.
//!
//! # Algorithm
//!
//! The bucket fills at a constant rate up to its depth. A call fits if `level >= min(cost, depth)`:
//! a call that costs more than the depth is admitted when the bucket is full, and leaves a debt.
//! The cost of a call is an estimate that is settled after the provider has counted the call, so an
//! estimate that was too low also becomes debt. Debt is repaid before the next call fits.
//!
//! # Guarantees
//!
//! Over any period `t`, the cost taken is at most `rate * t + depth`, plus one call.

use std::time::{Duration, Instant};

/// Maximum of every delay, about 34 years. Prevents overflow in the arithmetic with `Instant`.
pub const MAX_DELAY: Duration = Duration::from_secs(1 << 30);

/// A token bucket that can go into debt.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use tidegate_share::rates::TokenBucket;
///
/// let now = Instant::now();
/// // 600 tokens per minute, 6 seconds of which may be used at once.
/// let mut bucket = TokenBucket::per_minute(600, Duration::from_secs(6), now);
/// bucket.take(now, 100);
/// assert_eq!(bucket.debt(now), 40);
/// // The debt of 40 tokens and the next 10 tokens take 5 seconds at 10 tokens per second.
/// assert_eq!(bucket.ready_at(now, 10).duration_since(now).as_secs(), 5);
/// ```
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// Tokens per second, above zero.
    rate: f64,
    /// Maximum number of tokens in the bucket.
    depth: f64,
    /// Tokens in the bucket at the time `at`. Negative if there is debt.
    level: f64,
    at: Instant,
}

impl TokenBucket {
    /// Creates a full bucket that fills at `limit` tokens per minute (at least 1). Its depth is the
    /// number of tokens that accrue within `burst`, at least one.
    pub fn per_minute(limit: u64, burst: Duration, now: Instant) -> Self {
        Self::with_rate(limit.max(1) as f64 / 60.0, burst, now)
    }

    /// Creates a full bucket that fills at `rate` tokens per second. Its depth is the number of
    /// tokens that accrue within `burst`, at least one.
    pub fn with_rate(rate: f64, burst: Duration, now: Instant) -> Self {
        let depth = depth(rate, burst);
        Self { rate, depth, level: depth, at: now }
    }

    /// Returns the largest cost, in tokens, that fits now. `u64::MAX` if the bucket is full,
    /// because a full bucket admits any call. 0 if there is debt.
    pub fn available(&self, now: Instant) -> u64 {
        // The cast saturates, so debt yields 0.
        if self.is_full(now) { u64::MAX } else { self.level(now) as u64 }
    }

    /// Returns the earliest time, not before `now`, at which a call of `cost` tokens fits if
    /// nothing else is taken.
    pub fn ready_at(&self, now: Instant, cost: u64) -> Instant {
        let missing = (cost as f64).min(self.depth) - self.level(now);
        if cost == 0 || missing <= 0.0 { now } else { after(now, missing / self.rate) }
    }

    /// Takes `cost` tokens from the bucket. If it contains fewer, the missing tokens become debt.
    pub fn take(&mut self, now: Instant, cost: u64) {
        self.settle(now, 0, cost);
    }

    /// Puts back `cost` tokens that were taken before, but not more than fit into the bucket.
    pub fn refund(&mut self, now: Instant, cost: u64) {
        self.settle(now, cost, 0);
    }

    /// Replaces a charge of `charged` tokens by one of `cost`. The difference is refunded or
    /// becomes debt.
    pub fn settle(&mut self, now: Instant, charged: u64, cost: u64) {
        self.level = (self.level(now) + (charged as f64 - cost as f64)).min(self.depth);
        // A clock that moves backwards must not refill the bucket twice.
        self.at = self.at.max(now);
    }

    /// Returns the debt in tokens, rounded up. 0 if there is none.
    pub fn debt(&self, now: Instant) -> u64 {
        (-self.level(now)).ceil() as u64
    }

    /// Returns the time in which `cost` tokens accrue, whatever the current level.
    pub fn time_for(&self, cost: u64) -> Duration {
        seconds(cost as f64 / self.rate)
    }

    /// Returns `true` if the bucket is full at `now`.
    pub fn is_full(&self, now: Instant) -> bool {
        self.level(now) >= self.depth
    }

    /// Returns the tokens in the bucket at `now`. Negative if there is debt.
    pub fn level(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.level + passed * self.rate).min(self.depth)
    }

    /// Changes the rate, in tokens per second, and the burst, as time at this rate. The tokens in
    /// the bucket are kept up to the new depth, and a debt is kept up to `most` tokens.
    pub fn update_rate(&mut self, now: Instant, rate: f64, burst: Duration, most: f64) {
        let level = self.level(now);
        (self.rate, self.depth) = (rate, depth(rate, burst));
        self.level = level.max(-most).min(self.depth);
        self.at = self.at.max(now);
    }
}

/// Returns the number of tokens that accrue within `burst` at `rate` tokens per second, at least 1.
fn depth(rate: f64, burst: Duration) -> f64 {
    (rate * burst.as_secs_f64()).max(1.0)
}

/// Returns the time `wait` seconds after `now`, rounded up by 1 µs, because a timer that fires
/// early finds nothing available.
pub fn after(now: Instant, wait: f64) -> Instant {
    let wait = seconds(wait) + Duration::from_micros(1);
    now.checked_add(wait).or_else(|| now.checked_add(Duration::from_secs(86_400))).unwrap_or(now)
}

/// Converts seconds into a duration. Negative values become zero, and values above [`MAX_DELAY`]
/// that maximum.
pub fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s.max(0.0)).unwrap_or(MAX_DELAY).min(MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rates::epoch;

    const BURST: Duration = Duration::from_secs(6);

    #[test]
    fn refill_stops_at_depth_and_repays_debt_first() {
        let now = epoch();
        let later = |s| now + Duration::from_secs(s);
        let mut bucket = TokenBucket::per_minute(600, BURST, now);
        assert_eq!(bucket.available(now), u64::MAX, "a full bucket admits any call");
        bucket.take(now, 100);
        assert_eq!((bucket.available(now), bucket.debt(now)), (0, 40));
        assert_eq!(bucket.ready_at(now, 1).duration_since(now).as_millis(), 4_100, "debt is paid first");
        assert_eq!(bucket.available(later(5)), 10);
        assert_eq!(bucket.ready_at(later(5), 10), later(5));
        assert_eq!(bucket.ready_at(later(5), 1_000_000).duration_since(now).as_secs(), 10);
        assert!(bucket.is_full(later(11)));
        bucket.refund(later(11), 1_000);
        bucket.take(later(11), 60);
        assert_eq!(bucket.available(later(11)), 0, "a refund does not exceed the depth");
        assert_eq!(bucket.available(now), 0, "a clock that moves backwards adds nothing");
    }

    #[test]
    fn extreme_values_do_not_panic() {
        let now = epoch();
        for limit in [0, 1, u64::MAX] {
            for burst in [Duration::ZERO, Duration::MAX] {
                let mut bucket = TokenBucket::per_minute(limit, burst, now);
                bucket.take(now, u64::MAX);
                let _ = (bucket.available(now), bucket.debt(now), bucket.time_for(u64::MAX));
                assert!(bucket.ready_at(now, u64::MAX) >= now);
                bucket.refund(now, u64::MAX);
                bucket.settle(now, 0, u64::MAX);
                bucket.settle(now, u64::MAX, 0);
                assert!(bucket.level(now).is_finite());
            }
        }
    }

    proptest! {
        /// Over any part of any history, charges stay within `rate * t + depth` plus one call.
        #[test]
        fn charges_never_exceed_rate_and_burst(limit in 60u64..1_000_000, burst in 100u64..60_000, calls in prop::collection::vec((0u64..5_000, 0.0f64..0.3), 1..300)) {
            let start = epoch();
            let mut bucket = TokenBucket::per_minute(limit, Duration::from_millis(burst), start);
            let rate = limit as f64 / 60e3;
            let (mut at, mut taken) = (0, Vec::<(u64, u64)>::new());
            for (step, share) in calls {
                at += step;
                let (now, cost) = (start + Duration::from_millis(at), (share * limit as f64) as u64);
                prop_assert_eq!(bucket.available(now) >= cost, bucket.ready_at(now, cost) == now);
                if bucket.available(now) >= cost {
                    bucket.take(now, cost);
                    taken.push((at, cost));
                    let mut sum = 0.0;
                    for (then, cost) in taken.iter().rev() {
                        sum += *cost as f64;
                        let most = rate * (at - then) as f64 + (rate * burst as f64).max(1.0) + 0.3 * limit as f64;
                        prop_assert!(sum <= most + 1e-3, "{sum} in {} ms, of {most}", at - then);
                    }
                } else {
                    let then = bucket.ready_at(now, cost);
                    prop_assert!(bucket.available(then) >= cost, "ready means ready");
                }
            }
        }

        /// Refunds and settlements restore the level exactly while the bucket is not full.
        #[test]
        fn refund_and_settle_are_exact(cost in 0u64..1_000_000, really in 0u64..1_000_000) {
            let now = epoch();
            let mut bucket = TokenBucket::per_minute(60, BURST, now);
            bucket.take(now, 10_000_000);
            let before = bucket.debt(now);
            bucket.take(now, cost);
            bucket.settle(now, cost, really);
            prop_assert_eq!(bucket.debt(now), before + really);
            bucket.refund(now, really);
            prop_assert_eq!(bucket.debt(now), before);
        }
    }
}
