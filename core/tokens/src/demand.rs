//! The expected tokens of a call.

use tidegate_protocol::Dialect;

/// The expected tokens of a call before it is sent.
///
/// Budgets reserve these tokens, and replace them by the reported usage when the call ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The expected input tokens, cached ones included.
    pub input: u64,
    /// The part of `input` that was estimated from the size of images, audio, videos and documents.
    pub media: u64,
    /// The expected output tokens of all answers together, at most `max_output`.
    pub output: u64,
    /// The maximum output tokens of all answers together. `None`: the call does not limit them.
    pub max_output: Option<u64>,
    /// The part of `input` that the provider is expected to read from its cache.
    pub cached: u64,
    /// Whether `input` was counted by a tokenizer. Otherwise it is an estimate.
    pub exact: bool,
    /// The API dialect of the call, because providers count tokens in different ways. `None`: not
    /// known.
    pub dialect: Option<Dialect>,
}

impl Demand {
    /// Returns a lower bound of the input tokens: `input` without `media`, or 7/10 of that if it
    /// was not counted, because the first estimates for a model may be a third too high. Media may
    /// cost any number of tokens.
    pub fn min_input(&self) -> u64 {
        let input = self.input.saturating_sub(self.media);
        if self.exact { input } else { input.saturating_mul(7) / 10 }
    }

    /// Returns `input` plus `output`, in tokens. Saturates.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}
