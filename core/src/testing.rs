//! Helpers for unit tests.

use std::time::Instant;

/// Returns a start time for a test. Policies only compare times, so any time will do.
#[allow(clippy::disallowed_methods)]
pub(crate) fn epoch() -> Instant {
    Instant::now()
}
