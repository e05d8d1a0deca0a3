//! A token bucket whose content can become negative.

use std::time::Duration;

/// A bucket of tokens or requests that is refilled continuously, up to its capacity. It is full at
/// first.
#[derive(Debug, Clone)]
pub(super) struct TokenBucket {
    per_second: f64,
    capacity: f64,
    level: f64,
    updated_at: Duration,
}

/// Values of the rate-limit headers for one budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RateHeaders {
    /// What the budget counts: `tokens` or `requests`.
    pub(crate) resource: &'static str,
    /// Tokens or requests that are refilled per simulated minute.
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Simulated time until the budget is full.
    pub(crate) reset: Duration,
}

impl TokenBucket {
    pub(super) fn new(per_minute: f64, burst_s: f64, now: Duration) -> Self {
        let per_second = per_minute / 60.0;
        let capacity = per_second * burst_s;
        Self { per_second, capacity, level: capacity, updated_at: now }
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.updated_at).as_secs_f64();
        self.level = (self.level + passed * self.per_second).min(self.capacity);
        self.updated_at = self.updated_at.max(now);
    }

    /// Returns the simulated time until the bucket contains `cost`, or zero if it does now.
    ///
    /// A cost above the capacity never fits. For such a cost, the result is the time until the
    /// bucket would contain it without a capacity.
    pub(super) fn wait(&mut self, now: Duration, cost: f64) -> Duration {
        self.refill(now);
        // The tolerance of one millionth ensures that a client that waits exactly this long is not
        // rejected because of rounding.
        if cost <= self.level + 1e-6 * self.capacity {
            return Duration::ZERO;
        }
        seconds((cost - self.level) / self.per_second)
    }

    /// Removes `cost` from the bucket. The content may become negative.
    pub(super) fn take(&mut self, now: Duration, cost: f64) {
        self.refill(now);
        self.level -= cost;
    }

    pub(super) fn headers(&mut self, now: Duration, resource: &'static str) -> RateHeaders {
        self.refill(now);
        RateHeaders {
            resource,
            limit: (self.per_second * 60.0).round() as u64,
            remaining: self.level.max(0.0) as u64,
            reset: seconds((self.capacity - self.level) / self.per_second),
        }
    }
}

fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s.max(0.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refills_up_to_its_burst_and_carries_debt() {
        let at = Duration::from_secs;
        let mut bucket = TokenBucket::new(600.0, 10.0, at(0));
        assert_eq!(bucket.wait(at(0), 100.0), Duration::ZERO);
        bucket.take(at(0), 150.0);
        assert_eq!(bucket.headers(at(0), "tokens").remaining, 0);
        assert_eq!(bucket.wait(at(1), 10.0), at(5));
        assert_eq!(bucket.wait(at(6), 10.0), Duration::ZERO);
        assert_eq!(bucket.headers(at(1_000), "tokens").remaining, 100);
        // Time that goes back refills nothing.
        bucket.take(at(1_000), 100.0);
        assert_eq!(bucket.wait(at(500), 10.0), at(1));
    }
}
