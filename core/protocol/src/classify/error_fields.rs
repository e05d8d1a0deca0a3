//! Reads the fields of an error body that decide how the error is classified.

use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use serde_json::Value;

use crate::retry_after;

/// Parts of the messages of status 429 that say that a quota, credit or spend limit is exhausted.
/// The names of these errors do not say so.
const QUOTA_MESSAGES: [&str; 6] = [
    // Anthropic.
    "spend limit",
    // xAI.
    "spending limit",
    // Gemini.
    "spending cap",
    "spend cap",
    "credits are depleted",
    // Bedrock.
    "Too many tokens per day",
];

/// The fields of an error that may contain its HTTP status as a number.
const STATUS_FIELDS: [&str; 5] = ["code", "statusCode", "status_code", "http_status_code", "status"];

/// The fields of an error body, each with one name for the different spellings of the providers.
#[derive(Default)]
pub(super) struct ErrorFields {
    /// `error.code` as text, Gemini's `status`, or Bedrock's exception (`__type` or the header
    /// `x-amzn-errortype`). `None` if the response has none of them.
    pub(super) code: Option<String>,
    /// `error.type`, or `error_type`. `None` if the body has neither.
    kind: Option<String>,
    /// The HTTP status of the error as a number: the first one from 400 to 599 in the fields
    /// [`STATUS_FIELDS`]. `None` if there is none.
    number: Option<u16>,
    /// `error.message`, `error` itself if it is a text, or `detail`; the whole body if it cannot be
    /// parsed. Empty if the body has none of them. Never returned to callers.
    message: String,
    /// Whether the error names a daily quota of Gemini.
    daily: bool,
    /// How long the error asks callers to wait, in its message or its `details`. `None` if it does
    /// not say. Other fields of the body are not searched: they may repeat the prompt. A body that
    /// cannot be parsed is searched as a whole.
    pub(super) delay: Option<Duration>,
}

impl ErrorFields {
    /// Reads the fields of an error body, which may be cut off or not JSON.
    pub(super) fn read(body: &[u8]) -> Self {
        let Ok(document) = serde_json::from_slice::<Value>(body) else { return Self::search(body) };
        // Gemini wraps the error in a list if the successful response would have been a list.
        let document = document.get(0).unwrap_or(&document);
        let error = document.get("error").or_else(|| document.get("response")?.get("error"));
        let error = error.filter(|error| !error.is_null()).unwrap_or(document);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let field = |name| error.get(name).and_then(text);
        let number = |name: &&str| {
            let value = error.get(name)?;
            value.as_u64().or_else(|| value.as_str()?.parse().ok())
        };
        let code = field("code").filter(|_| number(&"code").is_none());
        let message = field("message").or_else(|| text(error)).or_else(|| field("detail"));
        let message = message.unwrap_or_default();
        let details = error.get("details").map(Value::to_string).unwrap_or_default();
        Self {
            code: code.or_else(|| field("status")).or_else(|| field("__type")),
            kind: field("type").or_else(|| document.get("error_type").and_then(text)),
            number: STATUS_FIELDS.iter().filter_map(number).find_map(error_status),
            daily: details.contains("PerDay"),
            delay: retry_after::in_text(message.as_bytes()).max(retry_after::in_text(details.as_bytes())),
            message,
        }
    }

    /// Finds the fields in a body that is cut off or not JSON. Quotes inside JSON strings are
    /// escaped, so an unescaped `"code"` is a key.
    fn search(body: &[u8]) -> Self {
        let code = value_after_key(body, b"\"code\"");
        let number: Option<u64> = code.as_deref().and_then(|code| code.parse().ok());
        Self {
            number: number.and_then(error_status),
            code: code.filter(|_| number.is_none()).or_else(|| value_after_key(body, b"\"status\"")),
            kind: value_after_key(body, b"\"type\""),
            message: String::from_utf8_lossy(body).into_owned(),
            daily: memmem::find(body, b"\"quotaId\"").is_some() && memmem::find(body, b"PerDay").is_some(),
            delay: retry_after::in_text(body),
        }
    }

