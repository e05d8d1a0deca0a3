//! Classifies failed responses: the kind of failure, and whether the same request may succeed
//! later.
//!
//! # Algorithm
//!
//! The status decides first, then the body corrects it, because the same 429 can mean "in a second"
//! or "after you have paid". Later rules override earlier ones:
//!
//! 1. Statuses 408, 409, 429, and 500 and above except 501 and 505 are retryable. Groq's status 498
//!    with the code `capacity_exceeded` counts as 503.
//! 2. `x-should-retry: true | false` overrides the status.
//! 3. A quota that waiting does not refill (`insufficient_quota`, spend limits, depleted credits,
//!    daily quotas, a limit of 0) is never retryable, and neither is a 429 for a request that is
//!    larger than the limit.
//!
//! # Guarantees
//!
//! Bodies are untrusted: they are bounded by the caller, and may be cut off or not JSON. Only a
//! short identifier of a body is kept.

mod error_fields;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use super::retry_after;
use error_fields::ErrorFields;

/// The kind of a failure, as shown in metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Too many requests or tokens in the current period (429).
    RateLimited,
    /// The server has no capacity (503, 529, and 498 of Groq's flex tier).
    Overloaded,
    /// The server failed (500, 502 and others).
    ServerError,
    /// The server did not finish in time (408, 504, 522, 524).
    Timeout,
    /// A conflict with another request (409).
    Conflict,
    /// A quota, credit or spend limit is exhausted and not refilled within minutes (402, or stated
    /// in the body).
    QuotaExhausted,
    /// The request is invalid (400, 422).
    BadRequest,
    /// The credential is missing, invalid or lacks permission (401, 403).
    Unauthorized,
    /// The request body is too large (413).
    TooLarge,
    /// The model or path does not exist (404).
    NotFound,
    /// Any other failure.
    Other,
}

impl Class {
    /// Returns the name used in metrics, such as `"rate_limited"`. The names are stable.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::RateLimited => "rate_limited",
            Class::Overloaded => "overloaded",
            Class::ServerError => "server_error",
            Class::Timeout => "timeout",
            Class::Conflict => "conflict",
            Class::QuotaExhausted => "quota_exhausted",
            Class::BadRequest => "bad_request",
            Class::Unauthorized => "unauthorized",
            Class::TooLarge => "too_large",
            Class::NotFound => "not_found",
            Class::Other => "other",
        }
    }

    /// Returns `true` if the provider rejected the call for lack of a budget or of capacity.
    fn lacks_capacity(self) -> bool {
        matches!(self, Class::RateLimited | Class::Overloaded | Class::QuotaExhausted)
    }

    /// Returns the class of an HTTP status.
    fn from_status(status: u16) -> Self {
        match status {
            400 | 422 => Class::BadRequest,
            401 | 403 => Class::Unauthorized,
            402 => Class::QuotaExhausted,
            404 => Class::NotFound,
            408 | 504 | 522 | 524 => Class::Timeout,
            409 => Class::Conflict,
            413 => Class::TooLarge,
            429 => Class::RateLimited,
            503 | 529 => Class::Overloaded,
            500.. => Class::ServerError,
            _ => Class::Other,
        }
    }
}

/// The classification of a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The kind of failure.
    pub class: Class,
    /// The HTTP status. For an error within a response whose status is a success, the status that
    /// the error would have had as a response.
    pub status: u16,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// How long the provider asks callers to wait. `None` if it states no delay, or if the failure
    /// is not retryable, and neither a rate limit, an overload nor an exhausted quota. For an
    /// exhausted quota it is information for the caller only.
    pub delay: Option<Duration>,
    /// The provider's identifier of the error, such as `rate_limit_exceeded`: at most 64 letters,
    /// digits, `_`, `-` and `.`. `None` if the error has none.
    pub code: Option<Arc<str>>,
    /// Whether the provider rejected the request before doing any work (429, and the statuses of
    /// [`Class::Overloaded`]), so sending the request again cannot execute it twice. For an error
    /// within a stream, this holds only if no token has been delivered.
    pub never_executed: bool,
}

