//! The sweep's own clock: seconds since it began, on tokio's.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Stands for the wall's clock where an answer's dates are read: only their difference to its own `Date` counts.
pub(crate) const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;

/// Seconds since a sweep began. A resumed one goes on where it stopped: what passed between is no time of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    before: f64,
}

impl Clock {
    /// Begins now, after so many seconds.
    pub(crate) fn new(before: f64) -> Self {
        Self { began: Instant::now(), before }
    }

    pub(crate) fn now(&self) -> f64 {
        self.of(Instant::now())
    }

    pub(crate) fn of(&self, at: Instant) -> f64 {
        self.before + at.saturating_duration_since(self.began).as_secs_f64()
    }

    /// When so many seconds will have passed; `None`: never.
    pub(crate) fn at(&self, seconds: f64) -> Option<Instant> {
        let left = Duration::try_from_secs_f64((seconds - self.before).max(0.0)).ok()?;
        self.began.checked_add(left)
    }
}
