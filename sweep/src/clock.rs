//! The clock of a sweep: seconds since the start, on tokio's clock.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Stands for the wall-clock time when response headers are read. Only the difference between a
/// date and the response's own `Date` matters.
pub(crate) const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;

/// Seconds since the sweep began. A resumed sweep continues from its last time; the pause is not
/// counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    before: f64,
}

impl Clock {
    /// Returns a clock that starts now at `before` seconds.
    pub(crate) fn new(before: f64) -> Self {
        Self { began: Instant::now(), before }
    }

    pub(crate) fn now(&self) -> f64 {
        self.of(Instant::now())
    }

    pub(crate) fn of(&self, at: Instant) -> f64 {
        self.before + at.saturating_duration_since(self.began).as_secs_f64()
    }

    /// Returns the instant at which `seconds` is reached, or `None` if it is too far away.
    pub(crate) fn at(&self, seconds: f64) -> Option<Instant> {
        let left = Duration::try_from_secs_f64((seconds - self.before).max(0.0)).ok()?;
        self.began.checked_add(left)
    }
}
