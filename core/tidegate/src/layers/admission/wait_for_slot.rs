//! Waits for the slot of an attempt. Used by the admission layer, and by
//! [`Slot`](crate::slot::Slot) for calls that the gate does not send.

use crate::admission::{Permit, prompt_too_large};
use crate::call::Call;
use crate::clock;
use crate::error::{Error, ErrorKind, Reason};
use crate::schedule::{Ticket, WaiterId};
use crate::target::SharedCooldowns;

/// Waits for a slot for the next attempt of the call, and records the attempt in the call.
///
/// # Errors
/// `Refused` if admission rejects the call.
///
/// # Cancel safety
/// Dropping the future removes the call from the queue.
pub(crate) async fn admit(call: &Call) -> Result<Permit, Error> {
    let queued_at = clock::now();
    call.attempt_queued(queued_at);
    let mut permit = acquire(call).await?;
    permit.on_sent();
    call.update_queue(|queue| {
        queue.charged = permit.charged();
        queue.used_wait += permit.used_wait();
        queue.waited += permit.admitted_at().saturating_duration_since(queued_at);
    });
    call.update_attempt(|attempt| {
        attempt.admitted_at = Some(permit.admitted_at());
        attempt.in_flight = Some(permit.in_flight());
        attempt.placed = permit.placed().cloned();
    });
    call.metrics().admitted(call.lane(), permit.admitted_at().saturating_duration_since(queued_at));
    Ok(permit)
}

/// Acquires a slot for the next attempt. A hedge does not wait: it gets a slot only if one is free
/// at a replica that it does not avoid. In mode `observe`, a call gets a slot even if none is free,
/// and the decision of mode `enforce` is counted in the metrics.
async fn acquire(call: &Call) -> Result<Permit, Error> {
    let target = call.target();
    let admission = target.admission();
    let ticket = call.ticket();
    let max_prompt = target.config().max_prompt.filter(|max_prompt| ticket.demand.input > *max_prompt);
    if call.is_hedge() {
        return filter_avoided(admission.try_acquire(&ticket)?, &ticket).ok_or_else(|| no_free_slot(call));
    }
    if call.is_enforced() {
        if let Some(max_prompt) = max_prompt {
            return Err(prompt_too_large(target.name(), ticket.demand.input, max_prompt));
        }
        let group_wait = call.begin_group_wait();
        let permit = match call.shared() {
            None => admission.acquire_from(ticket, |waiter| queued(call, waiter)).await,
            Some((cooldowns, key)) => acquire_shared(call, cooldowns, key).await,
        };
        if let Some(group_wait) = group_wait.filter(|_| permit.is_ok()) {
            group_wait.admitted();
        }
        return permit.map_err(|error| target.explain_rejection(error));
    }
    // In mode `observe` no call waits in the queue until the pool has a replica, so it waits here.
    call.replicas_known().await;
    let (permit, would) = admission.force(&ticket);
    let held = call.shared().and_then(|(shared, key)| shared.explain(key, call.queued_at()));
    let would = would.or(held.map(|_| "wait"));
    if let Some(decision) = max_prompt.map(|_| Reason::TooLarge.as_str()).or(would) {
        call.target().metrics().would(decision);
    }
    Ok(permit)
}

/// Waits for a slot of a shared target. The call is queued only while its `key` (a credential and a
/// model) does not cool down.
///
/// # Errors
/// `Refused` if the cool-down or the queue rejects the call.
///
/// # Cancel safety
/// Dropping the future removes the call from the queue.
async fn acquire_shared(call: &Call, cooldowns: &SharedCooldowns, key: u64) -> Result<Permit, Error> {
    let admission = call.target().admission();
    loop {
        let waited = cooldowns.wait(key, call.queued_at(), call.deadline()).await;
        waited.map_err(|rejection| admission.rejection_error(rejection))?;
        let permit = admission.acquire_from(call.ticket(), |waiter| queued(call, waiter)).await?;
        if cooldowns.admit(key) {
            return Ok(permit);
        }
        // A cool-down of the key began while the call was queued, so the slot is released.
        call.update_queue(|queue| queue.used_wait += permit.used_wait());
    }
}

/// Stores in the call the id `waiter`, which the call has in the queue of its target.
fn queued(call: &Call, waiter: WaiterId) {
    call.update_queue(|queue| queue.waiter = Some(waiter));
}

/// Returns `permit` if its slot is at a replica that the call does not avoid. Otherwise, also if
/// the slot is at no replica, drops the permit and returns `None`.
fn filter_avoided(permit: Option<Permit>, ticket: &Ticket) -> Option<Permit> {
    let avoid = ticket.wants.as_ref().map_or(&[][..], |wants| &wants.avoid);
    permit.filter(|permit| permit.placed().is_some_and(|placed| !avoid.contains(&placed.id)))
}

/// Returns the error of a hedge for which no other replica has a free slot.
fn no_free_slot(call: &Call) -> Error {
    let text = "no other replica has a free slot";
    Error::new(ErrorKind::Refused(Reason::NoSlot), text).at(call.target().name())
}
