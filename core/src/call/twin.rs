//! A second try of a call whose first goes on.
//!
//! Both share the identity of the call: who asks what, until when. Each has a state of its own, so
//! that each settles its own slot. In the end the call has the records of both.

use std::sync::Arc;

use super::state::CallState;
use super::{Attempt, Call, Inner};

impl Call {
    /// Creates a second try, which takes a free slot at another replica than the present attempt's,
    /// or none.
    pub(crate) fn twin(&self) -> Self {
        let state = {
            let state = self.state();
            let mut tried = state.tried.clone();
            let placed = state.attempts.last().and_then(|attempt| attempt.placed.as_ref());
            tried.extend(placed.map(|placed| placed.id));
            CallState { exact_input: state.exact_input, tried, ..CallState::default() }
        };
        // A second try never waits, so the group of the call does not count it.
        Self(Arc::new(Inner { is_twin: true, crowd: None, ..self.0.again(state) }))
    }

    /// Returns `true` if this is a second try.
    pub(crate) fn is_twin(&self) -> bool {
        self.0.is_twin
    }

    /// Returns `true` if a second try came first. The call gets no other.
    pub(crate) fn has_twin(&self) -> bool {
        self.0.winner.get().is_some()
    }

    /// Adds the attempts of a second try that lost, before the present attempt. Called when the
    /// second try is over.
    pub(crate) fn came_before(&self, twin: &Self) {
        let theirs = twin.state().attempts.clone();
        let mut state = self.state();
        let at = state.attempts.len().saturating_sub(1);
        state.attempts.splice(at..at, theirs.into_iter().filter(was_admitted));
    }

    /// Continues with the state of a second try that won. Called when the call's own attempt is
    /// over.
    pub(crate) fn goes_on_as(&self, twin: &Self) {
        let mut ours = self.take_attempts();
        {
            let mut state = twin.state();
            ours.append(&mut state.attempts);
            state.attempts = ours;
        }
        // One second try wins at most: none is made after that.
        let _ = self.0.winner.set(twin.clone());
    }
}

fn was_admitted(attempt: &Attempt) -> bool {
    attempt.admitted_at.is_some()
}
