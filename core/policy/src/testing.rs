//! What the unit tests share.

use std::time::Instant;

/// Returns an arbitrary moment to count from.
#[allow(clippy::disallowed_methods)]
pub(crate) fn epoch() -> Instant {
    Instant::now()
}
