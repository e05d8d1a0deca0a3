//! The error of a request that has no answer.

use serde::Serialize;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// For programs: OpenAI's code if the line is not a request, otherwise the gate's error kind.
    pub code: String,
    /// For people.
    pub message: String,
}

impl Fault {
    pub(crate) fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}
