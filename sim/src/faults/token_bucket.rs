//! A token bucket that can go into debt.

use std::time::Duration;

/// A continuously refilled bucket.
#[derive(Debug, Clone)]
pub(super) struct TokenBucket {
    per_second: f64,
    most: f64,
    level: f64,
    at: Duration,
}

/// Values of the `x-ratelimit-*` headers of one resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RateHeaders {
    /// `tokens` or `requests`.
    pub(crate) resource: &'static str,
    /// Amount per minute.
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Simulated time until the bucket is full.
    pub(crate) reset: Duration,
}

impl TokenBucket {
    pub(super) fn new(per_minute: f64, burst_s: f64, now: Duration) -> Self {
        let per_second = per_minute / 60.0;
        let most = per_second * burst_s;
        Self { per_second, most, level: most, at: now }
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + passed * self.per_second).min(self.most);
        self.at = self.at.max(now);
    }

    /// Returns the time until `cost` fits, or zero if it fits now.
    ///
    /// A cost above the capacity never fits; the time to fill the bucket is returned for it.
    pub(super) fn wait(&mut self, now: Duration, cost: f64) -> Duration {
        self.refill(now);
        // The tolerance of one millionth ensures that a client that waits exactly this long is not
        // rejected because of rounding.
        if cost <= self.level + 1e-6 * self.most {
            return Duration::ZERO;
        }
        seconds((cost - self.level) / self.per_second)
    }

    /// Removes `cost`, going into debt if necessary.
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
            reset: seconds((self.most - self.level) / self.per_second),
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
