//! Delays the release of a slot while the upstream may still be busy with its attempt.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Permit;

/// Keeps the slot of an attempt until the attempt has ended *and* the last clone is dropped.
///
/// Each attempt's request carries one in its extensions. A transport whose exchange ends when its
/// future or body is dropped can ignore it. A transport that can only ask for the end takes the
/// guard out of the extensions, and drops it when the exchange has ended.
#[derive(Clone)]
pub struct ReleaseGuard(Arc<Slot>);

struct Slot(Mutex<Option<Permit>>);

impl ReleaseGuard {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Slot(Mutex::new(None))))
    }

    /// Keeps the permit until the last clone is dropped, at once if this is the last.
    pub(crate) fn keep(self, permit: Permit) {
        *self.0.0.lock() = Some(permit);
    }
}

impl std::fmt::Debug for ReleaseGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReleaseGuard")
    }
}
