//! API errors with the wording of vLLM.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Protocol, gemini};

/// An error answer: its status and the parts of its JSON body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) param: Option<&'static str>,
    /// Machine-readable code in the body. If `None`, the body repeats the status, as vLLM's does.
    pub(crate) code: Option<&'static str>,
    /// Delay in Gemini's body after which a retry is allowed, on the client's clock. `None` if the
    /// body names no delay.
    pub(crate) retry_in: Option<Duration>,
}

impl ApiError {
    pub(crate) fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, code: None, retry_in: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequestError", message)
    }

    pub(crate) fn unavailable() -> Self {
        Self::new(503, "ServiceUnavailableError", "the service is unavailable")
    }

    /// Returns a 500 with the text of vLLM's `EngineDeadError`.
    pub(crate) fn engine_dead() -> Self {
        let message = "EngineCore encountered an issue. See stack trace (above) for the root cause.";
        Self::new(500, "InternalServerError", message)
    }

    pub(crate) fn overloaded() -> Self {
        let message = "The server is overloaded: the number of queued requests has reached its limit.";
        Self::new(503, "ServiceUnavailableError", message)
    }

    pub(crate) fn param(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn retry_in(mut self, after: Duration) -> Self {
        self.retry_in = Some(after);
        self
    }

    pub(crate) fn body(&self, protocol: Option<Protocol>) -> Value {
        if protocol == Some(Protocol::Messages) {
            return json!({"type": "error", "error": {"type": self.anthropic_kind(), "message": self.message}});
        }
        if protocol == Some(Protocol::Gemini) {
            return gemini::error(self);
        }
        let code = self.code.map_or_else(|| json!(self.status), |word| json!(word));
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": code}})
    }

    fn anthropic_kind(&self) -> &'static str {
        match self.status {
            401 => "authentication_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 | 529 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }
}
