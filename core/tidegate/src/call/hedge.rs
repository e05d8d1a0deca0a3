//! Hedging: a second attempt of a call that runs while the first attempt is in flight.
//!
//! Both attempts share the identity of the call. Each has its own state, because each holds and
//! settles its own slot. When the hedge has ended, its attempts are added to the records of the
//! call.

use std::sync::Arc;

use super::state::CallState;
use super::{Attempt, Call, Inner};

impl Call {
    /// Creates a hedge of the call: a second attempt that is sent only if a slot is free, without
    /// waiting. It avoids the replica of the current attempt and the replicas that failed the call.
    pub(crate) fn hedge(&self) -> Self {
        let state = {
            let state = self.state();
            let mut tried = state.tried.clone();
            let placed = state.attempts.last().and_then(|attempt| attempt.placed.as_ref());
            tried.extend(placed.map(|placed| placed.id));
            CallState { exact_input: state.exact_input, tried, ..CallState::default() }
        };
        // A hedge never waits, so the group of the call does not count it.
        let mut hedge = Inner { is_hedge: true, ..self.0.with_state(state) };
        hedge.identity.group = None;
        Self(Arc::new(hedge))
    }

    /// Returns `true` if this is a hedge.
    pub(crate) fn is_hedge(&self) -> bool {
        self.0.is_hedge
    }

    /// Records that a hedge of this call is sent. The call is not waiting until that hedge has
    /// ended.
    pub(crate) fn begin_hedge(&self) {
        self.state().is_hedging = true;
    }

    /// Inserts the records of a losing hedge's admitted attempts into this call, before the current
    /// attempt. Called when the hedge has ended.
    pub(crate) fn add_lost_hedge(&self, hedge: &Self) {
        // A hedge that was cancelled in flight has no outcome.
        let is_cancelled = hedge.sent_attempts() > 0 && hedge.last_failure().is_none();
        let was_sent = hedge.was_sent() || is_cancelled;
        let theirs = hedge.state().attempts.clone();
        let mut state = self.state();
        state.is_hedging = false;
        state.was_sent |= was_sent;
        let at = state.attempts.len().saturating_sub(1);
        state.attempts.splice(at..at, theirs.into_iter().filter(was_admitted));
    }

    /// Makes the call use the state of the winning hedge `hedge`, and moves the attempts and the
    /// failures of the call into that state. Called when the call's own attempt has ended.
    pub(crate) fn continue_as(&self, hedge: &Self) {
        // At most one hedge wins, because no attempt is made after it. Set first, because a call
        // without attempts counts as waiting.
        let _ = self.0.winner.set(hedge.clone());
        let ours = std::mem::take(&mut *self.0.state.lock());
        let mut state = hedge.state();
        state.attempts.splice(0..0, ours.attempts);
        state.sent_attempts += ours.sent_attempts;
        state.was_sent |= ours.was_sent;
        state.may_have_run |= ours.may_have_run;
        state.last_failure = state.last_failure.or(ours.last_failure);
    }
}

fn was_admitted(attempt: &Attempt) -> bool {
    attempt.admitted_at.is_some()
}
