//! Cancels the waits of threads. A thread cannot be stopped, but its waits for the gate can end at
//! once.

use std::cell::RefCell;

use tokio_util::sync::CancellationToken;

thread_local! {
    static CURRENT: RefCell<Option<CancellationToken>> = const { RefCell::new(None) };
}

/// The threads of one operation, such as a map, whose waits end together. A scope that is created
/// in such a thread is cancelled together with the scope of that thread.
pub(crate) struct Scope(CancellationToken);

impl Scope {
    pub(crate) fn new() -> Self {
        Self(current().map_or_else(CancellationToken::new, |outer| outer.child_token()))
    }

    /// Cancels the scope: the waits for the gate in its threads end now, and later waits end at
    /// once. Idempotent.
    pub(crate) fn cancel(&self) {
        self.0.cancel();
    }

    /// Puts the calling thread into the scope until the returned guard is dropped.
    pub(crate) fn enter(&self) -> ScopeGuard {
        ScopeGuard(CURRENT.replace(Some(self.0.clone())))
    }
}

/// Returns the token that cancels the waits of the calling thread, or `None` if it is in no scope.
pub(super) fn current() -> Option<CancellationToken> {
    CURRENT.with_borrow(Clone::clone)
}

/// A guard that puts the thread back into its earlier scope when dropped. `None` means that the
/// thread was in no scope.
pub(crate) struct ScopeGuard(Option<CancellationToken>);

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}
