//! What happens to every attempt at its target's door, whoever makes it: the layer, or the holder of a slot.

use super::Permit;
use super::refused::over_maximum;
use crate::call::{Call, ExchangeRecord, Seen};
use crate::clock;
use crate::cooldown::{Failure, Hold};
use crate::error::{Error, ErrorKind, Reason};
use crate::estimate::LengthSample;
use crate::placement::Fault;
use crate::schedule::{Settled, Ticket, WaiterId};
use crate::target::{SharedCooldowns, Stay};
use crate::wire::Usage;
use tidegate_policy::outcome::AttemptOutcome;

/// A slot for the call's next attempt, as soon as there is one.
///
/// *Cancellation safety*: dropping the future leaves the queue.
pub(crate) async fn admit(call: &Call) -> Result<Permit, Error> {
    let queued_at = clock::now();
    call.attempt_queued(queued_at);
    let mut permit = acquire(call).await?;
    permit.sent();
    call.update_queue(|queue| {
        queue.charged = permit.charged();
        queue.spent += permit.spent();
    });
    call.attempt_admitted(permit.admitted_at(), permit.in_flight(), permit.placed().cloned());
    call.metrics().admitted(call.lane(), permit.admitted_at().saturating_duration_since(queued_at));
    Ok(permit)
}

async fn acquire(call: &Call) -> Result<Permit, Error> {
    let target = call.target();
    let admission = target.admission();
    let ticket = call.ticket();
    let most = target.config().max_prompt.filter(|most| ticket.demand.input > *most);
    if call.is_twin() {
        return at_another(admission.try_acquire(&ticket)?, &ticket).ok_or_else(|| none_free(call));
    }
    if call.is_enforced() {
        if let Some(most) = most {
            return Err(over_maximum(target.name(), ticket.demand.input, most));
        }
        let asking = call.asks();
        let permit = match call.shared() {
            None => admission.acquire_from(ticket, |waiter| queued(call, waiter)).await,
            Some((cooldowns, key)) => acquire_shared(call, cooldowns, key).await,
        };
        if let Some(asking) = asking.filter(|_| permit.is_ok()) {
            asking.admitted();
        }
        return permit.map_err(|error| target.admit_ignorance(error));
    }
    // Nobody waits in a queue here until there is a replica.
    call.replicas_known().await;
    let (permit, would) = admission.force(&ticket);
    let held = call.shared().and_then(|(shared, key)| shared.explain(key, call.queued_at()));
    let would = would.or(held.map(|_| "wait"));
    if let Some(decision) = most.map(|_| Reason::TooLarge.as_str()).or(would) {
        call.target().metrics().would(decision);
    }
    Ok(permit)
}

/// Waits for a slot of a target that the call shares with other credentials and models.
///
/// # Cancel safety
/// Dropping the future leaves the queue.
async fn acquire_shared(call: &Call, cooldowns: &SharedCooldowns, key: u64) -> Result<Permit, Error> {
    let admission = call.target().admission();
    loop {
        let waited = cooldowns.wait(key, call.queued_at(), call.deadline()).await;
        waited.map_err(|refusal| admission.refused(refusal))?;
        let permit = admission.acquire_from(call.ticket(), |waiter| queued(call, waiter)).await?;
        if cooldowns.admit(key) {
            return Ok(permit);
        }
        // A Retry-After for the key came while the call queued: the slot is given back.
        call.update_queue(|queue| queue.spent += permit.spent());
    }
}

fn queued(call: &Call, waiter: WaiterId) {
    call.update_queue(|queue| queue.waiter = Some(waiter));
}

/// A slot at a replica that the call does not avoid.
fn at_another(permit: Option<Permit>, ticket: &Ticket) -> Option<Permit> {
    let avoid = ticket.wants.as_ref().map_or(&[][..], |wants| &wants.avoid);
    permit.filter(|permit| permit.placed().is_some_and(|placed| !avoid.contains(&placed.id)))
}

fn none_free(call: &Call) -> Error {
    let text = "no other replica has a slot free";
    Error::new(ErrorKind::Refused(Reason::NoSlot), text).at(call.target().name())
}

/// Applies the outcome of an attempt to its target, or to its replica, and returns what follows for
/// the call.
pub(crate) fn apply(call: &Call, permit: &mut Permit, outcome: &AttemptOutcome) -> Hold {
    if outcome.is_inconclusive() {
        return Hold::No;
    }
    if outcome.may_be_fault_of_call() {
        call.update_queue(|queue| queue.has_failed = true);
    }
    let hold = if permit.placed().is_some() {
        Fault::from_outcome(outcome, false).map(|fault| permit.failed_there(fault))
    } else {
        Failure::from_outcome(outcome, call.has_own_deadline()).map(|failure| match call.shared() {
            Some((shared, key)) => shared.on_failure(key, call.sent_at(), outcome.retry_after()),
            None => permit.failed(call.id(), failure, outcome.retry_after()),
        })
    };
    let Some(hold) = hold else {
        permit.succeeded();
        if let Some((shared, key)) = call.shared() {
            shared.on_success(key);
        }
        return Hold::No;
    };
    if matches!(hold, Hold::CoolDown | Hold::Outage) {
        call.target().metrics().cooled(hold);
        tracing::debug!(target = %call.target().name(), ?hold, "held back");
    }
    hold
}

/// Puts the books right when the attempt is over. What is not known is left as it was reserved.
///
/// - An answer that came whole, and was counted by its provider: what it took, and what others like it will.
/// - One that broke off, or was let go: what it had produced by then, which is what providers count that do not count at arrival. Others like it are at
///   least as long.
/// - One without usage: its length in deltas teaches what answers take; the reservation stands.
///
/// `sample` is what was observed of its length on the way.
pub(super) fn settle(call: &Call, permit: &mut Permit, exchange: &ExchangeRecord, sample: &mut LengthSample) {
    let (sent_at, now) = (exchange.sent_at(), clock::now());
    let expected = call.target().expected();
    let held = Some(Stay {
        to_first_token: exchange.first_token_at().map(|first| first.saturating_duration_since(sent_at)),
        to_end: now.saturating_duration_since(sent_at),
    });
    let (produced, Seen { usage, is_complete, .. }) = (exchange.tokens(), exchange.seen());
    match usage {
        Some(usage) if is_complete => {
            expected.learn(call.facts(), call.tenant(), sample, &usage, held);
            permit.settle(&Settled { usage, cost: expected.charged(usage.input, usage.output, held) });
        }
        None if is_complete => {
            let usage = Usage { output: produced, ..Usage::default() };
            expected.learn(call.facts(), call.tenant(), sample, &usage, held);
        }
        _ if produced > 0 => {
            let seen = usage.unwrap_or_default();
            let input = if seen.input > 0 { seen.input } else { call.expected().input };
            let usage = Usage { input, output: seen.output.max(produced), ..seen };
            expected.observe(call.facts(), call.tenant(), sample, usage.output);
            permit.settle(&Settled { usage, cost: expected.charged(usage.input, usage.output, held) });
        }
        _ => {}
    }
}
