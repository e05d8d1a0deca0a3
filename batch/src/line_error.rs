//! The error of one input line.

use serde::Serialize;

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineError {
    /// Code for programs: OpenAI's codes for invalid lines, otherwise the error kind of the gate.
    pub code: String,
    /// Message for people.
    pub message: String,
}

impl LineError {
    pub(crate) fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}
