//! The state of a fake target, and its attempts in flight.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::attempt_log::{AttemptLog, AttemptState};
use crate::router::{RouteSlot, Router};

/// The state of a fake target, shared by its clones.
pub(crate) struct State {
    pub(crate) router: Router,
    pub(crate) log: AttemptLog,
}

/// An attempt in flight. Dropping the value before [`InFlight::answered`] records the attempt as
/// cancelled.
pub(crate) struct InFlight {
    state: Arc<Mutex<State>>,
    pub(crate) attempt: usize,
    pub(crate) place: Option<RouteSlot>,
    answered: bool,
    // The body may be dropped outside of the runtime whose clock gives the time.
    runtime: Option<Handle>,
}

impl InFlight {
    pub(crate) fn new(state: Arc<Mutex<State>>, attempt: usize, runtime: Option<Handle>) -> Self {
        Self { state, attempt, place: None, answered: false, runtime }
    }

    /// Records that the answer was sent to its end.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let _context = self.runtime.as_ref().map(Handle::enter);
        let outcome = if self.answered { AttemptState::Answered } else { AttemptState::Cancelled };
        let mut state = self.state.lock();
        state.log.end(self.attempt, outcome);
        if let Some(place) = self.place {
            state.router.free(place);
        }
    }
}
