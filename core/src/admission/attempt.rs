//! What happens to every attempt at its target's door, whoever makes it: the layer, or the holder of a slot.

use std::time::Duration;

use http::Response;

use super::Permit;
use super::refused::over_maximum;
use crate::body::ResponseBody;
use crate::call::Call;
use crate::clock;
use crate::cooldown::{Failure, Hold};
use crate::error::{Error, ErrorKind, Reason};
use crate::estimate::LengthSample;
use crate::placement::Fault;
use crate::schedule::{Settled, Ticket};
use crate::target::{SharedCooldowns, Stay};
use crate::wire::Usage;
use crate::wire::classify::{Class, Verdict};

/// A slot for the call's next attempt, as soon as there is one.
///
/// *Cancellation safety*: dropping the future leaves the queue.
pub(crate) async fn admit(call: &Call) -> Result<Permit, Error> {
    let queued_at = clock::now();
    call.attempt_queued(queued_at);
    let mut permit = acquire(call).await?;
    permit.sent();
    call.attempt_admitted(&permit);
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
            None => admission.acquire_from(ticket, |waiter| call.stands_at(waiter)).await,
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
        let permit = admission.acquire_from(call.ticket(), |waiter| call.stands_at(waiter)).await?;
        if cooldowns.admit(key) {
            return Ok(permit);
        }
        // A Retry-After for the key came while the call queued: the slot is given back.
        call.waited(&permit);
    }
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

/// How an attempt ended, for its judge.
pub(crate) enum End<'a> {
    /// With an answer, or a refusal.
    Answered(Option<&'a Verdict>),
    /// Without one.
    Failed(&'a Error),
    /// Without one, as the holder of a slot says; who perhaps was told when to come back.
    Lost(Option<Duration>),
}

impl<'a> End<'a> {
    pub(crate) fn of(result: &'a Result<Response<ResponseBody>, Error>) -> Self {
        match result {
            Ok(response) => End::Answered(response.extensions().get()),
            Err(error) => End::Failed(error),
        }
    }

    /// Whether nothing is to be concluded from it.
    fn says_nothing(&self, call: &Call) -> bool {
        matches!(self, End::Failed(error) if error.is_local() || call.was_impatient(error))
    }

    /// What it means for a target, and the delay that it asked for; `None` where it says nothing against it.
    fn against_target(&self, call: &Call) -> Option<(Failure, Option<Duration>)> {
        match *self {
            End::Answered(verdict) => {
                let verdict = verdict.filter(|verdict| verdict.retryable)?;
                // A rate limit turns away unread too, but does not mean that the target is down.
                let failure = match verdict.class {
                    Class::Overloaded => Failure::Unread { worth_waiting: true },
                    Class::RateLimited => Failure::Limited,
                    _ => Failure::Other,
                };
                Some((failure, verdict.delay))
            }
            End::Failed(error) if error.never_sent() => {
                Some((Failure::Unread { worth_waiting: call.has_own_deadline() }, None))
            }
            End::Failed(_) => Some((Failure::Other, None)),
            End::Lost(delay) => Some((Failure::Other, delay)),
        }
    }

    /// Returns `true` if the failure may be the call's own doing: the call ran, or may have.
    fn may_be_own(&self) -> bool {
        match self {
            End::Answered(verdict) => {
                let class = verdict.filter(|verdict| verdict.retryable).map(|verdict| verdict.class);
                class.is_some_and(|class| !matches!(class, Class::RateLimited | Class::Overloaded))
            }
            End::Failed(error) => !error.never_sent(),
            End::Lost(delay) => delay.is_none(),
        }
    }

    /// What it means for the replica that had it.
    fn against_replica(&self) -> Option<Fault> {
        match self {
            End::Answered(verdict) => {
                let verdict = verdict.filter(|verdict| verdict.retryable)?;
                match verdict.class {
                    Class::Overloaded => Some(Fault::Full(verdict.delay)),
                    Class::RateLimited => Some(Fault::Limited(verdict.delay)),
                    Class::ServerError | Class::Timeout => Some(Fault::Broke),
                    _ => None,
                }
            }
            End::Failed(error) if error.is_nobody() => Some(Fault::Gone),
            End::Failed(error) if error.never_sent() => Some(Fault::Unreached),
            End::Failed(_) | End::Lost(_) => Some(Fault::Broke),
        }
    }
}

/// Tells the target's cool-down, or its replica's, how the attempt went.
pub(crate) fn judge(call: &Call, permit: &mut Permit, end: &End<'_>) -> Hold {
    if end.says_nothing(call) {
        return Hold::No;
    }
    if end.may_be_own() {
        call.set_has_failed();
    }
    let hold = if permit.placed().is_some() {
        end.against_replica().map(|fault| permit.failed_there(fault))
    } else {
        let against = end.against_target(call);
        against.map(|(failure, delay)| match call.shared() {
            Some((shared, key)) => shared.on_failure(key, call.sent_at(), delay),
            None => permit.failed(call.id(), failure, delay),
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
pub(crate) fn settle(call: &Call, permit: &mut Permit, sample: &mut LengthSample) {
    let now = clock::now();
    let Some((attempt, usage)) = call.taken() else { return };
    let expected = call.target().expected();
    let held = attempt.sent_at.map(|sent| Stay {
        to_first_token: attempt.first_token_at.map(|first| first.saturating_duration_since(sent)),
        to_end: now.saturating_duration_since(sent),
    });
    let produced = call.progress().tokens();
    match usage {
        Some(usage) if attempt.complete => {
            expected.learn(call.facts(), call.tenant(), sample, &usage, held);
            permit.settle(&Settled { usage, cost: expected.charged(usage.input, usage.output, held) });
        }
        None if attempt.complete => {
            expected.learn(
                call.facts(),
                call.tenant(),
                sample,
                &Usage { output: produced, ..Usage::default() },
                held,
            );
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
