//! Reads how long a provider asks callers to wait after a failure.
//!
//! # Algorithm
//!
//! 1. The largest explicit delay counts, because each is a lower bound. Explicit delays are
//!    `retry-after-ms`, `Retry-After` (seconds, also fractional, or an HTTP date), and in the error
//!    Gemini's `RetryInfo.retryDelay` or a sentence ("Please retry in 10h17m5.7s", "try again in
//!    20s", "retry after 26 seconds"). Exception: if `Retry-After` exceeds `retry-after-ms` by at
//!    most one second, it is the same delay rounded up, and `retry-after-ms` counts.
//! 2. Without an explicit delay, the `reset` of the budgets whose `remaining` is 0 counts if the
//!    provider rejected the call for lack of them. A reset is the time until a budget is *full*
//!    again, which is often long after it has room for one call, so it never extends an explicit
//!    delay.
//!
//! # Guarantees
//!
//! Negative, NaN, infinite and invalid values are ignored. A date in the past gives zero. Values
//! above ten years give ten years.

use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, RETRY_AFTER};
use memchr::memmem;

use super::{rate, time_formats};
use crate::RateHeaders;

/// Returns the delay stated by `retry-after-ms` and `Retry-After`, or `None` if there is none.
///
/// `wall` is the local wall clock, which is used if the response has no `Date` header.
pub fn stated(headers: &HeaderMap, wall: SystemTime) -> Option<Duration> {
    let texts =
        |name: &'static str| headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let fine = texts("retry-after-ms")
        .filter_map(|text| time_formats::seconds(time_formats::number(text)? / 1e3))
        .max();
    let coarse = texts(RETRY_AFTER.as_str()).filter_map(|text| seconds_or_date(text, headers, wall)).max();
    match (fine, coarse) {
        (Some(fine), Some(coarse)) if coarse.saturating_sub(fine) <= Duration::from_secs(1) => Some(fine),
        (fine, coarse) => fine.max(coarse),
    }
}

/// Returns how long to wait after a call that the provider rejected for lack of a budget: the
/// larger of the delay that the headers state and `in_error`, which the error states, or the reset
/// of the exhausted budgets. `None` if there is none of them. See [`stated`].
///
/// For any other call, it would return the reset of a budget that the call has just exhausted.
pub(super) fn delay(headers: &HeaderMap, in_error: Option<Duration>, wall: SystemTime) -> Option<Duration> {
    let stated = stated(headers, wall).max(in_error);
    stated.or_else(|| RateHeaders::read(headers, wall).longest_exhausted_reset())
}

/// Returns the delay that a value of `Retry-After` states, as a number of seconds, as a date, or as
/// several numbers (the largest one). A proxy joins repeated headers as `4, 4`. Returns `None` if
/// the value is invalid.
fn seconds_or_date(text: &str, headers: &HeaderMap, wall: SystemTime) -> Option<Duration> {
    if let Some(then) = time_formats::http_date(text) {
        return Some(time_formats::until(then, rate::clock(headers, wall)));
    }
    text.split(',').filter_map(time_formats::number).filter_map(time_formats::seconds).max()
}

/// Returns the largest delay stated in a text of an error, or `None` if there is none. The text is
/// searched for known words because it may be cut off.
pub(super) fn in_text(text: &[u8]) -> Option<Duration> {
    let field = after(text, b"\"retryDelay\"").and_then(|rest| {
        let quote = rest.iter().position(|b| !b.is_ascii_whitespace() && *b != b':')?;
        time_formats::duration_prefix(rest.get(quote..)?.strip_prefix(b"\"")?)
    });
    const SENTENCES: [&[u8]; 3] = [b"etry in ", b"ry again in ", b"etry after "];
    let sentence =
        SENTENCES.iter().filter_map(|words| time_formats::duration_prefix(after(text, words)?)).max();
    field.max(sentence).map(|(delay, _)| delay)
}

/// Returns what follows the first occurrence of `words`, or `None` if there is none.
fn after<'a>(text: &'a [u8], words: &[u8]) -> Option<&'a [u8]> {
    text.get(memmem::find(text, words)? + words.len()..)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;
    use crate::duration;

    const NAMES: [&str; 9] = [
        "retry-after",
        "retry-after-ms",
        "date",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
        "x-ratelimit-reset-tokens",
        "x-ratelimit-remaining-tokens",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ];

    /// Generates header values: arbitrary bytes, and text that resembles numbers, durations and
    /// dates.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            "[-+]?[0-9]{0,25}(\\.[0-9]{0,5})?(e[0-9]{1,4})?".prop_map(String::into_bytes),
            "([0-9.]{1,9}(h|m|s|ms|µs|d)?){1,4}".prop_map(String::into_bytes),
            "[0-9]{1,4}-[0-9]{1,3}-[0-9]{1,3}T[0-9]{1,2}:[0-9]{1,2}:[0-9.]{1,5}(Z|[+-][0-9]{2}:[0-9]{2})"
                .prop_map(String::into_bytes),
            "(Sat|Mon), [0-9]{2} Nov [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} (GMT|UTC|[-+]0000)"
                .prop_map(String::into_bytes),
            "([-+]?[0-9]{0,25}(e[0-9]{1,4})?, ?){1,3}[0-9]{0,5}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn any_header_yields_at_most_ten_years(
            pairs in prop::collection::vec((0..NAMES.len(), value()), 0..8),
            body in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                value().prop_map(|v| [b"{\"message\": \"Please retry in ", v.as_slice()].concat()),
                value().prop_map(|v| [b"{\"retryDelay\": \"", v.as_slice(), b"\"}"].concat()),
            ],
            wall in 0u64..4_000_000_000,
        ) {
            let headers: HeaderMap = pairs
                .into_iter()
                .filter_map(|(name, value)| {
                    Some((HeaderName::from_static(NAMES[name]), HeaderValue::from_bytes(&value).ok()?))
                })
                .collect();
            let found = delay(&headers, in_text(&body), SystemTime::UNIX_EPOCH + Duration::from_secs(wall));
            prop_assert!(found.is_none_or(|found| found <= duration::MAX));
        }

        #[test]
        fn whole_seconds_are_kept_exactly(seconds in 0u64..100_000_000, resets in 0u64..1000) {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", HeaderValue::from(seconds));
            headers.insert("x-ratelimit-remaining-tokens", HeaderValue::from(0));
            headers.insert("x-ratelimit-reset-tokens", HeaderValue::from(resets));
            prop_assert_eq!(
                delay(&headers, None, SystemTime::UNIX_EPOCH),
                Some(Duration::from_secs(seconds)),
            );
        }
    }
}
