//! Helpers for the tests of this crate.

use std::time::Instant;

/// Returns an arbitrary moment from which tests count time.
#[allow(clippy::disallowed_methods)]
pub(crate) fn epoch() -> Instant {
    Instant::now()
}
