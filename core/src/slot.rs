//! Slots held by name, for calls that go around every HTTP client: gRPC, boto3, websockets.
//!
//! The same door, the same queue and the same books as for every other call; only the exchange is
//! somebody else's, so its holder says how it went. What it does not say is not guessed: a slot
//! that is dropped without a word says nothing of its target.
//!
//! There is one attempt, and no retry: what would have to be repeated is the holder's. Nor can an
//! exchange be ended that is not ours: the deadline bounds the wait, and a slot is held until it is
//! dropped.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::active::Active;
use crate::admission::layer::{admit, apply};
use crate::admission::{Permit, TaskSlotGuard};
use crate::call::{Call, ExchangeRecord};
use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::observe::{CallLog, Outcome, Tally};
use crate::wire::{RateHeaders, classify};
use tidegate_policy::outcome::{AttemptOutcome, ExchangeFailure, FailureCause};

/// A slot of a target, held. Dropping it gives it back, exactly once.
///
/// Say how the call went before that; the first word counts. Without one the call is counted as
/// cancelled, and its target learns nothing.
#[must_use = "dropping the slot gives it back"]
pub struct Slot(Option<Held>);

struct Held {
    permit: Permit,
    exchange: ExchangeRecord,
    told: bool,
    /// The holder's task may ask for tools meanwhile.
    _task_slot: Option<TaskSlotGuard>,
    // Behind the permit: the books are closed when the slot is back.
    tally: Tally,
}

impl Slot {
    /// In mode `off` there is nothing to hold.
    pub(crate) fn of_nothing() -> Self {
        Self(None)
    }

    /// Waits for the call's slot.
    pub(crate) async fn take(call: Call, log: Arc<CallLog>, active: &Arc<Active>) -> Result<Self, Error> {
        let mut tally = Tally::open(call.clone(), log, active);
        let permit = admit(&call).await.map_err(|error| error.of_call(call.id()));
        let mut permit = permit.inspect_err(|error| tally.failed(error))?;
        let exchange = ExchangeRecord::new(clock::now());
        call.attempt_sent(exchange.clone());
        call.target().metrics().attempted(permit.placed());
        // Whoever holds it could not be told that it is wanted back.
        permit.on_response();
        permit.detach();
        // There is no answer to read ahead.
        let task_slot = call.task_slots().map(|(slots, task)| slots.enter(task, call.target().name(), None));
        Ok(Self(Some(Held { permit, exchange, told: false, _task_slot: task_slot, tally })))
    }

    /// Where its target is a pool, the base URL of the replica that the slot is at: the call is to
    /// go there. `None` for any other target, and in mode `off`, where nobody chooses.
    pub fn replica(&self) -> Option<&str> {
        self.0.as_ref()?.permit.placed().map(|placed| &*placed.url)
    }

    /// The upstream did what it was asked: the target is up.
    pub fn succeeded(&mut self) {
        if let Some((call, held)) = self.untold() {
            held.exchange.update(|seen| seen.is_complete = true);
            apply(&call, &mut held.permit, &AttemptOutcome::Accepted { streams: false });
            held.tally.ended(Outcome::Completed);
        }
    }

    /// The upstream failed the call: with this status, or, where there is none, by breaking off.
    /// Judged as the answer to any attempt is: 429, 503, 529 and other failures that may pass can
    /// cool the target down, for `retry_after` where the upstream said so; 400 or 404 say that it
    /// is up. Of gRPC's codes RESOURCE_EXHAUSTED is 429, UNAVAILABLE 503, DEADLINE_EXCEEDED 504,
    /// INTERNAL 500.
    ///
    /// Returns whether the same call may succeed later.
    pub fn failed(&mut self, status: Option<StatusCode>, retry_after: Option<Duration>) -> bool {
        let outcome = match status {
            Some(status) => {
                let mut verdict = classify(status, &HeaderMap::new(), b"", clock::wall());
                verdict.delay = retry_after.filter(|_| verdict.retryable);
                AttemptOutcome::Rejected(verdict)
            }
            None => AttemptOutcome::Failed(ExchangeFailure {
                kind: ErrorKind::Transport,
                cause: FailureCause::Upstream,
                retry_after,
            }),
        };
        if let Some((call, held)) = self.untold() {
            held.exchange.update(|seen| {
                seen.status = status.map(|status| status.as_u16());
                seen.is_failed = true;
            });
            call.on_failed_attempt(&outcome);
            if outcome.is_rate_limited() {
                held.permit.on_rate_headers(held.exchange.sent_at(), &RateHeaders::default(), true);
            }
            apply(&call, &mut held.permit, &outcome);
            held.tally.ended(Outcome::Failed);
        }
        outcome.is_retryable()
    }

    /// What is held, the first time that its holder says something.
    fn untold(&mut self) -> Option<(Call, &mut Held)> {
        let held = self.0.as_mut()?;
        let told = std::mem::replace(&mut held.told, true);
        (!told).then(|| (held.tally.call().clone(), held))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.tally.call().attempt_released();
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Slot").field(&self.0.as_ref().map(|held| &held.permit)).finish()
    }
}