    /// Returns the code of the error, or its type if the code is not an identifier: at most 64
    /// letters, digits, `_`, `-` and `.`, and not only digits. Returns `None` if neither is an
    /// identifier.
    pub(super) fn identifier(&self) -> Option<Arc<str>> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        let is_identifier = |name: &&str| {
            name.len() <= 64 && name.bytes().all(allowed) && !name.bytes().all(|b| b.is_ascii_digit())
        };
        self.names().find(is_identifier).map(Arc::from)
    }

    /// Returns the code and the type of the error, if the body has them. The code comes first,
    /// because it is more specific.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.code.as_deref().into_iter().chain(self.kind.as_deref())
    }

    /// Returns the HTTP status that corresponds to the error, or `None` if its number and names are
    /// unknown.
    pub(super) fn status(&self) -> Option<u16> {
        self.number.or_else(|| self.names().find_map(status_of))
    }

    /// Returns `true` if a quota, credit or spend limit is exhausted, and waiting a few minutes
    /// does not refill it. `status` is the status of the response. For an error event, `status` is
    /// the one that the error would have had as a response.
    pub(super) fn quota_exhausted(&self, status: u16) -> bool {
        let by_name = self.names().any(|name| match name {
            "insufficient_quota" | "billing_error" | "credit_balance_exhausted" => true,
            "billing_hard_limit_reached" | "organization_usage_limit_exceeded" | "ServiceQuotaExceeded" => {
                true
            }
            // The names that OpenAI and Moonshot use for an account without credit.
            "billing_not_active" | "exceeded_current_quota_error" => true,
            "ServiceQuotaExceededException" | "serviceQuotaExceededException" => true,
            _ => name.ends_with("spend_limit_exceeded"),
        });
        let says = |text: &str| self.message.contains(text);
        by_name
            || match status {
                // Anthropic names these two only in the message.
                400 => says("credit balance is too low") || says("reached your specified API usage limits"),
                // Azure API Management: the token quota, for example per month. Errors with a code
                // may mention a quota that is not exhausted.
                403 => self.code.is_none() && (says("quota") || says("Quota")),
                429 => self.daily || self.has_zero_limit() || QUOTA_MESSAGES.into_iter().any(says),
                _ => false,
            }
    }

    /// Returns `true` if Groq's flex tier has no capacity.
    pub(super) fn lacks_capacity(&self) -> bool {
        self.code.as_deref() == Some("capacity_exceeded")
    }

    /// Returns `true` if OpenAI rejects a request that is larger than the limit per minute. Only
    /// the message differs from that of a limit that is used up.
    pub(super) fn is_too_large(&self) -> bool {
        self.message.starts_with("Request too large")
    }

    /// Returns `true` if the message contains Gemini's `limit: 0`, which means that the plan does
    /// not include the model. `limit: 0.5` and `limit: 05` do not count.
    fn has_zero_limit(&self) -> bool {
        let mut rests = self.message.split("limit: 0").skip(1);
        rests.any(|rest| rest == "." || !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    }
}

/// Returns the string or number after the first occurrence of `key`, which includes its quotes.
/// Returns `None` if it is missing or empty.
fn value_after_key(body: &[u8], key: &[u8]) -> Option<String> {
    let rest = body.get(memmem::find(body, key)? + key.len()..)?;
    let rest = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let value = match rest.strip_prefix(b"\"") {
        Some(text) => text.get(..text.iter().position(|b| *b == b'"')?)?,
        None => rest.get(..rest.iter().take_while(|b| b.is_ascii_digit()).count())?,
    };
    std::str::from_utf8(value).ok().filter(|value| !value.is_empty()).map(str::to_owned)
}

/// Returns the number as an HTTP status if it is one of an error, otherwise `None`.
fn error_status(number: u64) -> Option<u16> {
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

/// Returns the HTTP status that an error name stands for, or `None` if the name is unknown.
fn status_of(name: &str) -> Option<u16> {
    const NAMES: [(u16, &str); 21] = [
        (400, "invalid_request_error invalid_prompt context_length_exceeded INVALID_ARGUMENT"),
        (400, "FAILED_PRECONDITION BadRequestError validationException ValidationException"),
        // Azure, and Hugging Face's TGI.
        (400, "content_filter validation"),
        // The codes of failed Responses.
        (400, "invalid_image invalid_image_format invalid_base64_image invalid_image_url invalid_image_mode"),
        (400, "image_too_large image_too_small image_file_too_large image_parse_error empty_image_file"),
        (400, "unsupported_image_media_type image_content_policy_violation image_file_not_found"),
        (401, "authentication_error invalid_api_key UNAUTHENTICATED"),
        (402, "billing_error"),
        (403, "permission_error PERMISSION_DENIED AccessDeniedException"),
        (404, "not_found_error model_not_found NOT_FOUND NotFoundError"),
        (408, "modelTimeoutException ModelTimeoutException"),
        (413, "request_too_large"),
        (424, "modelStreamErrorException ModelStreamErrorException"),
        (429, "rate_limit_error rate_limit_exceeded insufficient_quota RESOURCE_EXHAUSTED requests tokens"),
        (429, "throttlingException ThrottlingException too_many_requests"),
        (429, "billing_not_active exceeded_current_quota_error"),
        (500, "api_error server_error internal_error INTERNAL InternalServerError internalServerException"),
        (503, "slow_down service_unavailable UNAVAILABLE ServiceUnavailableError overloaded"),
        (503, "serviceUnavailableException capacity_exceeded service_unavailable_error server_is_overloaded"),
        (504, "timeout_error timeout DEADLINE_EXCEEDED"),
        (529, "overloaded_error"),
    ];
    NAMES.iter().find(|(_, names)| names.split(' ').any(|known| known == name)).map(|(status, _)| *status)
}
