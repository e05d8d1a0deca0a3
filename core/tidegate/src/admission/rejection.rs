//! The error messages of rejected calls: why the call was rejected, and what users can do about it.

use std::fmt::Write;
use std::sync::Arc;

use crate::budget::LimitOrigin;
use crate::error::{Error, ErrorKind, Reason};
use crate::schedule::{Refusal, Rule, WaitExplanation};

/// The advice for a call that needs more tokens than its target allows for one call.
const SMALLER: &str =
    "shorten the prompt, lower `max_tokens`, or send the call to another target or as a batch";

/// The advice to users about calls that were rejected because a free slot was missing.
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    /// For calls that have waited, or would have to wait too long.
    pub(crate) waits: &'static str,
    /// For calls that found the queue full.
    pub(crate) queue_full: &'static str,
    /// For calls at a target that does not queue calls.
    pub(crate) no_queue: &'static str,
}

/// The same advice for all these calls.
impl From<&'static str> for Hints {
    fn from(hint: &'static str) -> Self {
        Self { waits: hint, queue_full: hint, no_queue: hint }
    }
}

/// Converts a rejection by the scheduler to an error.
pub(super) fn rejection_error(target: &Arc<str>, hints: Hints, refusal: &Refusal) -> Error {
    let mut text = cause(refusal);
    if refusal.reason == Reason::TooLarge {
        let _ = write!(text, ": {SMALLER}");
    } else if !is_made_late(refusal) {
        let _ = write!(text, "; {} calls of this tenant were ahead in the queue", refusal.position);
        if let Some(after) = refusal.retry_after {
            let _ = write!(text, "; try again in {:.1} s", after.as_secs_f64());
        }
        if let Some(why) = refusal.why.filter(|why| has_advice(refusal.reason, why.rule)) {
            let hint = match refusal.reason {
                Reason::QueueFull | Reason::Shed => hints.queue_full,
                Reason::NoSlot => hints.no_queue,
                _ => hints.waits,
            };
            let _ = write!(text, " ({})", advice(&why).unwrap_or(hint));
        }
    }
    Error::new(ErrorKind::Refused(refusal.reason), text)
        .at(target)
        .with_retry_after(refusal.retry_after)
        .with_queue_position(refusal.position)
        .with_why(refusal.why)
}

/// Returns the rejection of a prompt of `tokens` tokens, which exceeds the target's `max_prompt` of
/// `max` tokens.
pub(crate) fn prompt_too_large(target: &Arc<str>, tokens: u64, max: u64) -> Error {
    let text = format!(
        "the prompt has about {tokens} tokens, more than this target's `max_prompt` of {max}: shorten the prompt, raise `max_prompt`, or send the call to another target"
    );
    Error::new(ErrorKind::Refused(Reason::TooLarge), text).at(target)
}

/// Returns the cause of a rejection as text, without advice.
fn cause(refusal: &Refusal) -> String {
    let blocked = refusal.why.filter(|why| !matches!(why.rule, Rule::Slots | Rule::Turn));
    let because = blocked.map(|why| format!(": {}", why.sentence())).unwrap_or_default();
    match refusal.reason {
        Reason::NoSlot => "no slot is free, and this target does not queue calls".to_owned(),
        Reason::NoBudget => format!("this target does not queue calls{because}"),
        Reason::QueueFull => "the queue is full".to_owned(),
        Reason::WaitBudget => format!("no slot was free within the wait budget{because}"),
        Reason::ClientTimeout => format!("the client's timeout passed before a slot was free{because}"),
        Reason::Deadline if is_made_late(refusal) => {
            "the deadline of this call's context had passed before the call was made (set a longer deadline, or start the context later)".to_owned()
        }
        Reason::Deadline => format!("the deadline passed before a slot was free{because}"),
        Reason::CoolDown => {
            "the provider asked callers to wait (Retry-After) for longer than this call can wait".to_owned()
        }
        Reason::Outage => "the target is down, and this call cannot wait until it is probed again".to_owned(),
        Reason::Draining => {
            "the gate is draining and accepts no new calls (send them through another gate or process)"
                .to_owned()
        }
        Reason::Deadlock => "the wait would never end".to_owned(),
        Reason::Shed => "the queue is full, and a more urgent call took the place of this one".to_owned(),
        Reason::PredictedWait => {
            let expected = refusal.why.and_then(|why| why.expected).unwrap_or_default();
            format!(
                "the call would be admitted in about {:.1} s, later than it can wait{because}",
                expected.as_secs_f64()
            )
        }
        Reason::TooLarge => {
            let (most, of) = (
                refusal.max_tokens.unwrap_or_default(),
                refusal.why.map_or("budget", |why| size_limit(why.rule)),
            );
            format!("the call needs more tokens than {of} can ever grant ({most} tokens)")
        }
    }
}

