//! Helpers of the unit tests.

use std::time::Instant;

/// Returns the time at which a test starts. All other times of the test are relative to it.
#[allow(clippy::disallowed_methods)]
pub(crate) fn epoch() -> Instant {
    Instant::now()
}
