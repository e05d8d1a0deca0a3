//! The error that is recorded for an input line without a response.

use serde::Serialize;

/// Why an input line has no response from the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineError {
    /// Machine-readable code. For an invalid line, it is OpenAI's code where OpenAI defines one;
    /// otherwise it is the reason or the error kind that the gate reported.
    pub code: String,
    /// Human-readable message: what is wrong and, where possible, what to do.
    pub message: String,
}

impl LineError {
    pub(crate) fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }

    pub(crate) fn line_too_long(number: u64) -> Self {
        Self::new("line_too_long", format!("line {number} exceeds the maximum length of a line; shorten it"))
    }
}
