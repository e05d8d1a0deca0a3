//! Why a call waits, or was refused: which rule stands in its way.

use std::fmt;
use std::time::Duration;

use crate::budget::BudgetKind;

/// What stands in a call's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// Every slot is taken.
    Slots,
    /// As many calls await their first token as may.
    FirstTokens,
    /// Its tenant holds as many slots as it may.
    TenantCap,
    /// The provider's requests a minute.
    Requests,
    /// The provider's tokens a minute.
    Tokens,
    /// The provider's input tokens a minute.
    InputTokens,
    /// The provider's output tokens a minute.
    OutputTokens,
    /// The provider's requests a day.
    RequestsPerDay,
    /// The provider's tokens a day.
    TokensPerDay,
    /// Its tenant's own tokens a minute.
    TenantTokens,
    /// The engine's memory for keys and values.
    Kv,
    /// Of a pool's replicas none that may take it is up and has a slot, though others are.
    Replicas,
    /// The provider asked callers to wait (Retry-After).
    CoolDown,
    /// The target is down.
    Outage,
    /// It could go, but others go first.
    Turn,
    /// There is room for it, which is kept for a larger call that has waited longer.
    Held,
}

impl Rule {
    /// How many there are.
    pub(super) const COUNT: usize = 16;

    /// The stable name.
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

    /// Whether it is about what a call takes: of rates, of memory.
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

    /// The same, for people.
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
            Rule::TenantTokens => "its tenant's tenant_tokens tokens a minute have no room for it",
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

/// Why a call waits, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    /// The first rule that it does not satisfy.
    pub rule: Rule,
    /// For how long that rule has stood in the way; never longer than `waited`.
    pub since: Duration,
    /// How long the call has waited, all its attempts together.
    pub waited: Duration,
    /// How many calls are expected to go before it.
    pub ahead: usize,
    /// How much longer it is expected to wait, once enough was seen to tell.
    pub expected: Option<Duration>,
}