impl Verdict {
    /// Raises the delay of an error event to the one that the headers of its response state. Keeps
    /// a longer delay, and does nothing for failures without a delay (see [`Verdict::delay`]).
    ///
    /// `wall` is the local wall clock, used to read dates if the response has no `Date` header.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use http::{HeaderMap, header::RETRY_AFTER};
    /// use tidegate_protocol::classify_event;
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert(RETRY_AFTER, "30".parse().unwrap());
    /// let mut verdict = classify_event(br#"{"error": {"code": "rate_limit_exceeded"}}"#);
    /// verdict.raise_delay(&headers, SystemTime::now());
    /// assert_eq!(verdict.delay, Some(Duration::from_secs(30)));
    /// ```
    pub fn raise_delay(&mut self, headers: &HeaderMap, wall: SystemTime) {
        if self.retryable || self.class.lacks_capacity() {
            self.delay = self.delay.max(retry_after::stated(headers, wall));
        }
    }
}

/// Classifies a response whose status is not a success.
///
/// `body` is the body or its first part. `wall` is the local wall clock, used to read dates if the
/// response has no `Date` header.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
/// use tidegate_protocol::{Class, classify};
///
/// let mut headers = HeaderMap::new();
/// headers.insert(RETRY_AFTER, "3".parse().unwrap());
/// let verdict = classify(StatusCode::TOO_MANY_REQUESTS, &headers, b"{}", SystemTime::now());
/// assert_eq!((verdict.class, verdict.retryable), (Class::RateLimited, true));
/// assert_eq!(verdict.delay, Some(Duration::from_secs(3)));
/// ```
pub fn classify(status: StatusCode, headers: &HeaderMap, body: &[u8], wall: SystemTime) -> Verdict {
    let mut fields = ErrorFields::read(body);
    // For example `ServiceQuotaExceededException:http://internal.amazon.com/...`
    if let Some(exception) = headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok()) {
        fields.code = exception.split(':').next().map(str::to_owned);
    }
    let should_retry = headers.get("x-should-retry").and_then(|value| value.to_str().ok()?.parse().ok());
    decide(status.as_u16(), &fields, should_retry, |class| {
        if class.lacks_capacity() {
            retry_after::delay(headers, fields.delay, wall)
        } else {
            retry_after::stated(headers, wall).max(fields.delay)
        }
    })
}

/// Classifies an error within a response whose status is a success, as an event or as the whole
/// body. `error` is its JSON, with or without the enclosing `{"error": ...}`. An error of unknown
/// type counts as status 500.
pub fn classify_event(error: &[u8]) -> Verdict {
    let fields = ErrorFields::read(error);
    // An error without a type is a server error.
    let status = fields.status().unwrap_or(500);
    decide(status, &fields, None, |_| fields.delay)
}

