//! The experiment's own token bucket, which is independent of the scheduler's.

/// A bucket that refills at a constant rate. Times are in seconds since the start of the run.
#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    rate: f64,
    depth: f64,
    level: f64,
    at: f64,
    /// Tokens taken since the start of the run.
    taken: f64,
    /// The maximum amount that may be taken in a window of one minute. Runs are shorter than a
    /// minute.
    window: f64,
}

impl TokenBucket {
    /// Creates a full bucket. `rate` is per second, and `depth` is the maximum level. At most
    /// `window` may be taken in the whole run.
    pub(super) fn new(rate: f64, depth: f64, window: f64) -> Self {
        Self { rate, depth, level: depth, at: 0.0, taken: 0.0, window }
    }

    fn now(&self, at: f64) -> f64 {
        (self.level + self.rate * (at - self.at).max(0.0)).min(self.depth)
    }

    /// Takes `cost`, also if the bucket goes into debt. A negative cost is a refund.
    pub(super) fn take(&mut self, at: f64, cost: f64) {
        self.level = (self.now(at) - cost).min(self.depth);
        self.at = at;
        self.taken += cost;
    }

    fn in_window(&self, cost: f64) -> bool {
        self.taken <= 0.5 || self.taken + cost <= self.window
    }

    /// Returns `true` if `cost` is available when the level is increased by `slack`. A cost above
    /// the depth is available when the bucket is full.
    pub(super) fn fits(&self, at: f64, cost: f64, slack: f64) -> bool {
        cost <= 0.0 || (self.now(at) + slack >= cost.min(self.depth) && self.in_window(cost - slack))
    }

    /// Returns the earliest time at which `cost` is available if nothing else is taken. Returns
    /// `None` if the maximum of the window would be exceeded.
    pub(super) fn ready(&self, at: f64, cost: f64) -> Option<f64> {
        if cost <= 0.0 {
            return Some(at);
        }
        let missing = cost.min(self.depth) - self.now(at);
        self.in_window(cost).then(|| at + missing.max(0.0) / self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_refills_and_can_be_in_debt() {
        let mut token_bucket = TokenBucket::new(10.0, 60.0, 1e9);
        assert!(token_bucket.fits(0.0, 500.0, 0.0), "full");
        token_bucket.take(0.0, 500.0);
        assert_eq!(token_bucket.ready(0.0, 20.0), Some(46.0));
        assert!(!token_bucket.fits(45.0, 20.0, 0.0) && token_bucket.fits(46.0, 20.0, 0.0));
        token_bucket.take(46.0, -1e6);
        assert_eq!(token_bucket.ready(46.0, 500.0), Some(46.0), "no more than it holds");
    }
}