/// Returns `true` if the deadline of the call had passed before the call was made.
fn is_made_late(refusal: &Refusal) -> bool {
    refusal.reason == Reason::Deadline && refusal.why.is_none()
}

/// Returns `true` if advice is appended to the message of a call that waited because of `rule` and
/// was rejected for `reason`. This is the case if a longer wait or more capacity would have helped.
fn has_advice(reason: Reason, rule: Rule) -> bool {
    !matches!(rule, Rule::CoolDown | Rule::Outage)
        && matches!(
            reason,
            Reason::NoSlot
                | Reason::NoBudget
                | Reason::QueueFull
                | Reason::WaitBudget
                | Reason::ClientTimeout
                | Reason::Deadline
                | Reason::PredictedWait
                | Reason::Shed
        )
}

/// Returns the advice for a rejected call that waited because of `why`. `None` if the own advice of
/// the target or tool applies, which concerns the number of slots and, for a tool, its rate.
fn advice(why: &WaitExplanation) -> Option<&'static str> {
    match why.origin {
        Some(LimitOrigin::Configured) => return configured_rate_advice(why.rule),
        Some(LimitOrigin::Tool) => return None,
        Some(LimitOrigin::Headers) | None => {}
    }
    match why.rule {
        Rule::Share => Some(
            "raise the shared `cap` in all processes, or send fewer calls; if the log says that the store is lost, restore it",
        ),
        Rule::TenantCap => Some("raise the tenant's `cap`"),
        Rule::TenantTokens => Some("raise the tenant's `tpm`, or send fewer tokens"),
        Rule::Requests | Rule::RequestsPerDay => Some(
            "the provider's request limit is reached: ask the provider for a higher limit, or send fewer calls",
        ),
        Rule::Tokens | Rule::InputTokens | Rule::OutputTokens | Rule::TokensPerDay => Some(
            "the provider's token limit is reached: ask the provider for a higher limit, lower `max_tokens`, or send fewer tokens",
        ),
        Rule::Kv => Some("the engine's KV memory is full: lower `max_tokens`, or add a replica"),
        Rule::Replicas => {
            Some("the replicas that serve the model are full: add one, or raise the pool's `cap`")
        }
        Rule::Reserved => Some(
            "capacity is reserved for a larger call that has waited longer; raise `aging` to let smaller calls pass it",
        ),
        _ => None,
    }
}

/// Returns the advice for a rejected call that waited because of a rate that the configuration
/// limits. `None` if `rule` is about no rate.
fn configured_rate_advice(rule: Rule) -> Option<&'static str> {
    match rule {
        Rule::Requests => Some("raise `rpm` or `burst` if the provider allows more, or send fewer calls"),
        Rule::RequestsPerDay => Some("raise `rpd` if the provider allows more, or send fewer calls"),
        Rule::Tokens => Some(
            "raise `tpm` or `burst` if the provider allows more, lower `max_tokens`, or send fewer tokens",
        ),
        Rule::InputTokens => {
            Some("raise `itpm` or `burst` if the provider allows more, or send fewer tokens")
        }
        Rule::OutputTokens => {
            Some("raise `otpm` or `burst` if the provider allows more, or lower `max_tokens`")
        }
        Rule::TokensPerDay => {
            Some("raise `tpd` if the provider allows more, lower `max_tokens`, or send fewer tokens")
        }
        _ => None,
    }
}

/// Returns the name of the setting or budget by which `rule` limits the tokens of one call.
fn size_limit(rule: Rule) -> &'static str {
    match rule {
        Rule::Kv => "the engine's KV memory (`kv_tokens`)",
        Rule::Tokens => "the budget of tokens per minute",
        Rule::InputTokens => "the budget of input tokens per minute",
        Rule::OutputTokens => "the budget of output tokens per minute",
        Rule::TokensPerDay => "the budget of tokens per day",
        _ => "a budget",
    }
}
