//! A slot that outlives its attempt, for as long as the upstream may still be busy with it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Permit;

/// Keeps an attempt's slot: it goes back when the attempt has ended *and* the last clone is gone.
///
/// Each attempt's request carries one in its extensions. A transport whose exchange ends when its
/// future or body is dropped need not know of it. One that only asks for the end takes it out, and
/// drops it when the end has come.
#[derive(Clone)]
pub struct ReleaseGuard(Arc<Slot>);

struct Slot(Mutex<Option<Permit>>);

impl ReleaseGuard {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Slot(Mutex::new(None))))
    }

    /// Leaves the permit to the clones, if there are any; else it goes here.
    pub(crate) fn keep(self, permit: Permit) {
        *self.0.0.lock() = Some(permit);
    }
}

impl std::fmt::Debug for ReleaseGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReleaseGuard")
    }
}
