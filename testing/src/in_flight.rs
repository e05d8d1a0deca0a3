//! The shared state of a fake target, and the guard that records the end of an attempt in flight.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::answer_router::{RouteSlot, Router};
use crate::attempt_log::{AttemptLog, AttemptState};

/// The state that the clones of a fake target share.
pub(crate) struct TargetState {
    pub(crate) router: Router,
    pub(crate) log: AttemptLog,
}

/// Guard of an attempt in flight. Dropping the guard records the end of the attempt as
/// [`AttemptState::Cancelled`], unless [`InFlight::answered`] was called.
pub(crate) struct InFlight {
    state: Arc<Mutex<TargetState>>,
    /// Number of the attempt in the log. `None` for a request of the gate itself, which is not
    /// recorded.
    pub(crate) attempt: Option<usize>,
    pub(crate) route_slot: Option<RouteSlot>,
    answered: bool,
    // The body may be dropped outside of the runtime whose clock gives the time.
    runtime: Option<Handle>,
}

impl InFlight {
    pub(crate) fn new(
        state: Arc<Mutex<TargetState>>,
        attempt: Option<usize>,
        runtime: Option<Handle>,
    ) -> Self {
        Self { state, attempt, route_slot: None, answered: false, runtime }
    }

    /// Records the end of the attempt as [`AttemptState::Answered`].
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let _context = self.runtime.as_ref().map(Handle::enter);
        let outcome = if self.answered { AttemptState::Answered } else { AttemptState::Cancelled };
        let mut state = self.state.lock();
        if let Some(attempt) = self.attempt {
            state.log.end_attempt(attempt, outcome);
        }
        if let Some(route_slot) = self.route_slot {
            state.router.release(route_slot);
        }
    }
}
