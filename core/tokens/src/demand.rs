//! What a call is expected to take, before anybody has counted.

use tidegate_protocol::Dialect;

/// What a call is expected to take of a target, in tokens. Whatever is not known is a guess: budgets are settled when the provider has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Input.
    pub input: u64,
    /// Output that is expected of it, of all answers together; never above `max_output`.
    pub output: u64,
    /// The most output it allows, where it says.
    pub max_output: Option<u64>,
    /// What of the input is expected to come out of the provider's cache.
    pub cached: u64,
    /// Whether the input was counted, and not estimated.
    pub exact: bool,
    /// Whose dialect it speaks, where that is known: providers count in ways of their own.
    pub dialect: Option<Dialect>,
}

impl Demand {
    /// What it certainly has in input: an estimate of a target of which little is known may be above the truth by a third.
    pub fn least_input(&self) -> u64 {
        if self.exact { self.input } else { self.input / 10 * 7 }
    }

    /// Input and expected output.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}
