//! The part of a call that changes: its attempts, its position in the queue, and its failures.

use std::time::{Duration, Instant};

use super::Call;
use super::attempt::{Attempt, ExchangeRecord};
use crate::error::Error;
use crate::fairness::Tag;
use crate::placement::{Placed, ReplicaId};
use crate::schedule::{WaitExplanation, WaiterId};
use tidegate_protocol::Usage;
use tidegate_tokens::Demand;

/// Maximum number of input tokens of one call. More than any model takes, and few enough that the
/// sums over many calls do not overflow.
const MAX_INPUT: u64 = 1 << 32;
/// Maximum number of attempts whose records a call keeps: the first attempt and the latest 99.
const REMEMBERED: usize = 100;

/// The mutable state of a call. Each field is written by the layer that its documentation names.
#[derive(Default)]
pub(super) struct CallState {
    /// The records of the attempts, oldest first. Admission adds them.
    pub(super) attempts: Vec<Attempt>,
    /// The number of attempts whose request was handed to the transport, including those without a
    /// record. Calls that run no model have no records.
    pub(super) sent_attempts: usize,
    /// What admission remembers about the call from one attempt to the next. Written by admission.
    pub(super) queue: QueueState,
    /// The failure class of the attempt that failed last, for error messages. `None` if no attempt
    /// has failed. Written by retry and hedging.
    pub(super) last_failure: Option<&'static str>,
    /// `true` if an attempt that failed or was cancelled, or a hedge, may have reached the
    /// upstream. Written by retry and hedging.
    pub(super) was_sent: bool,
    /// `true` if the upstream may have executed an attempt that failed or was cancelled. Written by
    /// retry and hedging.
    pub(super) may_have_run: bool,
    /// The replicas at which attempts of the call failed. The next attempt avoids them. Written by
    /// retry and hedging.
    pub(super) tried: Vec<ReplicaId>,
    /// `true` while a hedge of the call is in flight. Written by hedging.
    pub(super) is_hedging: bool,
    /// Number of input tokens, if the counting layer has counted them, otherwise `None`.
    pub(super) exact_input: Option<u64>,
}

/// What admission remembers about a call from one attempt to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueState {
    /// The fair-queue tag of the call, which determines its position in the queue and is reused by
    /// a retry. `None` before the first attempt was admitted.
    pub(crate) queue_tag: Option<Tag>,
    /// The id of the call in the queue of its target, from its latest wait. `None` if it has not
    /// been queued.
    pub(crate) waiter: Option<WaiterId>,
    /// How much of the wait budget (the maximum time in the queue) earlier waits have used. All
    /// attempts of a call share one budget.
    pub(crate) used_wait: Duration,
    /// How long the call has waited for a slot so far: in the queue, and in pauses because all
    /// replicas were full. Times in which the target was closed always count.
    pub(crate) waited: Duration,
    /// `true` if an attempt failed in a way that the call itself may have caused, for example
    /// because its request makes the server crash.
    pub(crate) has_failed: bool,
    /// The input and output tokens that were expected for the latest attempt when it was queued.
    /// `None` before the first attempt.
    pub(crate) demand: Option<Demand>,
}

impl Call {
    pub(crate) fn queue(&self) -> QueueState {
        self.state().queue
    }

    /// Changes what admission remembers about the call, by calling `write` under a lock.
    pub(crate) fn update_queue(&self, write: impl FnOnce(&mut QueueState)) {
        write(&mut self.state().queue);
    }

    /// Adds the record of an attempt that is queued `now`.
    pub(crate) fn attempt_queued(&self, now: Instant) {
        let attempts = &mut self.state().attempts;
        if attempts.is_empty() {
            // Most calls make one attempt.
            attempts.reserve_exact(1);
        } else if attempts.len() >= REMEMBERED {
            // A pool without free slots may reject a call with a long deadline many times.
            attempts.remove(1);
        }
        attempts.push(Attempt::queued(now));
    }

    /// Changes the record of the current attempt by calling `write`. Does nothing if the call has
    /// made no attempt.
    pub(crate) fn update_attempt(&self, write: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = self.state().attempts.last_mut() {
            write(attempt);
        }
    }

    /// Records that the request of the current attempt was handed to the transport.
    pub(crate) fn attempt_sent(&self, exchange: &ExchangeRecord) {
        let mut state = self.state();
        state.sent_attempts += 1;
        if let Some(attempt) = state.attempts.last_mut() {
            attempt.exchange = Some(exchange.clone());
        }
    }

