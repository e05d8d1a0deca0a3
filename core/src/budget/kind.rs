//! The quantities that a provider limits.

use std::time::Duration;

use super::Need;
use super::counting::Tally;

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum BudgetKind {
    Requests,
    Tokens,
    InputTokens,
    OutputTokens,
    RequestsPerDay,
    TokensPerDay,
}

impl BudgetKind {
    /// Every kind.
    pub const ALL: [BudgetKind; 6] = [
        BudgetKind::Requests,
        BudgetKind::Tokens,
        BudgetKind::InputTokens,
        BudgetKind::OutputTokens,
        BudgetKind::RequestsPerDay,
        BudgetKind::TokensPerDay,
    ];

    /// The stable name, as in metrics and snapshots.
    pub fn as_str(self) -> &'static str {
        match self {
            BudgetKind::Requests => "requests",
            BudgetKind::Tokens => "tokens",
            BudgetKind::InputTokens => "input_tokens",
            BudgetKind::OutputTokens => "output_tokens",
            BudgetKind::RequestsPerDay => "requests_per_day",
            BudgetKind::TokensPerDay => "tokens_per_day",
        }
    }

    pub(super) fn window(self) -> Duration {
        if matches!(self, Self::RequestsPerDay | Self::TokensPerDay) { DAY } else { MINUTE }
    }

    /// What a call takes of such a budget.
    pub(super) fn cost(self, need: &Need) -> u32 {
        match self {
            Self::Requests | Self::RequestsPerDay => 1,
            Self::Tokens | Self::TokensPerDay => need.tokens,
            Self::InputTokens => need.input,
            Self::OutputTokens => need.output,
        }
    }

    /// Its part of a need; none, where each call is one.
    pub(super) fn field_mut(self, need: &mut Need) -> Option<&mut u32> {
        match self {
            Self::Requests | Self::RequestsPerDay => None,
            Self::Tokens | Self::TokensPerDay => Some(&mut need.tokens),
            Self::InputTokens => Some(&mut need.input),
            Self::OutputTokens => Some(&mut need.output),
        }
    }

    /// What was charged of it, by each rule.
    pub(super) fn charged_by_rule(self, tally: &Tally) -> [i64; 4] {
        match self {
            Self::Requests | Self::RequestsPerDay => [tally.calls; 4],
            Self::Tokens | Self::TokensPerDay => tally.tokens,
            Self::InputTokens => [tally.input; 4],
            Self::OutputTokens => [tally.output; 4],
        }
    }
}
