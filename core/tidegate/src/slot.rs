//! Slots for calls that the application sends itself, such as calls over gRPC, boto3 or websockets.
//!
//! Limits, queue and metrics are the same as for other calls. The application makes the exchange,
//! so it also reports how the exchange ended. A slot that is dropped without a report does not
//! affect the state of its target.
//!
//! The gate cannot repeat the exchange, so there is one attempt and no retry. The gate cannot end
//! the exchange either: the deadline limits only the wait, and the slot is held until it is
//! dropped.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::active_calls::Active;
use crate::admission::{Permit, TaskSlotGuard};
use crate::call::{Call, ExchangeRecord};
use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::layers::admission::{admit, apply};
use crate::layers::observe::{CallLog, OpenRecord};
use crate::metrics::Outcome;
use tidegate_policy::outcome::{AttemptOutcome, ExchangeFailure, FailureCause};
use tidegate_protocol::{RateHeaders, classify};

/// A slot of a target, acquired with [`Gate::acquire_slot`](crate::Gate::acquire_slot). Dropping it
/// releases the slot.
///
/// Report the result of the call before dropping the slot. Only the first report counts. Without a
/// report, the call counts as cancelled, and the state of the target does not change.
///
/// ```no_run
/// # async fn run(gate: tidegate::Gate) -> Result<(), tidegate::Error> {
/// let mut slot = gate.acquire_slot("openai", &tidegate::Context::default()).await?;
/// // Make the call here.
/// slot.succeeded();
/// # Ok(()) }
/// ```
#[must_use = "dropping the slot releases it"]
pub struct Slot(Option<AcquiredSlot>);

/// The contents of a [`Slot`] in modes `enforce` and `observe`.
struct AcquiredSlot {
    permit: Permit,
    exchange: ExchangeRecord,
    is_reported: bool,
    /// The guard that lists this slot among those of the caller's task, for the warning when the
    /// task waits for a tool. `None` if no tools are configured or the task is unknown.
    _task_slot: Option<TaskSlotGuard>,
    // Dropped after the permit: the call is recorded when the slot is released.
    record: OpenRecord,
}

impl Slot {
    /// Creates a slot for mode `off`, which takes no capacity and whose reports have no effect.
    pub(crate) fn empty() -> Self {
        Self(None)
    }

    /// Waits for a slot of the target of `call`. The call is recorded in `log` when the slot is
    /// released.
    ///
    /// # Errors
    /// `Refused` if admission rejects the call.
    ///
    /// # Cancel safety
    /// Dropping the future removes the call from the queue.
    pub(crate) async fn acquire(call: Call, log: Arc<CallLog>, active: &Arc<Active>) -> Result<Self, Error> {
        let mut record = OpenRecord::open(call.clone(), log, active);
        let permit = admit(&call).await.map_err(|error| error.with_call(call.id()));
        let mut permit = permit.inspect_err(|error| record.failed(error))?;
        let exchange = ExchangeRecord::new(clock::now());
        call.attempt_sent(&exchange);
        call.target().metrics().on_attempt(permit.placed());
        // The holder cannot be asked to release the slot early.
        permit.on_response_head();
        // The gate has no response that it could read ahead.
        let task_slot = call.task_slots().map(|(slots, task)| slots.enter(task, call.target().name(), None));
        Ok(Self(Some(AcquiredSlot { permit, exchange, is_reported: false, _task_slot: task_slot, record })))
    }

    /// Returns the base URL of the replica to which the call must be sent. `None` if the target is
    /// not a pool, and in mode `off`.
    pub fn replica(&self) -> Option<&str> {
        self.0.as_ref()?.permit.placed().map(|placed| &*placed.url)
    }

    /// Reports that the upstream accepted the call. Has no effect if a report was already made.
    pub fn succeeded(&mut self) {
        if let Some((call, held)) = self.first_report() {
            held.exchange.update(|record| record.is_complete = true);
            apply(&call, &mut held.permit, &AttemptOutcome::Accepted { streams: false });
            held.record.set_outcome(Outcome::Completed);
        }
    }

    /// Reports that the call failed: with the HTTP status `status` or, if it is `None`, because the
    /// connection broke. Returns `true` if the same call may succeed later. If a report was already
    /// made, only returns this value.
    ///
    /// The failure is classified as any other. A transient failure such as 429, 503 or 529 can
    /// start a cool-down of the target, during which no call is sent to it. `retry_after` is the
    /// delay that the upstream asked for, or `None` if it asked for none. Failures such as 400 and
    /// 404 show that the target is up. A call that the upstream did not execute (429, 503, 529) is
    /// not charged. The gRPC codes correspond to these statuses: RESOURCE_EXHAUSTED 429,
    /// UNAVAILABLE 503, DEADLINE_EXCEEDED 504, INTERNAL 500.
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
        if let Some((call, held)) = self.first_report() {
            held.exchange.update(|record| {
                record.status = status.map(|status| status.as_u16());
                record.is_failed = true;
            });
            call.on_failed_attempt(&outcome);
            let is_by_rate = || outcome.retry_after().is_some() || held.permit.is_budget_exhausted();
            if let Some(ended) = outcome.ended(false, is_by_rate) {
                held.permit.set_ended(ended);
            }
            if outcome.is_rate_limited() {
                held.permit.on_rate_headers(held.exchange.sent_at(), &RateHeaders::default(), true);
            }
            apply(&call, &mut held.permit, &outcome);
            held.record.set_outcome(Outcome::Failed);
        }
        outcome.is_retryable()
    }

    /// Marks the slot as reported. Returns its call and its contents if this is the first report.
    /// Returns `None` if a report was already made, or in mode `off`.
    fn first_report(&mut self) -> Option<(Call, &mut AcquiredSlot)> {
        let held = self.0.as_mut()?;
        let is_reported = std::mem::replace(&mut held.is_reported, true);
        (!is_reported).then(|| (held.record.call().clone(), held))
    }
}

impl Drop for AcquiredSlot {
    fn drop(&mut self) {
        self.record.call().update_attempt(|attempt| attempt.released_at = Some(clock::now()));
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Slot").field(&self.0.as_ref().map(|held| &held.permit)).finish()
    }
}
