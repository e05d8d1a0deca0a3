//! The error messages of rejected calls: why the call was rejected, and what users can do about it.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::budget::LimitOrigin;
use crate::config::{LimitConfig, OnFull, TargetConfig};
use crate::error::{Error, ErrorKind, Reason};
use crate::schedule::{Refusal, Rule, SchedulerSettings, WaitExplanation};

/// The advice for a call that needs more tokens than its target allows for one call.
const SMALLER: &str =
    "shorten the prompt, lower `max_tokens`, or send the call to another target or as a batch";

/// The setting because of which a target rejects calls instead of queueing them.
const REFUSE: &str = "(`on_full = \"refuse\"`)";

/// The advice to users about calls that were rejected because a free slot was missing.
#[derive(Debug)]
pub enum Hints {
    /// One text for calls whose wait was too long, and one for all others.
    Texts { too_long: &'static str, other: &'static str },
    /// Advice that depends on the limits of a target.
    Target(TargetHints),
}

/// The same advice for all these calls.
impl From<&'static str> for Hints {
    fn from(hint: &'static str) -> Self {
        Self::Texts { too_long: hint, other: hint }
    }
}

/// The settings of a target that its advice depends on.
#[derive(Debug)]
pub struct TargetHints {
    /// Maximum number of slots.
    cap: AtomicUsize,
    is_pool: bool,
    is_adaptive: bool,
    /// Whether an objective limits the wait of calls that have no wait budget.
    has_wait_objective: bool,
    /// Whether the target rejects calls instead of queueing them.
    refuses: bool,
}

impl Hints {
    /// Returns the advice for a target with this configuration, from which `settings` were derived.
    pub(crate) fn for_target(config: &TargetConfig, settings: &SchedulerSettings) -> Self {
        Self::Target(TargetHints {
            cap: AtomicUsize::new(config.cap),
            is_pool: config.pool.is_some(),
            is_adaptive: config.limit != LimitConfig::Fixed,
            has_wait_objective: settings.wait_objectives.iter().any(Option::is_some),
            refuses: config.on_full == OnFull::Refuse,
        })
    }

    /// Records that the limit of the target is now fixed, with `cap` slots.
    pub(super) fn set_cap(&self, cap: usize) {
        if let Self::Target(target) = self {
            target.cap.store(cap, Ordering::Relaxed);
        }
    }

    /// Returns that all of the `slots` in force are in use, as a sentence that names the cap.
    /// `None` unless an adaptive limit of a single server is below its cap.
    pub(super) fn adaptive_slots(&self, slots: usize) -> Option<String> {
        let Self::Target(target) = self else { return None };
        let cap = target.cap.load(Ordering::Relaxed);
        let is_below = target.is_adaptive && !target.is_pool && slots < cap;
        is_below.then(|| format!("all {slots} slots of the adaptive limit (`cap` {cap}) are in use"))
    }

    /// Returns the advice about a call that waited because of `rule` and was rejected for `reason`.
    /// `slots` is the number of slots in force.
    fn advice(&self, reason: Reason, rule: Rule, slots: usize) -> String {
        match self {
            Self::Texts { too_long, other } => match reason {
                Reason::WaitBudget | Reason::PredictedWait => (*too_long).to_owned(),
                _ => (*other).to_owned(),
            },
            Self::Target(target) => target.advice(reason, rule, slots),
        }
    }

    fn refuses(&self) -> bool {
        matches!(self, Self::Target(target) if target.refuses)
    }
}

impl TargetHints {
    fn advice(&self, reason: Reason, rule: Rule, slots: usize) -> String {
        let more = self.more_capacity(rule, slots);
        let longer = match reason {
            Reason::QueueFull | Reason::Shed => {
                return "raise `queue` or `backlog`, or send fewer calls".to_owned();
            }
            Reason::NoSlot => {
                return format!("{more}, or let calls wait: remove `on_full = \"refuse\"`");
            }
            Reason::WaitBudget if self.has_wait_objective => {
                return format!(
                    "a call without `wait` waits only as long as it can still meet the objective `ttft`: {more}, set a longer `wait`, or send fewer calls"
                );
            }
            Reason::PredictedWait if self.has_wait_objective => {
                return format!(
                    "a call waits until its deadline and for `wait` or, without `wait`, as long as it can still meet the objective `ttft`: {more}, raise the deadline or `wait`, or send fewer calls"
                );
            }
            Reason::ClientTimeout => "the client's timeout",
            Reason::Deadline => "the deadline",
            Reason::PredictedWait => "`wait` or the deadline",
            _ => "`wait`",
        };
        format!("{more}, raise {longer} if the call can wait longer, or send fewer calls")
    }

