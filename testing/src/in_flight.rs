//! Attempts in flight.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::books::{Books, Outcome};
use crate::routes::{Place, Routes};

/// What the clones of a fake target share.
pub(crate) struct State {
    pub(crate) routes: Routes,
    pub(crate) books: Books,
}

/// An attempt in flight. Dropping it before [`InFlight::answered`] records it as cancelled.
pub(crate) struct InFlight {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) attempt: usize,
    pub(crate) place: Option<Place>,
    pub(crate) answered: bool,
    // A body may be dropped outside the runtime whose clock tells the time.
    pub(crate) runtime: Option<Handle>,
}

impl InFlight {
    /// Records the attempt as answered.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let _context = self.runtime.as_ref().map(Handle::enter);
        let outcome = if self.answered { Outcome::Answered } else { Outcome::Cancelled };
        let mut state = self.state.lock();
        state.books.end(self.attempt, outcome);
        if let Some(place) = self.place {
            state.routes.free(place);
        }
    }
}
