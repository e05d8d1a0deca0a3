//! The quantities that a provider limits, such as requests per minute.

use std::time::Duration;

use super::Need;
use crate::labels::labelled;

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

labelled! {
    /// A quantity that a provider limits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum BudgetKind {
        /// Requests per minute.
        Requests = "requests",
        /// Tokens per minute, input and output together.
        Tokens = "tokens",
        /// Input tokens per minute.
        InputTokens = "input_tokens",
        /// Output tokens per minute.
        OutputTokens = "output_tokens",
        /// Requests per day.
        RequestsPerDay = "requests_per_day",
        /// Tokens per day, input and output together.
        TokensPerDay = "tokens_per_day",
    }
}

/// Where a limit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOrigin {
    /// The configuration of a target, or of a budget that several targets share.
    Configured,
    /// The configuration of a tool.
    Tool,
    /// The headers of the provider's responses.
    Headers,
}

/// Which of the two shared sets a limit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedSetKind {
    /// The limits of the configuration.
    Configured,
    /// The limits that only the headers of responses announce.
    Announced,
}

impl SharedSetKind {
    pub(super) const ALL: [Self; 2] = [Self::Configured, Self::Announced];
}

impl BudgetKind {
    /// Returns the period that the kind is named after: one minute or one day. A provider may
    /// announce a limit of this kind over another period.
    pub(super) fn window(self) -> Duration {
        if matches!(self, Self::RequestsPerDay | Self::TokensPerDay) { DAY } else { MINUTE }
    }

    /// Returns the requests or tokens that one call is charged under a limit of this kind.
    pub(super) fn cost(self, need: &Need) -> u32 {
        self.select([1, need.tokens, need.input, need.output])
    }

    /// Returns the field of `need` that this kind limits. `None` for requests, because each call is
    /// one request.
    pub(super) fn field_mut(self, need: &mut Need) -> Option<&mut u32> {
        self.select([None, Some(&mut need.tokens), Some(&mut need.input), Some(&mut need.output)])
    }

    /// Returns the element of `values` that belongs to the limited quantity. `values` contains
    /// those for requests, all tokens, input tokens and output tokens, in this order.
    pub(super) fn select<T>(self, values: [T; 4]) -> T {
        let [requests, tokens, input, output] = values;
        match self {
            Self::Requests | Self::RequestsPerDay => requests,
            Self::Tokens | Self::TokensPerDay => tokens,
            Self::InputTokens => input,
            Self::OutputTokens => output,
        }
    }
}