    /// Returns what gives calls that wait because of `rule` more capacity.
    fn more_capacity(&self, rule: Rule, slots: usize) -> &'static str {
        let is_at_cap = slots >= self.cap.load(Ordering::Relaxed);
        match (rule, self.is_pool) {
            (Rule::TenantShare, _) => "raise the `weight` of the tenant or add capacity",
            (Rule::FirstTokens, true) => "add a replica",
            (_, true) if is_at_cap => "raise the target's `cap`, which limits all replicas together",
            (_, true) if self.is_adaptive => {
                "add a replica, raise `pool.cap` if the adaptive limits of the replicas have reached it"
            }
            (_, true) => "add a replica, raise `pool.cap` if each replica can serve more calls",
            (Rule::FirstTokens, false) => "add capacity",
            (_, false) if is_at_cap => "raise `cap` if the provider can serve more calls",
            (_, false) => "add capacity",
        }
    }
}

/// Converts a rejection by the scheduler to an error. `slots` is the number of slots in force.
pub(super) fn rejection_error(target: &Arc<str>, hints: &Hints, slots: usize, refusal: &Refusal) -> Error {
    let mut text = cause(refusal, hints, slots);
    if refusal.reason == Reason::TooLarge {
        let _ = write!(text, ": {SMALLER}");
    } else if !is_made_late(refusal) {
        let _ = write!(text, "; {} calls of this tenant were ahead in the queue", refusal.position);
        if let Some(after) = refusal.retry_after {
            let _ = write!(text, "; try again in {:.1} s", after.as_secs_f64());
        }
        if let Some(why) = refusal.why.filter(|why| has_advice(refusal.reason, why.rule)) {
            let advice = advice(&why).map(str::to_owned);
            let advice = advice.unwrap_or_else(|| hints.advice(refusal.reason, why.rule, slots));
            let _ = write!(text, " ({advice})");
        }
    }
    Error::new(ErrorKind::Refused(refusal.reason), text)
        .at(target)
        .with_retry_after(refusal.retry_after)
        .with_queue_position(refusal.position)
        .with_why(refusal.why)
}

/// Returns the rejection of a prompt of at least `tokens` tokens, which exceeds the target's
/// `max_prompt` of `max` tokens.
pub(crate) fn prompt_too_large(target: &Arc<str>, tokens: u64, max: u64) -> Error {
    let text = format!(
        "the prompt has at least {tokens} tokens, more than this target's `max_prompt` of {max}: shorten the prompt, raise `max_prompt`, or send the call to another target"
    );
    Error::new(ErrorKind::Refused(Reason::TooLarge), text).at(target)
}

/// Returns the cause of a rejection as text, without advice.
fn cause(refusal: &Refusal, hints: &Hints, slots: usize) -> String {
    let blocked = refusal.why.and_then(|why| match why.rule {
        Rule::Turn => None,
        Rule::Slots => hints.adaptive_slots(slots),
        _ => Some(why.sentence().to_owned()),
    });
    let because = blocked.map(|sentence| format!(": {sentence}")).unwrap_or_default();
    match refusal.reason {
        Reason::NoSlot => format!("no slot is free, and this target does not queue calls{because}"),
        Reason::NoBudget => format!("this target does not queue calls{because}"),
        Reason::QueueFull => "the queue is full".to_owned(),
        Reason::WaitBudget => format!("no slot was free within the wait budget{because}"),
        Reason::ClientTimeout => format!("the client's timeout passed before a slot was free{because}"),
        Reason::Deadline if is_made_late(refusal) => {
            "the deadline of this call's context had passed before the call was made (set a longer deadline, or start the context later)".to_owned()
        }
        Reason::Deadline => format!("the deadline passed before a slot was free{because}"),
        Reason::CoolDown if hints.refuses() => format!(
            "the provider asked callers to wait (Retry-After), and this target does not queue calls {REFUSE}"
        ),
        Reason::CoolDown => {
            "the provider asked callers to wait (Retry-After) for longer than this call can wait".to_owned()
        }
        Reason::Outage if hints.refuses() => {
            format!("the target is down, and does not queue calls {REFUSE}")
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
        Rule::Replicas => Some("the replicas that serve the model are full: add one, or raise `pool.cap`"),
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
