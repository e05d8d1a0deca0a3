//! The clock of a sweep: seconds since the sweep began, on tokio's clock.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Stand-in for the wall-clock time when response headers are read. A date in a header is compared
/// with the `Date` of the same response, so the real time does not matter.
pub(crate) const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;

/// Clock that counts seconds since the sweep began. Excludes the time between an interruption and
/// the resumption.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    offset_s: f64,
}

impl Clock {
    /// Returns a clock that shows `offset_s` seconds now.
    pub(crate) fn new(offset_s: f64) -> Self {
        Self { began: Instant::now(), offset_s }
    }

    pub(crate) fn now(&self) -> f64 {
        self.seconds_at(Instant::now())
    }

    pub(crate) fn seconds_at(&self, at: Instant) -> f64 {
        self.offset_s + at.saturating_duration_since(self.began).as_secs_f64()
    }

    /// Returns the instant at which the clock shows `seconds`, or the instant at which the clock
    /// was created if that is later. Returns `None` if the instant is not representable.
    pub(crate) fn instant_at(&self, seconds: f64) -> Option<Instant> {
        let left = Duration::try_from_secs_f64((seconds - self.offset_s).max(0.0)).ok()?;
        self.began.checked_add(left)
    }
}
