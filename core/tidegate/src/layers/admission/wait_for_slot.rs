//! Waits for the slot of an attempt. Used by the admission layer, and by
//! [`Slot`](crate::slot::Slot) for calls that the gate does not send.

use crate::admission::{Entered, Permit, prompt_too_large};
use crate::call::Call;
use crate::clock;
use crate::error::{Error, ErrorKind, Reason};
use crate::schedule::Ticket;
use crate::target::KeyedCooldowns;

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
    let mut permit = acquire(call).await.inspect_err(|_| {
        let waited = clock::now().saturating_duration_since(queued_at);
        call.update_queue(|queue| queue.waited += waited);
    })?;
    permit.on_sent();
    call.update_queue(|queue| {
        queue.queue_tag = permit.queue_tag();
        queue.used_wait += permit.used_wait();
        queue.waited += permit.admitted_at().saturating_duration_since(queued_at);
    });
    call.update_attempt(|attempt| {
        attempt.admitted_at = Some(permit.admitted_at());
        attempt.in_flight = Some(permit.in_flight());
        attempt.placed = permit.placed().cloned();
    });
    call.metrics().on_admitted(call.lane(), permit.admitted_at().saturating_duration_since(queued_at));
    Ok(permit)
}

/// Acquires a slot for the next attempt. A hedge does not wait: it gets a slot only if one is free
/// at a replica that it does not avoid.
async fn acquire(call: &Call) -> Result<Permit, Error> {
    if call.is_hedge() {
        let ticket = new_ticket(call);
        let permit = call.target().admission().try_acquire(&ticket)?;
        return filter_avoided(permit, &ticket).ok_or_else(|| no_free_slot(call));
    }
    // What few calls need is boxed, so that the futures of the others stay smaller.
    if !call.is_enforced() {
        return Ok(Box::pin(acquire_observed(call)).await);
    }
    let group_wait = call.begin_group_wait();
    let keyed = call.keyed_cooldown();
    let permit = match keyed {
        None => match enter(call, checked_ticket(call)?) {
            Ok(Entered::Admitted(permit)) => Ok(permit),
            Ok(Entered::Queued(entry)) => Box::pin(entry.wait()).await,
            Err(error) => Err(error),
        },
        Some((cooldowns, key)) => Box::pin(acquire_keyed(call, cooldowns, key, None)).await,
    };
    // Calls with other keys may have come while this call was queued.
    let permit = match (permit, call.keyed_cooldown()) {
        (Ok(permit), Some((cooldowns, key))) if keyed.is_none() && !cooldowns.admit(key) => {
            Box::pin(acquire_keyed(call, cooldowns, key, Some(permit))).await
        }
        (permit, _) => permit,
    };
    if let Some(group_wait) = group_wait.filter(|_| permit.is_ok()) {
        group_wait.admitted();
    }
    permit.map_err(|error| call.target().explain_rejection(error))
}

/// Creates the ticket of the next attempt, and stores the expected tokens of the attempt in the
/// call.
fn new_ticket(call: &Call) -> Ticket {
    let ticket = call.ticket();
    call.update_queue(|queue| queue.demand = Some(ticket.demand));
    ticket
}

/// Returns the ticket of the call.
///
/// # Errors
/// `Refused` if the prompt is longer than the target permits.
fn checked_ticket(call: &Call) -> Result<Ticket, Error> {
    let ticket = new_ticket(call);
    match exceeded_max_prompt(call, &ticket) {
        Some(max_prompt) => {
            Err(prompt_too_large(call.target().name(), ticket.demand.min_input(), max_prompt))
        }
        None => Ok(ticket),
    }
}

/// Admits the call if that is possible at once. Otherwise queues it, and stores in the call its id
/// in the queue.
///
/// # Errors
/// `Refused` if the call may not wait.
fn enter(call: &Call, ticket: Ticket) -> Result<Entered<'_>, Error> {
    let queued = |waiter| call.update_queue(|queue| queue.waiter = Some(waiter));
    call.target().admission().enter(ticket, queued)
}

/// Returns the maximum length of prompts at the target of the call if its prompt is certainly
/// longer. An estimate that is too high must not reject calls.
fn exceeded_max_prompt(call: &Call, ticket: &Ticket) -> Option<u64> {
    call.target().config().max_prompt.filter(|max_prompt| ticket.demand.min_input() > *max_prompt)
}

/// Returns a slot for a call in mode `observe`, even if none is free. The decision of mode
/// `enforce` is counted in the metrics.
async fn acquire_observed(call: &Call) -> Permit {
    // No call waits in the queue until the pool has a replica, so it waits here.
    call.wait_for_first_lookup().await;
    let ticket = new_ticket(call);
    let (permit, would) = call.target().admission().force(&ticket);
    let held = call.keyed_cooldown().and_then(|(cooldowns, key)| cooldowns.explain(key, call.queued_at()));
    let would = would.or(held.map(|_| "wait"));
    let too_large = exceeded_max_prompt(call, &ticket).map(|_| Reason::TooLarge.as_str());
    if let Some(decision) = too_large.or(would) {
        call.target().metrics().on_observed_decision(decision);
    }
    permit
}

/// Waits for a slot of a target that several credentials and models use. The call is queued only
/// while its `key` (a credential and a model) does not cool down. `permit` is a slot that the call
/// has got although its key cools down, and which is released.
///
/// # Errors
/// `Refused` if the cool-down or the queue rejects the call.
///
/// # Cancel safety
/// Dropping the future removes the call from the queue.
async fn acquire_keyed(
    call: &Call,
    cooldowns: &KeyedCooldowns,
    key: u64,
    mut permit: Option<Permit>,
) -> Result<Permit, Error> {
    let (admission, config) = (call.target().admission(), call.target().config());
    // A call that was accepted once is not rejected later because too many others wait.
    let mut is_accepted = permit.is_some();
    loop {
        if let Some(permit) = permit.take() {
            call.update_queue(|queue| queue.used_wait += permit.used_wait());
        }
        let ticket = Ticket { is_accepted, ..checked_ticket(call)? };
        let waits_from = clock::now();
        let may_wait = |until| admission.may_wait_until(&ticket, until);
        let has_waited = cooldowns.wait(key, &ticket, config, may_wait).await;
        is_accepted |= has_waited.map_err(|rejection| admission.rejection_error(rejection))?;
        // With a fallback, wait budgets run during cool-downs.
        if config.fallback.is_some() {
            let waited = clock::now().saturating_duration_since(waits_from);
            call.update_queue(|queue| queue.used_wait += waited);
        }
        let admitted = enter(call, Ticket { is_accepted, ..new_ticket(call) })?.permit().await?;
        is_accepted = true;
        if cooldowns.admit(key) {
            return Ok(admitted);
        }
        // A cool-down of the key began while the call was queued.
        permit = Some(admitted);
    }
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
