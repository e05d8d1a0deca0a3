//! What happens to every attempt at its target's door, whoever makes it: the layer, or the holder of a slot.

use std::time::Duration;

use super::Permit;
use crate::call::Call;
use crate::clock;
use crate::cooldown::{Failure, Hold};
use crate::error::Error;
use crate::wire::classify::{Class, Verdict};

/// A slot for the call's next attempt, as soon as there is one.
///
/// *Cancellation safety*: dropping the future leaves the queue.
pub(crate) async fn admit(call: &Call) -> Result<Permit, Error> {
    let queued_at = clock::now();
    call.attempt_queued(queued_at);
    let permit = acquire(call).await?;
    call.attempt_admitted(permit.admitted_at(), permit.charged(), permit.spent());
    call.metrics().admitted(call.lane(), permit.admitted_at().saturating_duration_since(queued_at));
    Ok(permit)
}

async fn acquire(call: &Call) -> Result<Permit, Error> {
    let admission = call.target().admission();
    let ticket = call.ticket();
    if call.is_enforced() {
        return admission.acquire_from(ticket, |waiter| call.stands_at(waiter)).await;
    }
    let (permit, would) = admission.force(&ticket);
    if let Some(decision) = would {
        call.target().metrics().would(decision);
    }
    Ok(permit)
}

/// What an upstream's refusal means for its target, and the delay that it asked for; `None` where it says nothing against the target.
pub(crate) fn weigh(verdict: &Verdict) -> Option<(Failure, Option<Duration>)> {
    // A rate limit turns away unread too, but does not mean that the target is down.
    let away = verdict.class == Class::Overloaded;
    let failure = if away { Failure::Unread { worth_waiting: true } } else { Failure::Other };
    verdict.retryable.then_some((failure, verdict.delay))
}

/// Tells the target's cool-down how the attempt went.
pub(crate) fn judge(call: &Call, permit: &mut Permit, failed: Option<(Failure, Option<Duration>)>) -> Hold {
    let Some((failure, delay)) = failed else {
        permit.succeeded();
        return Hold::No;
    };
    let hold = permit.failed(call.id(), failure, delay);
    if hold != Hold::No {
        call.target().metrics().cooled(hold);
        tracing::debug!(target = %call.target().name(), ?hold, ?delay, "held back");
    }
    hold
}
