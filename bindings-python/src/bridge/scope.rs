//! Cancelling work in threads. A thread cannot be stopped, but its waits for the gate end at once.

use std::cell::RefCell;

use tokio_util::sync::CancellationToken;

thread_local! {
    static PRESENT: RefCell<Option<CancellationToken>> = const { RefCell::new(None) };
}

/// An operation, such as a map, that runs work in threads. A scope that is made in such a thread
/// ends with the scope of the thread.
pub(crate) struct Scope(CancellationToken);

impl Scope {
    pub(crate) fn new() -> Self {
        Self(present().map_or_else(CancellationToken::new, |around| around.child_token()))
    }

    /// Ends the waits in the threads of the scope. Idempotent.
    pub(crate) fn leave(&self) {
        self.0.cancel();
    }

    /// Puts this thread into the scope until the return value is dropped.
    pub(crate) fn enter(&self) -> Entered {
        Entered(PRESENT.replace(Some(self.0.clone())))
    }
}

/// Returns the token of the scope of this thread, if there is one.
pub(super) fn present() -> Option<CancellationToken> {
    PRESENT.with_borrow(Clone::clone)
}

/// Restores the scope around when dropped.
pub(crate) struct Entered(Option<CancellationToken>);

impl Drop for Entered {
    fn drop(&mut self) {
        PRESENT.set(self.0.take());
    }
}
