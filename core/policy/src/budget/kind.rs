//! The quantities that a provider limits, such as requests per minute.

use std::time::Duration;

use super::Need;
use super::counting::{PerRule, Tally};
use crate::labels::labelled;

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

labelled! {
    /// A quantity that a provider limits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum BudgetKind {
        /// Requests per minute.
        Requests = "requests",
        /// Input and output tokens per minute.
        Tokens = "tokens",
        /// Input tokens per minute.
        InputTokens = "input_tokens",
        /// Output tokens per minute.
        OutputTokens = "output_tokens",
        /// Requests per day.
        RequestsPerDay = "requests_per_day",
        /// Input and output tokens per day.
        TokensPerDay = "tokens_per_day",
    }
}

impl BudgetKind {
    /// Returns the period in the name of the kind: a day or a minute. A provider may announce
    /// another one.
    pub(super) fn window(self) -> Duration {
        if matches!(self, Self::RequestsPerDay | Self::TokensPerDay) { DAY } else { MINUTE }
    }

    /// Returns the requests or tokens that one call is charged under a limit of this kind.
    pub(super) fn cost(self, need: &Need) -> u32 {
        match self {
            Self::Requests | Self::RequestsPerDay => 1,
            Self::Tokens | Self::TokensPerDay => need.tokens,
            Self::InputTokens => need.input,
            Self::OutputTokens => need.output,
        }
    }

    /// Returns the field of `need` that this kind limits. `None` for requests, because each call is
    /// one request.
    pub(super) fn field_mut(self, need: &mut Need) -> Option<&mut u32> {
        match self {
            Self::Requests | Self::RequestsPerDay => None,
            Self::Tokens | Self::TokensPerDay => Some(&mut need.tokens),
            Self::InputTokens => Some(&mut need.input),
            Self::OutputTokens => Some(&mut need.output),
        }
    }

    /// Returns the requests or tokens charged so far for limits of this kind, under each counting
    /// rule.
    pub(super) fn charged_by_rule(self, tally: &Tally) -> PerRule {
        match self {
            Self::Requests | Self::RequestsPerDay => [tally.calls; 4],
            Self::Tokens | Self::TokensPerDay => tally.tokens,
            Self::InputTokens => [tally.input; 4],
            Self::OutputTokens => [tally.output; 4],
        }
    }
}
