//! Rate-limit headers: what is left of each budget, and when it is full again.
//!
//! Each provider has its own spelling: `x-ratelimit-remaining-tokens`,
//! `anthropic-ratelimit-tokens-remaining`, `x-ratelimit-limit-tokens-prompt`,
//! `x-ratelimitbysize-remaining`. The words are the same and only their order differs, so a name is
//! read as a set of words. Windows of an hour or a month are ignored, because no known provider
//! puts them on a 429.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{DATE, HeaderMap};

use super::{duration, time};

/// One budget as the provider reports it. A value that is missing, or that Azure reports as -1, is
/// `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Size of the budget, in requests or tokens per window.
    pub limit: Option<u64>,
    /// Requests or tokens left.
    pub remaining: Option<u64>,
    /// Time until the budget is full again. Zero if that time has passed.
    pub reset: Option<Duration>,
    /// Window of the limit, if its name tells. `None`: usually a minute, sometimes a day.
    pub over: Option<Duration>,
}

/// The budgets that one response reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateHeaders {
    /// Requests, per minute unless stated otherwise. (Groq reports requests per day under this
    /// name.)
    pub requests: Window,
    /// Input and output tokens together.
    pub tokens: Window,
    /// Input tokens, if counted separately.
    pub input_tokens: Window,
    /// Output tokens, if counted separately.
    pub output_tokens: Window,
    /// Requests per day, if reported in addition.
    pub requests_per_day: Window,
    /// Tokens per day, if reported in addition.
    pub tokens_per_day: Window,
}

/// Fireworks (`-prompt`, `-generated`) and Together (`x-tokenlimit-`, and the headers without a
/// unit beside it) use limits per second.
const SECOND: Duration = Duration::from_secs(1);

enum Field {
    Limit,
    Remaining,
    Reset,
}

impl RateHeaders {
    /// Reads the budgets from a response. `wall` is the local wall clock, used only if the response
    /// has no `Date` header.
    pub fn read(headers: &HeaderMap, wall: SystemTime) -> Self {
        let mut rates = Self::default();
        let mut now = None;
        let (mut is_together_response, mut bare) = (false, false);
        for (name, value) in headers {
            let name = name.as_str();
            let Some(words) = budget_words(name) else { continue };
            let Ok(value) = value.to_str() else { continue };
            let Some((window, field)) = rates.window_for(name, words) else { continue };
            is_together_response |= is_together(name);
            bare |= name == "x-ratelimit-limit";
            match field {
                Field::Limit => window.limit = count(value),
                Field::Remaining => window.remaining = count(value),
                Field::Reset => {
                    window.reset = reset(value, *now.get_or_insert_with(|| clock(headers, wall)));
                }
            }
        }
        if is_together_response && bare {
            rates.requests.over = Some(SECOND);
        }
        rates
    }

    /// Returns `true` if the response reports no budget.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if nothing is left of at least one budget.
    pub fn has_exhausted(&self) -> bool {
        self.exhausted().next().is_some()
    }

    /// Returns the time until each exhausted budget is full again, or `None` if no budget is known
    /// to be exhausted.
    ///
    /// Resets of other budgets say nothing about the failure and are ignored. The largest reset
    /// counts, because each budget must have capacity.
    pub fn longest_exhausted_reset(&self) -> Option<Duration> {
        self.exhausted().filter_map(|window| window.reset).max()
    }

    /// Returns the budgets of which nothing is left.
    fn exhausted(&self) -> impl Iterator<Item = &Window> {
        let totals = [&self.requests, &self.tokens, &self.requests_per_day, &self.tokens_per_day];
        let windows = totals.into_iter().chain([&self.input_tokens, &self.output_tokens]);
        windows.filter(|window| window.remaining == Some(0))
    }

    fn window_for(&mut self, name: &str, words: &str) -> Option<(&mut Window, Field)> {
        let mut field = None;
        let mut tokens = name.starts_with("x-ratelimitbysize") || is_together(name);
        let (mut input, mut output, mut day, mut second) = (false, false, false, is_together(name));
        for word in words.split('-') {
            match word {
                "limit" => field = Some(Field::Limit),
                "remaining" => field = Some(Field::Remaining),
                "reset" => field = Some(Field::Reset),
                "requests" | "req" | "minute" => {}
                "tokens" => tokens = true,
                "input" => input = true,
                "output" => output = true,
                "prompt" => (input, second) = (true, true),
                "generated" => (output, second) = (true, true),
                "day" => day = true,
                _ => return None,
            }
        }
        let window = match (tokens, input, output, day) {
            (false, false, false, false) => &mut self.requests,
            (false, false, false, true) => &mut self.requests_per_day,
            (true, false, false, false) => &mut self.tokens,
            (true, false, false, true) => &mut self.tokens_per_day,
            (true, true, false, false) => &mut self.input_tokens,
            (true, false, true, false) => &mut self.output_tokens,
            _ => return None,
        };
        let field = field?;
        window.over = second.then_some(SECOND);
        Some((window, field))
    }
}

fn is_together(name: &str) -> bool {
    name.starts_with("x-tokenlimit-")
}

/// Returns the part of a header's name that names the budget and its field.
fn budget_words(name: &str) -> Option<&str> {
    const PREFIXES: [&str; 5] =
        ["x-ratelimit-", "anthropic-ratelimit-", "ratelimit-", "x-ratelimitbysize-", "x-tokenlimit-"];
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))
}