    /// Returns why the call waits: the rule that keeps it in the queue or, at a target that several
    /// credentials or models use, the cool-down of those of the call. `None` if the call does not
    /// wait.
    pub(crate) fn why(&self) -> Option<WaitExplanation> {
        if let Some(why) =
            self.keyed_cooldown().and_then(|(cooldowns, key)| cooldowns.explain(key, self.queued_at()))
        {
            return Some(why);
        }
        let waiter = self.queue().waiter?;
        self.target().admission().explain(waiter)
    }

    /// Returns the record of the current attempt. `None` if the call has made no attempt.
    pub(crate) fn current_attempt(&self) -> Option<Attempt> {
        self.state().attempts.last().cloned()
    }

    /// Returns `true` if the current attempt waits for a slot.
    pub(crate) fn is_queued(&self) -> bool {
        let state = self.state();
        let last = state.attempts.last();
        last.is_some_and(|attempt| attempt.admitted_at.is_none() && attempt.released_at.is_none())
    }

    /// Returns `true` if the call needs a slot, and the call and its hedge hold none: the call has
    /// made no attempt, is queued, backs off, or has released its slot because the whole response
    /// has arrived.
    pub(crate) fn is_waiting(&self) -> bool {
        let state = self.state();
        let last = state.attempts.last();
        let holds_none =
            last.is_none_or(|attempt| attempt.admitted_at.is_none() || attempt.released_at.is_some());
        self.is_inference() && holds_none && !state.is_hedging
    }

    /// Returns when the request of the current attempt was handed to the transport. `None` if it
    /// was not.
    pub(crate) fn current_sent_at(&self) -> Option<Instant> {
        self.state().attempts.last().and_then(Attempt::sent_at)
    }

    /// Returns when the request of the current attempt was handed to the transport. If it was not,
    /// returns when the call was made.
    pub(crate) fn sent_at(&self) -> Instant {
        self.current_sent_at().unwrap_or(self.queued_at())
    }

    /// Returns the number of attempts whose request was handed to the transport.
    pub(crate) fn sent_attempts(&self) -> usize {
        self.state().sent_attempts
    }

    /// Removes and returns the records of all attempts. Called at the end of the call.
    pub(crate) fn take_attempts(&self) -> Vec<Attempt> {
        std::mem::take(&mut self.state().attempts)
    }

    /// Returns the input and output tokens that were expected for the latest attempt when it was
    /// queued. If no attempt was queued, returns the current estimate.
    pub(crate) fn expected_demand(&self) -> Demand {
        self.queue().demand.unwrap_or_else(|| self.demand(self.exact_input()))
    }

    /// Sets the number of input tokens that the counting layer has counted, at most
    /// [`MAX_INPUT`]: a server may answer any number.
    pub(crate) fn set_exact_input(&self, tokens: u64) {
        self.state().exact_input = Some(tokens.min(MAX_INPUT));
    }

    /// Returns the number of input tokens, if the counting layer has counted them, otherwise
    /// `None`.
    pub fn exact_input(&self) -> Option<u64> {
        self.state().exact_input
    }

    /// Returns the failure class of the attempt that failed last, as in metrics. `None` if no
    /// attempt has failed.
    pub(crate) fn last_failure(&self) -> Option<&'static str> {
        self.state().last_failure
    }

    /// Returns `true` if an attempt that failed or was cancelled, or a hedge, may have reached the
    /// upstream.
    pub(crate) fn was_sent(&self) -> bool {
        self.state().was_sent
    }

    /// Returns `true` if the upstream may have executed an attempt that failed or was cancelled.
    pub(crate) fn may_have_run(&self) -> bool {
        self.state().may_have_run
    }

    /// Returns the replica of the current attempt. `None` if it has no slot, or if the target is
    /// not a pool.
    pub(crate) fn placed(&self) -> Option<Placed> {
        self.state().attempts.last()?.placed.clone()
    }

    /// Makes the next attempt avoid a replica, as long as other replicas have free slots. Does
    /// nothing if `replica` is `None`.
    pub(crate) fn avoid(&self, replica: Option<Placed>) {
        let Some(Placed { id, .. }) = replica else { return };
        let mut state = self.state();
        if !state.tried.contains(&id) {
            state.tried.push(id);
        }
    }

    /// Adds the name of the target to an error and, for a pool, the URL of the current attempt's
    /// replica.
    pub(crate) fn locate_error(&self, error: Error) -> Error {
        let error = error.at(self.target().name());
        match self.placed() {
            Some(placed) => error.at_replica(&placed.url),
            None => error,
        }
    }
}

/// Returns the token usage that the provider reported for the last attempt that was admitted.
/// `None` if it reported none, or if no attempt was admitted.
pub(crate) fn usage_of(attempts: &[Attempt]) -> Option<Usage> {
    let last = attempts.iter().rev().find(|attempt| attempt.admitted_at.is_some())?;
    last.seen().usage
}
