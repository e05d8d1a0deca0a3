//! What changes while a call lives.

use std::time::{Duration, Instant};

use super::Call;
use super::attempt::{Attempt, ExchangeRecord};
use crate::clock;
use crate::error::Error;
use crate::fairness::Tag;
use crate::placement::{Placed, ReplicaId};
use crate::schedule::{WaiterId, Why};
use tidegate_protocol::Usage;
use tidegate_tokens::Demand;

/// How many attempts of a call are remembered: its first, and the last ones.
const REMEMBERED: usize = 100;

/// What changes while a call lives. One layer writes each field; the others read.
#[derive(Default)]
pub(super) struct CallState {
    /// The attempts, oldest first. Admission adds them; each of their fields says who writes it.
    pub(super) attempts: Vec<Attempt>,
    /// What the next attempt tells the queue. Written by admission.
    pub(super) queue: QueueState,
    /// The class of the last failed attempt, for messages. Written by retry.
    pub(super) last_failure: Option<&'static str>,
    /// Replicas that failed the call, which its next attempt avoids. Written by retry.
    pub(super) tried: Vec<ReplicaId>,
    /// Input tokens, counted before the call is sent. Written by the counting layer.
    pub(super) exact_input: Option<u64>,
}

/// What admission keeps of a call from one attempt to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueState {
    /// What the tenant was charged for the call, which keeps the place of a retry.
    pub(crate) charged: Option<Tag>,
    /// The call's place in the queue of its target, once it has had one.
    pub(crate) waiter: Option<WaiterId>,
    /// The part of the wait budget that earlier waits have taken. All waits share one budget.
    pub(crate) spent: Duration,
    /// Whether an attempt failed in a way that the call itself may have caused.
    pub(crate) has_failed: bool,
    /// What the latest attempt was expected to take when it asked for a slot.
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

    /// Adds an attempt, which asks for a slot.
    pub(crate) fn attempt_queued(&self, now: Instant) {
        let attempts = &mut self.state().attempts;
        if attempts.len() >= REMEMBERED {
            // A pool without room turns a patient call away many times.
            attempts.remove(1);
        }
        attempts.push(Attempt::queued(now));
    }

    /// Records that the present attempt got a slot, at this replica if the target is a pool.
    pub(crate) fn attempt_admitted(&self, now: Instant, in_flight: usize, placed: Option<Placed>) {
        self.update_attempt(|attempt| {
            attempt.admitted_at = Some(now);
            attempt.in_flight = Some(in_flight);
            attempt.placed = placed;
        });
    }

    /// Records that the present attempt is sent now.
    pub(crate) fn attempt_sent(&self, exchange: ExchangeRecord) {
        self.update_attempt(|attempt| attempt.exchange = Some(exchange));
    }

    /// Records that the present attempt has released its slot.
    pub(crate) fn attempt_released(&self) {
        self.update_attempt(|attempt| attempt.released_at = Some(clock::now()));
    }

    /// Records how long the call sleeps after the present attempt. `None`: it does not.
    pub(crate) fn attempt_backs_off(&self, sleep: Option<Duration>) {
        self.update_attempt(|attempt| attempt.backoff = sleep);
    }

    fn update_attempt(&self, write: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = self.state().attempts.last_mut() {
            write(attempt);
        }
    }

    /// Returns why the call waits, in the queue or in a cool-down; `None` if it does not.
    pub(crate) fn why(&self) -> Option<Why> {
        if let Some(why) = self.shared().and_then(|(shared, key)| shared.explain(key, self.queued_at())) {
            return Some(why);
        }
        let waiter = self.queue().waiter?;
        self.target().admission().explain(waiter)
    }

    /// Returns the record of the present attempt.
    pub(crate) fn present(&self) -> Option<Attempt> {
        self.state().attempts.last().cloned()
    }

    /// Returns `true` if the present attempt asks for a slot.
    pub(crate) fn is_queued(&self) -> bool {
        let state = self.state();
        let last = state.attempts.last();
        last.is_some_and(|attempt| attempt.admitted_at.is_none() && attempt.released_at.is_none())
    }

    /// Returns `true` if no attempt is in flight: the call is queued, or backs off.
    pub(crate) fn is_waiting(&self) -> bool {
        let state = self.state();
        let last = state.attempts.last();
        last.is_none_or(|attempt| attempt.admitted_at.is_none() || attempt.released_at.is_some())
    }

    /// Returns when the present attempt was sent, or `None` if it was not.
    pub(crate) fn present_sent_at(&self) -> Option<Instant> {
        self.state().attempts.last().and_then(Attempt::sent_at)
    }

    /// Returns when the present attempt was sent, or else when the call was made.
    pub(crate) fn sent_at(&self) -> Instant {
        self.present_sent_at().unwrap_or(self.queued_at())
    }

    /// Returns the number of attempts that were sent.
    pub(crate) fn sent(&self) -> usize {
        self.state().attempts.iter().filter(|attempt| attempt.exchange.is_some()).count()
    }

    /// Takes the records of the attempts out, at the end of the call.
    pub(crate) fn take_attempts(&self) -> Vec<Attempt> {
        std::mem::take(&mut self.state().attempts)
    }

    /// Returns what the latest attempt was expected to take when it asked for a slot, or else what
    /// is expected now.
    pub(crate) fn expected(&self) -> Demand {
        let told = self.queue().demand;
        told.unwrap_or_else(|| self.demand())
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

    /// Returns the replica of the present attempt, if the target is a pool.
    pub(crate) fn placed(&self) -> Option<Placed> {
        self.state().attempts.last()?.placed.clone()
    }

    /// Returns the replicas that failed the call.
    pub(crate) fn tried(&self) -> Vec<ReplicaId> {
        self.state().tried.clone()
    }

    /// Has the next attempt avoid this replica, as long as others have room.
    pub(crate) fn avoid(&self, replica: Option<Placed>) {
        let Some(Placed { id, .. }) = replica else { return };
        let mut state = self.state();
        if !state.tried.contains(&id) {
            state.tried.push(id);
        }
    }

    /// Adds to an error of the present attempt where it happened.
    pub(crate) fn happened(&self, error: Error) -> Error {
        let error = error.at(self.target().name());
        match self.placed() {
            Some(placed) => error.at_replica(&placed.url),
            None => error,
        }
    }
}

/// Returns the tokens that the provider has counted in the last attempt that got a slot.
pub(crate) fn usage_of(attempts: &[Attempt]) -> Option<Usage> {
    let last = attempts.iter().rev().find(|attempt| attempt.admitted_at.is_some())?;
    last.seen().usage
}
