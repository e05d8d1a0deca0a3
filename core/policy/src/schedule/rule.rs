//! The rules that keep a call waiting, and the explanation of a wait.

use std::fmt;
use std::time::Duration;

use crate::budget::BudgetKind;

/// A rule that keeps a call waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// All slots are in use.
    Slots,
    /// The maximum number of calls await their first token.
    FirstTokens,
    /// The tenant is at its slot cap.
    TenantCap,
    /// The provider's requests per minute.
    Requests,
    /// The provider's tokens per minute.
    Tokens,
    /// The provider's input tokens per minute.
    InputTokens,
    /// The provider's output tokens per minute.
    OutputTokens,
    /// The provider's requests per day.
    RequestsPerDay,
    /// The provider's tokens per day.
    TokensPerDay,
    /// The tenant's own tokens per minute.
    TenantTokens,
    /// The engine's KV memory.
    Kv,
    /// No replica that may take the call is up and has a slot, although other replicas are.
    Replicas,
    /// The provider asked callers to wait (Retry-After).
    CoolDown,
    /// The target is down.
    Outage,
    /// The call could go, but others go first.
    Turn,
    /// There is room for the call, but it is reserved for a larger call that has waited longer.
    Held,
}

impl Rule {
    /// The number of rules.
    pub(super) const COUNT: usize = 16;

    /// Returns the stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::Slots => "slots",
            Rule::FirstTokens => "first_tokens",
            Rule::TenantCap => "tenant_cap",
            Rule::Requests => "requests",
            Rule::Tokens => "tokens",
            Rule::InputTokens => "input_tokens",
            Rule::OutputTokens => "output_tokens",
            Rule::RequestsPerDay => "requests_per_day",
            Rule::TokensPerDay => "tokens_per_day",
            Rule::TenantTokens => "tenant_tokens",
            Rule::Kv => "kv",
            Rule::Replicas => "replicas",
            Rule::CoolDown => "cool_down",
            Rule::Outage => "outage",
            Rule::Turn => "turn",
            Rule::Held => "held",
        }
    }

    /// Returns `true` if the rule depends on what the call requires.
    pub fn is_budget(self) -> bool {
        matches!(
            self,
            Rule::Requests
                | Rule::Tokens
                | Rule::InputTokens
                | Rule::OutputTokens
                | Rule::RequestsPerDay
                | Rule::TokensPerDay
                | Rule::TenantTokens
                | Rule::Kv
                | Rule::Held
        )
    }

    /// Returns a description for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Rule::Slots => "every slot is taken",
            Rule::FirstTokens => "as many calls as may await their first token",
            Rule::TenantCap => "its tenant holds as many slots as it may",
            Rule::Requests => "the provider's requests a minute are used up",
            Rule::Tokens => "the provider's tokens a minute have no room for it",
            Rule::InputTokens => "the provider's input tokens a minute have no room for it",
            Rule::OutputTokens => "the provider's output tokens a minute have no room for it",
            Rule::RequestsPerDay => "the provider's requests of the day are used up",
            Rule::TokensPerDay => "the provider's tokens of the day have no room for it",
            Rule::TenantTokens => "its tenant's own tokens a minute have no room for it",
            Rule::Kv => "the engine's memory has no room for it",
            Rule::Replicas => "none of the replicas that serve it is up and has a slot",
            Rule::CoolDown => "the provider asked callers to wait (Retry-After)",
            Rule::Outage => "the target is down",
            Rule::Turn => "others go first",
            Rule::Held => "room is kept for a larger call that has waited longer",
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

/// Why a call waits at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    /// The first rule that the call does not satisfy.
    pub rule: Rule,
    /// For how long that rule has kept the call waiting. At most `waited`.
    pub since: Duration,
    /// How long the call has waited, over all its attempts.
    pub waited: Duration,
    /// The number of calls expected to go before this one.
    pub ahead: usize,
    /// The expected remaining wait, if enough was observed to predict it.
    pub expected: Option<Duration>,
}
