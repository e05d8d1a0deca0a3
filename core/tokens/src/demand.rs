//! The expected cost of a call.

use tidegate_protocol::Dialect;

/// The expected cost of a call in tokens. Unknown values are estimates, and budgets are settled
/// after the provider has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Input tokens.
    pub input: u64,
    /// Expected output tokens of all answers together, at most `max_output`.
    pub output: u64,
    /// Maximum output tokens, if the call limits them.
    pub max_output: Option<u64>,
    /// Input tokens expected to come from the provider's cache.
    pub cached: u64,
    /// Whether the input was counted and not estimated.
    pub exact: bool,
    /// The call's dialect, if known: providers count in different ways.
    pub dialect: Option<Dialect>,
}

impl Demand {
    /// Returns the certain minimum of the input tokens. An estimate for a target of which little is
    /// known may be a third too high.
    pub fn least_input(&self) -> u64 {
        if self.exact { self.input } else { self.input / 10 * 7 }
    }

    /// Returns input plus expected output.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}
