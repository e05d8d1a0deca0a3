//! The messages of rejections: what blocked the call, and what to do about it.

use std::fmt::Write;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Reason};
use crate::schedule::{Refusal, Rule};

/// The advice for a call that is too large.
const SMALLER: &str = "shorten the prompt or lower `max_tokens`, send it to another target, or as a batch";

/// Returns the scheduler's rejection as an error. `hint` says what to change if the target has too
/// few slots.
pub(super) fn rejection_error(target: &Arc<str>, hint: &str, refusal: &Refusal) -> Error {
    let mut text = what(refusal);
    let rule = refusal.why.map(|why| why.rule);
    if refusal.reason == Reason::TooLarge {
        let _ = write!(text, ": {SMALLER}");
    } else {
        let _ = write!(text, "; {} of this tenant's calls are ahead", refusal.position);
        if let Some(after) = refusal.retry_after {
            let _ = write!(text, "; try again in {:.1} s", after.as_secs_f64());
        }
        if let Some(rule) = rule.filter(|_| waits(refusal.reason)) {
            let _ = write!(text, " ({})", change(rule).unwrap_or(hint));
        }
    }
    Error::new(ErrorKind::Refused(refusal.reason), text)
        .at(target)
        .retry_after(refusal.retry_after)
        .queue_position(refusal.position)
        .explained(refusal.why)
}

/// Returns the rejection of a prompt of `tokens` tokens, above the target's `max_prompt`.
pub(crate) fn prompt_too_large(target: &Arc<str>, tokens: u64, most: u64) -> Error {
    let text = format!(
        "its prompt has about {tokens} tokens, above this target's `max_prompt` of {most}: {SMALLER}"
    );
    Error::new(ErrorKind::Refused(Reason::TooLarge), text).at(target)
}

/// Returns what happened, without advice.
fn what(refusal: &Refusal) -> String {
    let blocked = refusal.why.map(|why| why.rule).filter(|rule| !matches!(rule, Rule::Slots | Rule::Turn));
    let because = blocked.map(|rule| format!(": {}", rule.sentence())).unwrap_or_default();
    match refusal.reason {
        Reason::NoSlot => "no slot is free and this target does not queue".to_owned(),
        Reason::NoBudget => format!("this target does not queue{because}"),
        Reason::QueueFull => "the queue is full".to_owned(),
        Reason::WaitBudget => format!("no slot came free within the wait budget{because}"),
        Reason::Deadline => format!("the deadline passed before a slot came free{because}"),
        Reason::CoolDown => {
            "the provider asked callers to wait (Retry-After) until after this call's deadline".to_owned()
        }
        Reason::Outage => "the target is down, and is not tried again before this call's deadline".to_owned(),
        Reason::Draining => "the gate is draining and takes no new calls".to_owned(),
        Reason::Deadlock => "waiting would never end".to_owned(),
        Reason::Shed => "the queue is full, and a more urgent call took its place".to_owned(),
        Reason::PredictedWait => {
            let expected = refusal.why.and_then(|why| why.expected).unwrap_or_default();
            format!(
                "its turn would come in about {:.1} s, later than it can wait{because}",
                expected.as_secs_f64()
            )
        }
        Reason::TooLarge => {
            let (most, of) =
                (refusal.most.unwrap_or_default(), refusal.why.map_or("budget", |why| bounds(why.rule)));
            format!("it takes more than {of} can ever hold, {most} tokens")
        }
    }
}

/// Returns `true` if a longer wait or more capacity would have helped.
fn waits(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NoSlot
            | Reason::NoBudget
            | Reason::QueueFull
            | Reason::WaitBudget
            | Reason::Deadline
            | Reason::PredictedWait
            | Reason::Shed
    )
}

/// Returns what to change, or `None` if it is the number of slots.
fn change(rule: Rule) -> Option<&'static str> {
    match rule {
        Rule::TenantCap => Some("raise its tenant's `cap`"),
        Rule::TenantTokens => Some("raise its tenant's `tpm`, or send less"),
        Rule::Requests | Rule::RequestsPerDay => {
            Some("the provider's limit of requests binds: ask it for more, or send less")
        }
        Rule::Tokens | Rule::InputTokens | Rule::OutputTokens | Rule::TokensPerDay => {
            Some("the provider's limit of tokens binds: ask it for more, lower `max_tokens`, or send less")
        }
        Rule::Kv => Some("the engine's memory binds: lower `max_tokens`, or add a replica"),
        Rule::Replicas => Some("the replicas that serve it bind: add one, or raise the pool's `cap`"),
        Rule::Held => Some(
            "room is kept for a larger call that has waited longer; raise `aging` to let smaller ones pass it",
        ),
        _ => None,
    }
}

/// Returns the name of the setting or budget that limits the size of one call.
fn bounds(rule: Rule) -> &'static str {
    match rule {
        Rule::Kv => "the engine's memory (`kv_tokens`)",
        Rule::Tokens => "the budget of tokens a minute",
        Rule::InputTokens => "the budget of input tokens a minute",
        Rule::OutputTokens => "the budget of output tokens a minute",
        Rule::TokensPerDay => "the budget of tokens a day",
        _ => "a budget",
    }
}