/// Returns the verdict for a status and the fields of a body. `should_retry` is the provider's
/// `x-should-retry` header, or `None` without a valid one. `delay` returns how long the provider
/// asks callers to wait after a failure of a class. It is called only for the failures that
/// [`Verdict::delay`] lists.
fn decide(
    status: u16,
    fields: &ErrorFields,
    should_retry: Option<bool>,
    delay: impl FnOnce(Class) -> Option<Duration>,
) -> Verdict {
    let judged_as = if status == 498 && fields.lacks_capacity() { 503 } else { status };
    let class = if fields.quota_exhausted(status) {
        Class::QuotaExhausted
    } else if status == 429 && fields.is_too_large() {
        Class::TooLarge
    } else {
        Class::from_status(judged_as)
    };
    let by_status = matches!(judged_as, 408 | 409 | 429 | 500 | 502..=504 | 506..);
    let is_permanent = matches!(class, Class::QuotaExhausted | Class::TooLarge);
    let retryable = !is_permanent && should_retry.unwrap_or(by_status);
    let asks_to_wait = retryable || class.lacks_capacity();
    Verdict {
        class,
        status,
        retryable,
        // Texts of other errors may quote the prompt, which may contain "retry in 5h".
        delay: if asks_to_wait { delay(class) } else { None },
        code: fields.identifier(),
        never_executed: matches!(class, Class::RateLimited | Class::Overloaded)
            || (class == Class::TooLarge && status == 429),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BODIES: [&str; 4] = [
        r#"{"error": {"message": "You said \"code\": 1", "type": "insufficient_quota", "param": null, "code": 429}}"#,
        r#"[{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "limit: 0", "details": [{"quotaId": "xPerDay"}]}}]"#,
        r#"{"type": "error", "error": {"type": "overloaded_error", "message": "retry in 1h"}}"#,
        r#"{"type": "response.failed", "response": {"error": {"code": "server_error"}}}"#,
    ];

    fn body() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            // A known body that is cut off anywhere, and in which one byte was changed.
            (0..BODIES.len(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>())
                .prop_map(|(which, cut, at, byte)| {
                    let mut body = BODIES[which].as_bytes().to_vec();
                    let at = at.index(body.len());
                    body[at] = byte;
                    body.truncate(cut.index(body.len() + 1));
                    body
                }),
        ]
    }

    #[test]
    fn reset_of_a_budget_delays_only_calls_that_were_rejected_for_it() {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining-requests", "0".parse().unwrap());
        headers.insert("x-ratelimit-reset-requests", "60s".parse().unwrap());
        let delay = |status| {
            classify(StatusCode::from_u16(status).unwrap(), &headers, b"", SystemTime::UNIX_EPOCH).delay
        };
        let minute = Some(std::time::Duration::from_secs(60));
        assert_eq!([429, 503, 500, 504].map(delay), [minute, minute, None, None]);
    }

    #[test]
    fn headers_delay_only_events_that_waiting_helps() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "30".parse().unwrap());
        let delay = |event: &str| {
            let mut verdict = classify_event(event.as_bytes());
            verdict.raise_delay(&headers, SystemTime::UNIX_EPOCH);
            verdict.delay.map(|delay| delay.as_secs())
        };
        assert_eq!(delay(r#"{"error": {"code": "rate_limit_exceeded"}}"#), Some(30));
        assert_eq!(delay(r#"{"error": {"code": "slow_down", "message": "retry in 40s"}}"#), Some(40));
        assert_eq!(delay(r#"{"error": {"code": "server_error"}}"#), Some(30));
        assert_eq!(delay(r#"{"error": {"code": "invalid_prompt"}}"#), None);
    }

    proptest! {
        #[test]
        fn verdict_is_sound_for_any_body(status in 100u16..1000, body in body()) {
            let status = StatusCode::from_u16(status).unwrap();
            for verdict in [classify(status, &HeaderMap::new(), &body, SystemTime::UNIX_EPOCH), classify_event(&body)] {
                prop_assert!(!(verdict.retryable && verdict.class == Class::QuotaExhausted));
                prop_assert!(verdict.code.is_none_or(|code| code.len() <= 64 && code.is_ascii()));
                prop_assert!((100..1000).contains(&verdict.status));
            }
        }

        #[test]
        fn quota_error_is_recognized_in_a_truncated_body(keep in 0usize..3000) {
            let long = "x".repeat(3000);
            let body = format!(r#"{{"error": {{"code": "insufficient_quota", "message": "{long}"}}}}"#);
            let cut = body.len() - 3000 + keep - 4;
            let verdict = classify(
                StatusCode::TOO_MANY_REQUESTS,
                &HeaderMap::new(),
                &body.as_bytes()[..cut],
                SystemTime::UNIX_EPOCH,
            );
            prop_assert_eq!(verdict.class, Class::QuotaExhausted);
        }
    }
}
