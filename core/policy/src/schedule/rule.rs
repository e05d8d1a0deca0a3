//! The rules that keep a call waiting, and the explanation of a wait.

use std::fmt;
use std::time::Duration;

use crate::budget::{BudgetKind, LimitOrigin};

/// A rule that can keep a call from being admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// All slots are in use.
    Slots,
    /// This process uses all that it may of a limit that several processes share. Without the store
    /// of a shared rate, it may use nothing until it knows the others, and with `strict` until it
    /// has found them again.
    Share,
    /// The number of calls that await their first token is at its adaptive limit.
    FirstTokens,
    /// The tenant uses its share of the upstream, and the rest is kept for the first tokens of
    /// other tenants.
    TenantShare,
    /// The tenant has as many calls in flight as its `cap` permits.
    TenantCap,
    /// The provider's requests per minute are used up.
    Requests,
    /// The call needs more tokens than the provider's tokens per minute have left.
    Tokens,
    /// The call needs more input tokens than the provider's input tokens per minute have left.
    InputTokens,
    /// The call needs more output tokens than the provider's output tokens per minute have left.
    OutputTokens,
    /// The provider's requests per day are used up.
    RequestsPerDay,
    /// The call needs more tokens than the provider's tokens per day have left.
    TokensPerDay,
    /// The call needs more tokens than its tenant's own tokens per minute (`tpm`) have left, or
    /// these are kept for an older call of the tenant in a higher lane.
    TenantTokens,
    /// The call needs more memory than is free in the KV cache of the engine.
    Kv,
    /// None of the replicas that may take the call both accepts calls and has a free slot. Another
    /// replica of the pool does.
    Replicas,
    /// The provider asked callers to wait (Retry-After).
    CoolDown,
    /// The target is down.
    Outage,
    /// The call is admissible, but other calls are dispatched first.
    Turn,
    /// There are enough resources for the call, but they are reserved for another call that needs
    /// more and has waited longer. The stable name of the rule is `held`.
    Reserved,
}

impl Rule {
    /// The number of rules.
    pub(super) const COUNT: usize = 18;
    /// The rules that depend on what a call requires of the rate budgets, the memory and the
    /// replicas.
    pub(super) const SIZES: [Self; 8] = [
        Self::Requests,
        Self::Tokens,
        Self::InputTokens,
        Self::OutputTokens,
        Self::RequestsPerDay,
        Self::TokensPerDay,
        Self::Kv,
        Self::Replicas,
    ];

    /// Returns the stable name, as in metrics and errors, such as `"tenant_cap"`.
    pub fn as_str(self) -> &'static str {
        self.texts().0
    }

    /// Returns a description for people, such as `"the target is down"`.
    pub fn sentence(self) -> &'static str {
        self.texts().1
    }

    /// Returns `true` if the rule is about a rate budget, the tenant's own tokens, the memory or a
    /// reservation. These rules may permit a call that needs less.
    pub(crate) fn is_budget(self) -> bool {
        match self {
            Rule::TenantTokens | Rule::Reserved => true,
            Rule::Replicas => false,
            rule => Self::SIZES.contains(&rule),
        }
    }

    /// Returns the stable name, and a description for people.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Rule::Slots => ("slots", "all slots are in use"),
            Rule::Share => ("share", "this process uses all that it may of the shared limit"),
            Rule::FirstTokens => ("first_tokens", "the maximum number of calls await their first token"),
            Rule::TenantShare => {
                ("tenant_share", "its tenant uses its share of the target, and other tenants need the rest")
            }
            Rule::TenantCap => ("tenant_cap", "its tenant has as many calls in flight as its cap permits"),
            Rule::Requests => ("requests", "the provider's requests per minute are used up"),
            Rule::Tokens => ("tokens", "the provider's tokens per minute have no room for it"),
            Rule::InputTokens => {
                ("input_tokens", "the provider's input tokens per minute have no room for it")
            }
            Rule::OutputTokens => {
                ("output_tokens", "the provider's output tokens per minute have no room for it")
            }
            Rule::RequestsPerDay => ("requests_per_day", "the provider's requests per day are used up"),
            Rule::TokensPerDay => ("tokens_per_day", "the provider's tokens per day have no room for it"),
            Rule::TenantTokens => (
                "tenant_tokens",
                "its tenant's own tokens per minute have no room for it, or are kept for an older call",
            ),
            Rule::Kv => ("kv", "the engine's memory has no room for it"),
            Rule::Replicas => ("replicas", "no replica that serves it is up and has a free slot"),
            Rule::CoolDown => ("cool_down", "the provider asked callers to wait (Retry-After)"),
            Rule::Outage => ("outage", "the target is down"),
            Rule::Turn => ("turn", "other calls go first"),
            Rule::Reserved => ("held", "the room is reserved for a larger call that has waited longer"),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl From<BudgetKind> for Rule {
    fn from(kind: BudgetKind) -> Self {
        match kind {
            BudgetKind::Requests => Rule::Requests,
            BudgetKind::Tokens => Rule::Tokens,
            BudgetKind::InputTokens => Rule::InputTokens,
            BudgetKind::OutputTokens => Rule::OutputTokens,
            BudgetKind::RequestsPerDay => Rule::RequestsPerDay,
            BudgetKind::TokensPerDay => Rule::TokensPerDay,
        }
    }
}

/// Which rule keeps a call waiting at one moment, and how long the wait is expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitExplanation {
    /// The first rule that the call does not satisfy, or [`Rule::Turn`] if it satisfies all of
    /// them.
    pub rule: Rule,
    /// Where the limit comes from that `rule` is about. `None` if the rule is about no rate budget.
    pub origin: Option<LimitOrigin>,
    /// For how long that rule has kept the call waiting. At most `waited`.
    pub since: Duration,
    /// The time since the call was first queued.
    pub waited: Duration,
    /// The number of waiting calls that are expected to be dispatched before this one.
    pub ahead: usize,
    /// The expected remaining wait, or `None` if too little was observed to predict it.
    pub expected: Option<Duration>,
}

impl WaitExplanation {
    /// Returns a description of the rule for people, such as `"the target is down"`. If the rule is
    /// about a rate that the configuration limits, the description names the setting.
    pub fn sentence(&self) -> &'static str {
        match (self.origin, self.rule) {
            (Some(LimitOrigin::Tool), _) => "the rate limit of the tool is used up",
            (Some(LimitOrigin::Configured), Rule::Requests) => "the configured `rpm` is used up",
            (Some(LimitOrigin::Configured), Rule::Tokens) => "the configured `tpm` has no room for it",
            (Some(LimitOrigin::Configured), Rule::InputTokens) => "the configured `itpm` has no room for it",
            (Some(LimitOrigin::Configured), Rule::OutputTokens) => "the configured `otpm` has no room for it",
            (Some(LimitOrigin::Configured), Rule::RequestsPerDay) => "the configured `rpd` is used up",
            (Some(LimitOrigin::Configured), Rule::TokensPerDay) => "the configured `tpd` has no room for it",
            (_, rule) => rule.sentence(),
        }
    }
}
