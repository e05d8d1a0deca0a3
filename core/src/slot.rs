//! Slots held by name, for calls that go around every HTTP client: gRPC, boto3, websockets.
//!
//! Limits, queue and metrics are the same as for every other call. The exchange is the holder's
//! own, so the holder reports how it went. Nothing is concluded from a slot that is dropped without
//! a report.
//!
//! There is one attempt and no retry, because the gate cannot repeat the exchange. Nor can the gate
//! end it: the deadline bounds the wait only, and a slot is held until it is dropped.

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
use tidegate_policy::outcome::{AttemptOutcome, ExchangeFailure, FailureCause};
use tidegate_protocol::{RateHeaders, classify};

/// A slot of a target, held. Dropping it releases the slot, exactly once.
///
/// Report how the call went before that; the first report counts. Without one, the call counts as
/// cancelled, and nothing is concluded for its target.
#[must_use = "dropping the slot gives it back"]
pub struct Slot(Option<Held>);

struct Held {
    permit: Permit,
    exchange: ExchangeRecord,
    told: bool,
    /// Lets the holder's task be seen when it asks for a tool.
    _task_slot: Option<TaskSlotGuard>,
    // Dropped after the permit: the call is recorded when the slot is released.
    tally: Tally,
}

impl Slot {
    /// Creates a slot that holds nothing, for the mode `off`.
    pub(crate) fn of_nothing() -> Self {
        Self(None)
    }

    /// Waits for the slot of a call.
    pub(crate) async fn take(call: Call, log: Arc<CallLog>, active: &Arc<Active>) -> Result<Self, Error> {
        let mut tally = Tally::open(call.clone(), log, active);
        let permit = admit(&call).await.map_err(|error| error.of_call(call.id()));
        let mut permit = permit.inspect_err(|error| tally.failed(error))?;
        let exchange = ExchangeRecord::new(clock::now());
        call.attempt_sent(exchange.clone());
        call.target().metrics().attempted(permit.placed());
        // The holder cannot be told to give the slot up.
        permit.on_response();
        permit.detach();
        // The gate has no response to read ahead.
        let task_slot = call.task_slots().map(|(slots, task)| slots.enter(task, call.target().name(), None));
        Ok(Self(Some(Held { permit, exchange, told: false, _task_slot: task_slot, tally })))
    }

    /// Returns the base URL of the replica that the call must go to, if the target is a pool.
    /// `None` for any other target, and in the mode `off`.
    pub fn replica(&self) -> Option<&str> {
        self.0.as_ref()?.permit.placed().map(|placed| &*placed.url)
    }

    /// Reports that the upstream accepted the call: the target is up.
    pub fn succeeded(&mut self) {
        if let Some((call, held)) = self.untold() {
            held.exchange.update(|seen| seen.is_complete = true);
            apply(&call, &mut held.permit, &AttemptOutcome::Accepted { streams: false });
            held.tally.ended(Outcome::Completed);
        }
    }

    /// Reports that the upstream failed the call: with this status, or by breaking off if `None`.
    ///
    /// The report is classified as any other attempt is. 429, 503, 529 and other transient failures
    /// can cool the target down, for `retry_after` if the upstream asked for that; 400 or 404 show
    /// that it is up. For gRPC, RESOURCE_EXHAUSTED is 429, UNAVAILABLE 503, DEADLINE_EXCEEDED 504,
    /// INTERNAL 500.
    ///
    /// Returns `true` if the same call may succeed later.
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

    /// Returns what is held, at the first report only.
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
