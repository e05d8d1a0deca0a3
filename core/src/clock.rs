//! Where time enters the core: one monotonic clock, which the paused clock of tests drives too, and one wall clock.

use std::time::{Instant, SystemTime};

/// Now, on the clock that every timer runs on.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Wall time: only to read a provider's dates, and to date the log of calls.
#[allow(clippy::disallowed_methods)]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
