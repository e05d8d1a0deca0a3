//! Work in threads that is given up from outside: nobody can stop the thread, but what waits for the gate in it ends at once.

use std::cell::RefCell;

use tokio_util::sync::CancellationToken;

thread_local! {
    static PRESENT: RefCell<Option<CancellationToken>> = const { RefCell::new(None) };
}

/// Whoever has work done in threads, a map say. One that is made in such a thread is inside the one around it, and ends with it.
pub(crate) struct Scope(CancellationToken);

impl Scope {
    pub(crate) fn new() -> Self {
        Self(present().map_or_else(CancellationToken::new, |around| around.child_token()))
    }

    /// Whoever it was for has left. Idempotent.
    pub(crate) fn leave(&self) {
        self.0.cancel();
    }

    /// What this thread waits for from now on, until the return value is dropped, is waited for inside the scope.
    pub(crate) fn enter(&self) -> Entered {
        Entered(PRESENT.replace(Some(self.0.clone())))
    }
}

/// The scope that this thread works in, if it works in one.
pub(super) fn present() -> Option<CancellationToken> {
    PRESENT.with_borrow(Clone::clone)
}

/// Holds the scope around.
pub(crate) struct Entered(Option<CancellationToken>);

impl Drop for Entered {
    fn drop(&mut self) {
        PRESENT.set(self.0.take());
    }
}
