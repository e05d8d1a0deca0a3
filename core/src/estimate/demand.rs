//! What a call is expected to take, before anybody has counted.

/// What a call is expected to take of a target, in tokens. Whatever is not known is a guess: budgets are settled when the provider has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Input.
    pub input: u64,
    /// Output that is expected of it, of all answers together; never above `max_output`.
    pub output: u64,
    /// The most output it allows, where it says.
    pub max_output: Option<u64>,
}

impl Demand {
    /// Input and expected output.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}
