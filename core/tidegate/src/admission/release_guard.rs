//! Delays the release of a slot while the upstream may still be busy with its attempt.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Permit;

/// Keeps the slot of an attempt in use until the attempt has ended *and* the last clone of the
/// guard is dropped.
///
/// The request of each attempt has a guard in its extensions. A transport can ignore the guard if
/// dropping its future or body ends the exchange. A transport that can only request the end takes
/// the guard out of the extensions, and drops the guard when the exchange has ended.
///
/// The clones of a guard share the permit, which is `None` until the attempt has ended.
#[derive(Clone)]
pub struct ReleaseGuard(Arc<Mutex<Option<Permit>>>);

impl ReleaseGuard {
    /// Creates a guard without a permit. [`ReleaseGuard::keep`] stores the permit later.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    /// Stores the permit of an attempt that has ended. The slot is released when the last clone of
    /// the guard is dropped, which may be this one.
    pub(crate) fn keep(self, permit: Permit) {
        *self.0.lock() = Some(permit);
    }
}

impl std::fmt::Debug for ReleaseGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReleaseGuard")
    }
}
