//! The mutable state of a call.

use std::time::{Duration, Instant};

use super::Call;
use super::attempt::Attempt;
use crate::error::Error;
use crate::fairness::Tag;
use crate::placement::{Placed, ReplicaId};
use crate::schedule::{WaitExplanation, WaiterId};
use tidegate_protocol::Usage;
use tidegate_tokens::Demand;

/// Maximum number of attempts that a call remembers: the first attempt and the latest ones.
const REMEMBERED: usize = 100;

/// The mutable state of a call. One layer writes each field; the others read it.
#[derive(Default)]
pub(super) struct CallState {
    /// The attempts, oldest first. Admission adds them. The layer that writes each of their fields
    /// is named there.
    pub(super) attempts: Vec<Attempt>,
    /// What admission keeps from one attempt to the next. Written by admission.
    pub(super) queue: QueueState,
    /// The class of the last failed attempt, for messages. Written by retry.
    pub(super) last_failure: Option<&'static str>,
    /// The replicas that failed the call, which its next attempt avoids. Written by retry.
    pub(super) tried: Vec<ReplicaId>,
    /// Number of input tokens, counted before the call is sent. Written by the counting layer.
    pub(super) exact_input: Option<u64>,
}

/// What admission keeps of a call from one attempt to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueState {
    /// What the tenant was charged for the call. A retry passes it on, to keep its place in the
    /// queue.
    pub(crate) charged: Option<Tag>,
    /// The call's latest place in the queue of its target, if it has had one.
    pub(crate) waiter: Option<WaiterId>,
    /// The part of the wait budget that earlier waits have used. All attempts share one budget.
    pub(crate) used_wait: Duration,
    /// Whether an attempt failed in a way that the call itself may have caused.
    pub(crate) has_failed: bool,
    /// The tokens that the latest attempt was expected to take when it was queued.
    pub(crate) demand: Option<Demand>,
}

impl Call {
    /// Returns what admission keeps of the call.
    pub(crate) fn queue(&self) -> QueueState {
        self.state().queue
    }

    /// Changes what admission keeps of the call.
    pub(crate) fn update_queue(&self, write: impl FnOnce(&mut QueueState)) {
        write(&mut self.state().queue);
    }

    /// Adds an attempt that is queued now.
    pub(crate) fn attempt_queued(&self, now: Instant) {
        let attempts = &mut self.state().attempts;
        if attempts.len() >= REMEMBERED {
            // A pool without free slots may reject a call with a long deadline many times.
            attempts.remove(1);
        }
        attempts.push(Attempt::queued(now));
    }

    /// Changes the record of the current attempt. Does nothing if the call has made no attempt.
    pub(crate) fn update_attempt(&self, write: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = self.state().attempts.last_mut() {
            write(attempt);
        }
    }

    /// Returns why the call waits, in the queue or for a cool-down. `None` if it does not wait.
    pub(crate) fn why(&self) -> Option<WaitExplanation> {
        if let Some(why) = self.shared().and_then(|(shared, key)| shared.explain(key, self.queued_at())) {
            return Some(why);
        }
        let waiter = self.queue().waiter?;
        self.target().admission().explain(waiter)
    }

    /// Returns the record of the current attempt.
    pub(crate) fn current_attempt(&self) -> Option<Attempt> {
        self.state().attempts.last().cloned()
    }

    /// Returns `true` if the current attempt is queued.
    pub(crate) fn is_queued(&self) -> bool {
        let state = self.state();
        let last = state.attempts.last();
        last.is_some_and(|attempt| attempt.admitted_at.is_none() && attempt.released_at.is_none())
    }

    /// Returns `true` if no attempt is in flight: the call is queued or backs off.
    pub(crate) fn is_waiting(&self) -> bool {
        let state = self.state();
        let last = state.attempts.last();
        last.is_none_or(|attempt| attempt.admitted_at.is_none() || attempt.released_at.is_some())
    }

    /// Returns when the current attempt was sent, or `None` if it was not.
    pub(crate) fn current_sent_at(&self) -> Option<Instant> {
        self.state().attempts.last().and_then(Attempt::sent_at)
    }

    /// Returns when the current attempt was sent or, if it was not, when the call was made.
    pub(crate) fn sent_at(&self) -> Instant {
        self.current_sent_at().unwrap_or(self.queued_at())
    }

    /// Returns the number of attempts that were sent.
    pub(crate) fn sent_attempts(&self) -> usize {
        self.state().attempts.iter().filter(|attempt| attempt.exchange.is_some()).count()
    }

    /// Removes and returns the records of all attempts. Called at the end of the call.
    pub(crate) fn take_attempts(&self) -> Vec<Attempt> {
        std::mem::take(&mut self.state().attempts)
    }

    /// Returns the tokens that the latest attempt was expected to take when it was queued or, if
    /// none was, the current estimate.
    pub(crate) fn expected(&self) -> Demand {
        self.queue().demand.unwrap_or_else(|| self.demand())
    }

    /// Sets the number of input tokens that were counted before the call is sent.
    pub(crate) fn set_exact_input(&self, tokens: u64) {
        self.state().exact_input = Some(tokens);
    }

    /// Returns the number of input tokens, if they were counted and not estimated.
    pub fn exact_input(&self) -> Option<u64> {
        self.state().exact_input
    }

    /// Returns the class of the last failed attempt.
    pub(crate) fn last_failure(&self) -> Option<&'static str> {
        self.state().last_failure
    }

    /// Returns the replica of the current attempt, if the target is a pool.
    pub(crate) fn placed(&self) -> Option<Placed> {
        self.state().attempts.last()?.placed.clone()
    }

    /// Returns the replicas that failed the call.
    pub(crate) fn tried(&self) -> Vec<ReplicaId> {
        self.state().tried.clone()
    }

    /// Makes the next attempt avoid this replica, as long as other replicas have free slots.
    pub(crate) fn avoid(&self, replica: Option<Placed>) {
        let Some(Placed { id, .. }) = replica else { return };
        let mut state = self.state();
        if !state.tried.contains(&id) {
            state.tried.push(id);
        }
    }

    /// Adds the target and replica of the current attempt to an error.
    pub(crate) fn locate_error(&self, error: Error) -> Error {
        let error = error.at(self.target().name());
        match self.placed() {
            Some(placed) => error.at_replica(&placed.url),
            None => error,
        }
    }
}

/// Returns the token usage that the provider reported in the last admitted attempt.
pub(crate) fn usage_of(attempts: &[Attempt]) -> Option<Usage> {
    let last = attempts.iter().rev().find(|attempt| attempt.admitted_at.is_some())?;
    last.seen().usage
}
