//! What the unit tests share.

use std::time::Instant;

/// A moment to count from. Policies only ever compare moments, so which one it is does not matter.
#[allow(clippy::disallowed_methods)]
pub(crate) fn epoch() -> Instant {
    Instant::now()
}
