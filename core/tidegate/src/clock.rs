//! The only sources of time in this crate: one monotonic clock and one wall clock.
//!
//! The monotonic clock is that of tokio, so tests can pause it.

use std::time::{Instant, SystemTime};

/// Returns the current time on the monotonic clock, which all timers use.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the current wall-clock time. Used only to interpret dates in headers, and for timestamps
/// in the log of calls.
#[allow(clippy::disallowed_methods)]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
