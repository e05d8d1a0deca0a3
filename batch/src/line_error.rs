//! The error of one input line.

use serde::Serialize;

/// Why an input line has no response of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineError {
    /// Code for programs. For an invalid line it is OpenAI's code; otherwise it is the reason or
    /// the error kind that the gate reported.
    pub code: String,
    /// What is wrong, and where possible what to do, for people.
    pub message: String,
}

impl LineError {
    pub(crate) fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}
