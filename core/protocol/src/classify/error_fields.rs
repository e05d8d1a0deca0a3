//! The fields of an error body that decide how the error is classified.

use std::sync::Arc;

use http::header::HeaderMap;
use memchr::memmem;
use serde_json::Value;

/// The error fields that all providers' bodies have in common.
#[derive(Default)]
pub(super) struct ErrorFields {
    /// `error.code` as text, Bedrock's exception, or Gemini's `status`.
    code: Option<String>,
    /// `error.type`.
    kind: Option<String>,
    /// `error.code` as a number.
    number: Option<u16>,
    /// `error.message`, or the whole body if it cannot be parsed. Never leaves this module.
    message: String,
    /// Whether the error is about one of Gemini's quotas per day.
    daily: bool,
}

impl ErrorFields {
    /// Reads the fields from a body, which may be cut off or not JSON.
    pub(super) fn extract(headers: &HeaderMap, body: &[u8]) -> Self {
        let mut fields = match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::from_json(&value),
            Err(_) => Self::search(body),
        };
        // For example `ServiceQuotaExceededException:http://internal.amazon.com/...`
        if let Some(exception) = headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok()) {
            fields.code = exception.split(':').next().map(str::to_owned);
        }
        fields
    }

    fn from_json(value: &Value) -> Self {
        // Gemini wraps the error in a list if the answer would have been one.
        let value = value.get(0).unwrap_or(value);
        let error = match value.get("error").or_else(|| value.get("response")?.get("error")) {
            Some(error) if !error.is_null() => error,
            _ => value,
        };
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
        let code = error.get("code");
        let number = code.or_else(|| error.get("statusCode")).and_then(|code| {
            code.as_u64().or_else(|| code.as_str()?.parse().ok()).and_then(|code| u16::try_from(code).ok())
        });
        let message =
            text("message").or_else(|| error.as_str().map(str::to_owned)).or_else(|| text("detail"));
        let details = error.get("details").map(Value::to_string).unwrap_or_default();
        Self {
            code: text("code")
                .filter(|_| number.is_none())
                .or_else(|| text("status"))
                .or_else(|| text("__type")),
            kind: text("type").or_else(|| value.get("error_type")?.as_str().map(str::to_owned)),
            number,
            message: message.unwrap_or_default(),
            daily: details.contains("PerDay"),
        }
    }

    /// Searches a body that was cut off or is not JSON. Quotes inside its strings are escaped, so a
    /// bare `"code"` is a key.
    fn search(body: &[u8]) -> Self {
        let code = value_after_key(body, b"\"code\"");
        let number = code.as_deref().and_then(|code| code.parse().ok());
        Self {
            number,
            code: code.filter(|_| number.is_none()).or_else(|| value_after_key(body, b"\"status\"")),
            kind: value_after_key(body, b"\"type\""),
            message: String::from_utf8_lossy(body).into_owned(),
            daily: memmem::find(body, b"\"quotaId\"").is_some() && memmem::find(body, b"PerDay").is_some(),
        }
    }

    /// Returns the identifier to report: the most specific field that looks like an identifier.
    pub(super) fn code(&self) -> Option<Arc<str>> {
        let identifier = |text: &&str| {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
            !text.is_empty()
                && text.len() <= 64
                && text.bytes().all(allowed)
                && !text.bytes().all(|b| b.is_ascii_digit())
        };
        self.names().find(identifier).map(Arc::from)
    }

    /// Returns the names of the error, the most specific first.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.code.as_deref().into_iter().chain(self.kind.as_deref())
    }

    /// Returns the status that an error event would have had as a response.
    pub(super) fn status(&self) -> Option<u16> {
        let number = self.number.filter(|number| (400..600).contains(number));
        number.or_else(|| self.names().find_map(status_of))
    }

    /// Returns `true` if the error is about a quota that a short wait does not refill.
    pub(super) fn quota_exhausted(&self, status: u16) -> bool {
        let by_name = self.names().any(|name| {
            matches!(
                name,
                "insufficient_quota"
                    | "credit_balance_exhausted"
                    | "organization_usage_limit_exceeded"
                    | "billing_hard_limit_reached"
                    | "billing_error"
                    | "ServiceQuotaExceeded"
                    | "ServiceQuotaExceededException"
                    | "serviceQuotaExceededException"
            ) || name.ends_with("spend_limit_exceeded")
        });
        let message_has = |text: &str| self.message.contains(text);
        by_name
            || match status {
                // Anthropic names these two only in the message.
                400 => {
                    message_has("credit balance is too low")
                        || message_has("reached your specified API usage limits")
                }
                // Azure API Management: the token quota, for example per month.
                403 => message_has("quota") || message_has("Quota"),
                429 => self.daily || self.has_zero_limit() || message_has("spend limit"),
                _ => false,
            }
    }

    /// Returns `true` for Gemini's `limit: 0`, which means that the plan does not include the
    /// model. `limit: 0.5` and `limit: 05` are different.
    fn has_zero_limit(&self) -> bool {
        self.message
            .split("limit: 0")
            .skip(1)
            .any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
            || self.message.ends_with("limit: 0.")
    }
}

/// Returns the string or number that follows the first occurrence of `key`.
fn value_after_key(body: &[u8], key: &[u8]) -> Option<String> {
    let rest = body.get(memmem::find(body, key)? + key.len()..)?;
    let rest = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let value = match rest.strip_prefix(b"\"") {
        Some(text) => text.get(..text.iter().position(|b| *b == b'"')?)?,
        None => rest.get(..rest.iter().take_while(|b| b.is_ascii_digit()).count())?,
    };
    std::str::from_utf8(value).ok().filter(|value| !value.is_empty()).map(str::to_owned)
}

/// Returns the status that an error name stands for.
fn status_of(name: &str) -> Option<u16> {
    Some(match name {
        "invalid_request_error"
        | "invalid_prompt"
        | "context_length_exceeded"
        | "INVALID_ARGUMENT"
        | "FAILED_PRECONDITION"
        | "BadRequestError"
        | "validationException"
        | "ValidationException" => 400,
        "authentication_error" | "invalid_api_key" | "UNAUTHENTICATED" => 401,
        "billing_error" => 402,
        "permission_error" | "PERMISSION_DENIED" | "AccessDeniedException" => 403,
        "not_found_error" | "model_not_found" | "NOT_FOUND" | "NotFoundError" => 404,
        "modelTimeoutException" | "ModelTimeoutException" => 408,
        "request_too_large" => 413,
        "modelStreamErrorException" | "ModelStreamErrorException" => 424,
        "rate_limit_error"
        | "rate_limit_exceeded"
        | "insufficient_quota"
        | "RESOURCE_EXHAUSTED"
        | "requests"
        | "tokens"
        | "throttlingException"
        | "ThrottlingException" => 429,
        "api_error"
        | "server_error"
        | "internal_error"
        | "INTERNAL"
        | "InternalServerError"
        | "internalServerException" => 500,
        "slow_down"
        | "service_unavailable"
        | "UNAVAILABLE"
        | "ServiceUnavailableError"
        | "overloaded"
        | "serviceUnavailableException" => 503,
        "timeout_error" | "timeout" | "DEADLINE_EXCEEDED" => 504,
        "overloaded_error" => 529,
        _ => return None,
    })
}
