//! The quantities that a provider limits.

use std::time::Duration;

use super::Need;
use super::counting::Tally;

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// The quantity that a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BudgetKind {
    /// Requests per minute.
    Requests,
    /// Input and output tokens per minute.
    Tokens,
    /// Input tokens per minute.
    InputTokens,
    /// Output tokens per minute.
    OutputTokens,
    /// Requests per day.
    RequestsPerDay,
    /// Input and output tokens per day.
    TokensPerDay,
}

impl BudgetKind {
    /// All kinds, in display order.
    pub const ALL: [BudgetKind; 6] = [
        BudgetKind::Requests,
        BudgetKind::Tokens,
        BudgetKind::InputTokens,
        BudgetKind::OutputTokens,
        BudgetKind::RequestsPerDay,
        BudgetKind::TokensPerDay,
    ];

    /// Returns the stable name used in metrics and snapshots, such as `"input_tokens"`.
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

    /// Returns the window that the limit's name implies: a day or a minute.
    pub(super) fn window(self) -> Duration {
        if matches!(self, Self::RequestsPerDay | Self::TokensPerDay) { DAY } else { MINUTE }
    }

    /// Returns how much one call with this need takes from a budget of this kind.
    pub(super) fn cost(self, need: &Need) -> u32 {
        match self {
            Self::Requests | Self::RequestsPerDay => 1,
            Self::Tokens | Self::TokensPerDay => need.tokens,
            Self::InputTokens => need.input,
            Self::OutputTokens => need.output,
        }
    }

    /// Returns the field of `need` that this kind limits. Returns `None` for requests, because each
    /// call is exactly one request.
    pub(super) fn field_mut(self, need: &mut Need) -> Option<&mut u32> {
        match self {
            Self::Requests | Self::RequestsPerDay => None,
            Self::Tokens | Self::TokensPerDay => Some(&mut need.tokens),
            Self::InputTokens => Some(&mut need.input),
            Self::OutputTokens => Some(&mut need.output),
        }
    }

    /// Returns the amount charged so far to budgets of this kind, under each counting rule.
    pub(super) fn charged_by_rule(self, tally: &Tally) -> [i64; 4] {
        match self {
            Self::Requests | Self::RequestsPerDay => [tally.calls; 4],
            Self::Tokens | Self::TokensPerDay => tally.tokens,
            Self::InputTokens => [tally.input; 4],
            Self::OutputTokens => [tally.output; 4],
        }
    }
}
