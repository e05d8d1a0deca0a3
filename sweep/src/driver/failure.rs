//! Classifies failed exchanges for the search: the cause, and the limit that the response names.

use http::{HeaderMap, StatusCode};
use tidegate::ErrorKind;
use tidegate::protocol::{Class, RateHeaders, Verdict};

use crate::clock::EPOCH;
use crate::observation::{AttemptFailure, FailureCause, LimitHint, ReportedRate, ReportedRates};

/// Maximum number of bytes of an error response that are searched for the cause of the error.
pub(super) const MAX_ERROR_BYTES: usize = 16 << 10;
/// Maximum Retry-After in seconds. A longer one is ignored.
const MAX_RETRY_AFTER_S: f64 = 86_400.0;

/// Classifies a response with an error status. Returns the failure for the search, and the
/// classification by the `tidegate` crate.
pub(super) fn from_status(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> (AttemptFailure, Verdict) {
    let verdict = tidegate::protocol::classify(status, headers, body, EPOCH);
    let mut failure = from_verdict(&verdict, body);
    if failure.cause == FailureCause::Limited && failure.hint.is_none() {
        failure.hint = exhausted_budget(headers);
    }
    (failure, verdict)
}

/// Converts a classification by the `tidegate` crate into a failure for the search. `body` is
/// searched for the name of a limit.
pub(super) fn from_verdict(verdict: &Verdict, body: &[u8]) -> AttemptFailure {
    let cause = match verdict.class {
        Class::RateLimited => FailureCause::Limited,
        Class::Overloaded => FailureCause::Overloaded,
        Class::ServerError => FailureCause::Server,
        Class::Timeout => FailureCause::Timeout,
        _ => FailureCause::Request,
    };
    let limits = matches!(cause, FailureCause::Limited | FailureCause::Overloaded);
    AttemptFailure {
        cause,
        status: Some(verdict.status),
        retry_after: verdict
            .delay
            .map(|delay| delay.as_secs_f64())
            .filter(|delay| *delay <= MAX_RETRY_AFTER_S),
        hint: if limits { named_limit(body) } else { None },
    }
}

/// Classifies a failed connection. `answered` states whether the response head had arrived.
pub(super) fn from_error(kind: ErrorKind, answered: bool) -> AttemptFailure {
    let cause = match kind {
        ErrorKind::FirstTokenTimeout
        | ErrorKind::IdleTimeout
        | ErrorKind::Deadline
        | ErrorKind::ConnectTimeout => FailureCause::Timeout,
        _ if answered => FailureCause::Truncated,
        _ => FailureCause::Connection,
    };
    without_details(cause)
}

pub(super) fn without_details(cause: FailureCause) -> AttemptFailure {
    AttemptFailure { cause, status: None, retry_after: None, hint: None }
}

/// Returns `true` if the error means that no further call with the API key can succeed.
pub(super) fn is_final(verdict: &Verdict) -> bool {
    matches!(verdict.class, Class::QuotaExhausted | Class::Unauthorized)
}

/// Returns the kind of limit that an error text names (concurrency, tokens or requests), or `None`
/// if it names none.
fn named_limit(body: &[u8]) -> Option<LimitHint> {
    let text = String::from_utf8_lossy(body.get(..MAX_ERROR_BYTES.min(body.len())).unwrap_or_default())
        .to_ascii_lowercase();
    let contains_any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if contains_any(&["concurren", "in flight", "in-flight", "parallel", "simultaneous", "queued requests"]) {
        Some(LimitHint::Concurrency)
    } else if contains_any(&[
        "tokens per",
        "token per",
        "tokens/",
        "tpm",
        "token rate",
        "token limit",
        "\"tokens\"",
        "input-token",
    ]) {
        Some(LimitHint::Tokens)
    } else if contains_any(&[
        "requests per",
        "request per",
        "requests/",
        "rpm",
        "request rate",
        "\"requests\"",
        "qps",
    ]) {
        Some(LimitHint::Requests)
    } else {
        None
    }
}

/// Returns the kind of rate budget that the response headers report as used up, or `None` if none
/// is.
fn exhausted_budget(headers: &HeaderMap) -> Option<LimitHint> {
    let rates = RateHeaders::read(headers, EPOCH);
    let is_exhausted = |windows: &[tidegate::protocol::rate::RateWindow]| {
        windows.iter().any(|window| window.remaining == Some(0))
    };
    if is_exhausted(&[rates.tokens, rates.input_tokens, rates.output_tokens, rates.tokens_per_day]) {
        Some(LimitHint::Tokens)
    } else if is_exhausted(&[rates.requests, rates.requests_per_day]) {
        Some(LimitHint::Requests)
    } else {
        None
    }
}

/// Returns the rate limits that the response headers report: for requests and for tokens, the limit
/// per minute, and the amount that remains in the current window.
pub(super) fn reported_rates(headers: &HeaderMap) -> ReportedRates {
    let rates = RateHeaders::read(headers, EPOCH);
    let per_minute = |window: tidegate::protocol::rate::RateWindow| {
        let minutes = window.period.map_or(1.0, |over| over.as_secs_f64() / 60.0);
        let limit = window.limit.map(|limit| limit as f64 / minutes.max(1e-6));
        let remaining = window.remaining.map(|remaining| remaining as f64);
        (limit.is_some() || remaining.is_some()).then_some(ReportedRate { limit, remaining })
    };
    ReportedRates {
        requests: per_minute(rates.requests),
        tokens: per_minute(rates.tokens)
            .or(per_minute(rates.input_tokens))
            .or(per_minute(rates.output_tokens)),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn error_text_names_the_limit() {
        for (text, named) in [
            ("Too many concurrent requests: the limit is 24.", Some(LimitHint::Concurrency)),
            ("Number of concurrent connections has exceeded your rate limit", Some(LimitHint::Concurrency)),
            ("Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000", Some(LimitHint::Tokens)),
            (
                "would exceed your organization's rate limit of 40,000 input tokens per minute",
                Some(LimitHint::Tokens),
            ),
            ("Rate limit reached for requests per minute.", Some(LimitHint::Requests)),
            ("Too many requests.", None),
            ("", None),
        ] {
            assert_eq!(named_limit(text.as_bytes()), named, "{text}");
        }
    }

    #[test]
    fn exhausted_rate_header_names_the_limit() {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining-tokens", HeaderValue::from_static("0"));
        headers.insert("x-ratelimit-limit-tokens", HeaderValue::from_static("6000"));
        headers.insert("retry-after", HeaderValue::from_static("2"));
        let (failure, verdict) = from_status(StatusCode::TOO_MANY_REQUESTS, &headers, b"{}");
        assert_eq!(
            (failure.cause, failure.hint, failure.retry_after),
            (FailureCause::Limited, Some(LimitHint::Tokens), Some(2.0))
        );
        assert!(!is_final(&verdict));
        let rates = ReportedRate { limit: Some(6_000.0), remaining: Some(0.0) };
        assert_eq!(reported_rates(&headers).tokens, Some(rates));
    }

    #[test]
    fn exhausted_quota_is_not_a_rate_limit() {
        let body =
            br#"{"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}"#;
        let (failure, verdict) = from_status(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new(), body);
        assert_eq!(failure.cause, FailureCause::Request);
        assert!(is_final(&verdict));
    }

    #[test]
    fn connection_break_after_the_head_is_a_truncation() {
        assert_eq!(from_error(ErrorKind::Transport, false).cause, FailureCause::Connection);
        assert_eq!(from_error(ErrorKind::Transport, true).cause, FailureCause::Truncated);
        assert_eq!(from_error(ErrorKind::ConnectTimeout, false).cause, FailureCause::Timeout);
    }
}
