//! A bucket that fills at a steady rate: the experiment's own account of a budget.

/// A bucket. Times are seconds since the start of the run.
#[derive(Clone, Debug)]
pub(super) struct Level {
    rate: f64,
    depth: f64,
    level: f64,
    at: f64,
    /// The total taken. The field below is the maximum per window; runs are shorter than a window.
    taken: f64,
    window: f64,
}

impl Level {
    /// Creates a full bucket.
    pub(super) fn new(rate: f64, depth: f64, window: f64) -> Self {
        Self { rate, depth, level: depth, at: 0.0, taken: 0.0, window }
    }

    fn now(&self, at: f64) -> f64 {
        (self.level + self.rate * (at - self.at).max(0.0)).min(self.depth)
    }

    /// Takes `cost`, into debt if needed. A negative cost is a refund.
    pub(super) fn take(&mut self, at: f64, cost: f64) {
        self.level = (self.now(at) - cost).min(self.depth);
        self.at = at;
        self.taken += cost;
    }

    fn in_window(&self, cost: f64) -> bool {
        self.taken <= 0.5 || self.taken + cost <= self.window
    }

    /// Returns `true` if a call of that cost fits when the level is raised by `slack`. A cost above
    /// the depth fits when the bucket is full.
    pub(super) fn fits(&self, at: f64, cost: f64, slack: f64) -> bool {
        cost <= 0.0 || (self.now(at) + slack >= cost.min(self.depth) && self.in_window(cost - slack))
    }

    /// Returns the time from which on the cost fits if nothing else is taken, or `None` if it does
    /// not fit in this window.
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
    fn fills_and_owes() {
        let mut level = Level::new(10.0, 60.0, 1e9);
        assert!(level.fits(0.0, 500.0, 0.0), "full");
        level.take(0.0, 500.0);
        assert_eq!(level.ready(0.0, 20.0), Some(46.0));
        assert!(!level.fits(45.0, 20.0, 0.0) && level.fits(46.0, 20.0, 0.0));
        level.take(46.0, -1e6);
        assert_eq!(level.ready(46.0, 500.0), Some(46.0), "no more than it holds");
    }
}