/// Returns the response's own time, or `wall` if it has none. Against the local clock, a reset
/// would be wrong by the clock skew.
pub(super) fn clock(headers: &HeaderMap, wall: SystemTime) -> SystemTime {
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    date.and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(wall)
}

/// Parses a count. Of `100, 100;w=60`, it is the first.
fn count(value: &str) -> Option<u64> {
    let count = time::number(value.split([',', ';']).next()?)?;
    // The cast saturates, so that "more than can be counted" is preserved.
    (count >= 0.0).then_some(count as u64)
}

/// Parses a reset: a duration, a time in RFC 3339, or a bare number. A number from 10^9 is Unix
/// time in seconds, one from 10^12 in milliseconds: as a delay it would be thirty years.
fn reset(value: &str, now: SystemTime) -> Option<Duration> {
    let until = |then| time::until(then, now);
    let unix = match time::number(value) {
        None => return time::parse_duration(value).or_else(|| time::rfc3339(value).map(until)),
        Some(number) if number < 1e9 => return time::seconds(number),
        Some(number) if number < 1e12 => number,
        Some(number) => number / 1e3,
    };
    let then = Duration::try_from_secs_f64(unix).ok().and_then(|since| UNIX_EPOCH.checked_add(since));
    Some(then.map_or(duration::MAX, until))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn read(pairs: &[(&'static str, &'static str)]) -> RateHeaders {
        let headers = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        RateHeaders::read(&headers, SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_714_880))
    }

    fn window(limit: u64, remaining: u64, reset: u64) -> Window {
        let reset = Some(Duration::from_millis(reset));
        Window { limit: Some(limit), remaining: Some(remaining), reset, over: None }
    }

    #[test]
    fn openai() {
        let rates = read(&[
            ("x-ratelimit-limit-requests", "5000"),
            ("x-ratelimit-remaining-requests", "4999"),
            ("x-ratelimit-reset-requests", "12ms"),
            ("x-ratelimit-limit-tokens", "160000"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
        assert_eq!(rates.requests, window(5000, 4999, 12));
        assert_eq!(rates.tokens, window(160_000, 0, 360_000));
        assert_eq!(rates.longest_exhausted_reset(), Some(Duration::from_secs(360)));
    }

    #[test]
    fn anthropic() {
        let rates = read(&[
            ("date", "Fri, 21 Nov 2025 08:48:00 GMT"),
            ("anthropic-ratelimit-input-tokens-limit", "40000"),
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            ("anthropic-ratelimit-input-tokens-reset", "2025-11-21T08:48:07Z"),
            ("anthropic-ratelimit-output-tokens-limit", "8000"),
            ("anthropic-ratelimit-output-tokens-remaining", "7000"),
            ("anthropic-ratelimit-output-tokens-reset", "2025-11-21T08:47:00Z"),
        ]);
        assert_eq!(rates.input_tokens, window(40_000, 0, 7_000));
        assert_eq!(rates.output_tokens, window(8_000, 7_000, 0));
    }

    #[test]
    fn other_spellings() {
        let rates = read(&[
            ("x-ratelimit-limit", "20"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1763714885000"),
            ("x-ratelimitbysize-limit-minute", "500000"),
            ("x-ratelimit-limit-tokens-prompt", "6000"),
            ("x-ratelimit-limit-tokens-generated", "3000"),
            ("x-ratelimit-limit-requests-day", "14400"),
            ("x-ratelimit-limit-tokens-month", "1"),
        ]);
        assert_eq!(rates.requests, window(20, 0, 5_000));
        assert_eq!(rates.tokens.limit, Some(500_000));
        assert_eq!(rates.input_tokens.limit, Some(6_000));
        assert_eq!(rates.output_tokens.limit, Some(3_000));
        assert_eq!(rates.requests_per_day.limit, Some(14_400));
        assert_eq!((rates.requests.over, rates.tokens.over), (None, None));
    }

    #[test]
    fn fireworks_and_together_limits_are_per_second() {
        let fireworks = read(&[
            ("x-ratelimit-limit-tokens-prompt", "6000"),
            ("x-ratelimit-limit-tokens-generated", "3000"),
        ]);
        assert_eq!((fireworks.input_tokens.over, fireworks.output_tokens.over), (Some(SECOND), Some(SECOND)));
        for swapped in [false, true] {
            let mut pairs = vec![("x-ratelimit-limit", "2"), ("x-tokenlimit-limit", "800")];
            if swapped {
                pairs.reverse();
            }
            let together = read(&pairs);
            assert_eq!((together.requests.limit, together.requests.over), (Some(2), Some(SECOND)));
            assert_eq!((together.tokens.limit, together.tokens.over), (Some(800), Some(SECOND)));
        }
    }

    #[test]
    fn azure_minus_one_means_unknown() {
        let rates = read(&[
            ("x-ratelimit-remaining-requests", "-1"),
            ("x-ratelimit-reset-requests", "10"),
            ("x-ratelimit-remaining-tokens", "NaN"),
        ]);
        assert_eq!(rates.requests.remaining, None);
        assert_eq!(rates.tokens, Window::default());
        assert_eq!(rates.longest_exhausted_reset(), None);
    }
}
