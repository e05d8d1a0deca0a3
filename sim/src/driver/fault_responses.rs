//! Builds the answers to calls that a fault rejects, with the texts and headers of real providers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response};

use super::Shared;
use super::body::SimBody;
use super::respond::error;
use crate::api::{ApiError, Protocol};
use crate::faults::{RateHeaders, Rejection, RetryAfter};

/// The last second of the year 9999, in seconds since 1970. Later times have no format in RFC 3339.
const MAX_RFC3339_SECONDS: u64 = 253_402_300_799;

/// Returns the answer to a call that a fault rejects before it reaches an engine. `rate` has the
/// values of the answer's rate-limit headers.
pub(super) fn response(
    shared: &Shared,
    protocol: Protocol,
    rejection: Rejection,
    rate: &[RateHeaders],
) -> Response<SimBody> {
    let mut extra = rate_headers(shared, protocol, rate);
    let api = describe(shared, protocol, rejection, &mut extra);
    let mut response = error(Some(protocol), &api);
    response.headers_mut().extend(extra);
    response
}

fn describe(shared: &Shared, protocol: Protocol, rejection: Rejection, extra: &mut HeaderMap) -> ApiError {
    match rejection {
        Rejection::Connection | Rejection::Unavailable | Rejection::Silence => ApiError::unavailable(),
        Rejection::Dead => ApiError::engine_dead(),
        Rejection::Internal => ApiError::new(500, "InternalServerError", "an internal error, injected"),
        Rejection::Window { retry_after } => {
            with_retry_after(shared, protocol, too_many(), retry_after, extra)
        }
        Rejection::Concurrency { limit, retry_after } => {
            let api = limit.map_or_else(too_many, |limit| {
                let message = format!("Too many concurrent requests: the limit is {limit}.");
                ApiError::new(429, "concurrency_limit_exceeded", message).code("concurrency_limit_exceeded")
            });
            with_retry_after(shared, protocol, api, retry_after, extra)
        }
        Rejection::Rate { resource, wait } => {
            let api = resource.map_or_else(too_many, |resource| {
                let message = format!("Rate limit reached for {resource} per minute.");
                ApiError::new(429, resource, message).code("rate_limit_exceeded")
            });
            let Some(wait) = wait else { return api };
            if !matches!(protocol, Protocol::Messages | Protocol::Gemini) {
                let ms = shared.clock.client(wait).as_nanos().div_ceil(1_000_000).to_string();
                if let Ok(value) = HeaderValue::try_from(ms) {
                    extra.insert(HeaderName::from_static("retry-after-ms"), value);
                }
            }
            with_retry_after(shared, protocol, api, RetryAfter::In(wait), extra)
        }
    }
}

/// Returns a 429 that does not say which limit was exceeded.
fn too_many() -> ApiError {
    ApiError::new(429, "rate_limit_exceeded", "Too many requests.").code("rate_limit_exceeded")
}

/// Adds the delay after which a retry is allowed to the headers in `extra` or, for Gemini, to the
/// error `api`. Adds nothing for [`RetryAfter::None`]. Returns the error.
fn with_retry_after(
    shared: &Shared,
    protocol: Protocol,
    api: ApiError,
    when: RetryAfter,
    extra: &mut HeaderMap,
) -> ApiError {
    let text = match when {
        RetryAfter::None => return api,
        RetryAfter::In(span) if protocol == Protocol::Gemini => {
            return api.retry_in(shared.clock.client(span));
        }
        RetryAfter::In(span) => ceil_seconds(shared.clock.client(span)).to_string(),
        RetryAfter::Text(text) => text,
    };
    if let Ok(value) = HeaderValue::try_from(text) {
        extra.insert(RETRY_AFTER, value);
    }
    api
}

fn ceil_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

/// Returns the time that is `span` after now on the wall clock, in whole seconds, rounded up, in
/// the format of RFC 3339. At most the end of the year 9999.
#[allow(clippy::disallowed_methods, reason = "clients compare the time with their own wall clock")]
fn wall_clock_after(span: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = ceil_seconds(now.saturating_add(span)).min(MAX_RFC3339_SECONDS);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

/// Returns the rate-limit headers of the protocol's provider, with times on the client's clock:
/// `anthropic-ratelimit-*` for Messages, none for Gemini, because Google sends none, and OpenAI's
/// `x-ratelimit-*` for the others.
pub(super) fn rate_headers(shared: &Shared, protocol: Protocol, rate: &[RateHeaders]) -> HeaderMap {
    let mut map = HeaderMap::new();
    if protocol == Protocol::Gemini {
        return map;
    }
    let is_anthropic = protocol == Protocol::Messages;
    for r in rate {
        let reset = shared.clock.client(r.reset);
        let values = [
            ("limit", r.limit.to_string()),
            ("remaining", r.remaining.to_string()),
            ("reset", if is_anthropic { wall_clock_after(reset) } else { go_duration(reset) }),
        ];
        for (what, value) in values {
            let name = match is_anthropic {
                true => format!("anthropic-ratelimit-{}-{what}", r.resource),
                false => format!("x-ratelimit-{what}-{}", r.resource),
            };
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                map.insert(name, value);
            }
        }
    }
    map
}

/// Formats a duration as OpenAI does, for example `12ms`, `1.5s` or `6m0s`.
fn go_duration(span: Duration) -> String {
    let ms = span.as_millis();
    match (ms / 60_000, ms % 60_000) {
        (0, ms) if ms < 1_000 => format!("{ms}ms"),
        (0, ms) => format!("{}s", ms as f64 / 1e3),
        (minutes, ms) => format!("{minutes}m{}s", ms as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_durations_as_openai_does() {
        let written = [0, 12, 1_500, 360_000, 61_250].map(|ms| go_duration(Duration::from_millis(ms)));
        assert_eq!(written, ["0ms", "12ms", "1.5s", "6m0s", "1m1.25s"]);
    }

    #[test]
    fn time_beyond_the_year_9999_is_its_end() {
        assert_eq!(wall_clock_after(Duration::MAX), "9999-12-31T23:59:59Z");
    }
}
