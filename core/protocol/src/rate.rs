//! Rate-limit headers: the size of each budget, what is left of it, and when it is full again.
//!
//! Each provider spells the headers differently: `x-ratelimit-remaining-tokens`,
//! `anthropic-ratelimit-tokens-remaining`, `x-ratelimit-limit-tokens-prompt`,
//! `x-ratelimitbysize-remaining`. The words are the same and only their order differs, so a header
//! name is read as a set of words.
//!
//! Gateways such as Envoy and Kong announce one limit in headers that name no unit
//! (`x-ratelimit-limit`), and its period elsewhere: as `;w=1` in the same value, or by other
//! headers that state the same limit and name the period (`x-ratelimit-limit-second`). If a
//! response states several limits of requests, the one with the lowest rate is read. A limit per
//! hour is read only if the headers without a unit state it: Kong states there the limit of which
//! least is left. Limits per month are ignored, because no known provider rejects requests with 429
//! because of them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{DATE, HeaderMap};

use super::{duration, time_formats};

/// One budget as reported by the provider. A value is `None` if it is missing or negative (Azure
/// reports -1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateWindow {
    /// Size of the budget: requests or tokens per period. `None` if the response does not state it.
    pub limit: Option<u64>,
    /// Requests or tokens left. `None` if the response does not state the number.
    pub remaining: Option<u64>,
    /// Time until the budget is full again. Zero if the stated time has passed. `None` if the
    /// response states no time.
    pub reset: Option<Duration>,
    /// Period of the limit, if the headers show it, from one second to one day. `None` usually
    /// means a minute, and sometimes a day.
    pub period: Option<Duration>,
}

/// The budgets that one response reports. A budget that is not reported has only `None` values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateHeaders {
    /// Requests, per minute unless [`RateWindow::period`] is set. Groq reports its requests per day
    /// here.
    pub requests: RateWindow,
    /// Input and output tokens together.
    pub tokens: RateWindow,
    /// Input tokens, if the provider limits them separately.
    pub input_tokens: RateWindow,
    /// Output tokens, if the provider limits them separately.
    pub output_tokens: RateWindow,
    /// Requests per day, if reported in addition to a shorter period.
    pub requests_per_day: RateWindow,
    /// Tokens per day, if reported in addition to a shorter period.
    pub tokens_per_day: RateWindow,
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Period of the limits of Fireworks (`-prompt`, `-generated`) if they are small, and of Together
/// (`x-tokenlimit-`, and headers without a unit in the same response).
const SECOND: Duration = Duration::from_secs(1);

/// The least limits of Fireworks that are per minute, of input and of output tokens: those that its
/// documentation states for new accounts. Its older documentation states limits per second, which
/// are far smaller.
const FIREWORKS_PER_MINUTE: [u64; 2] = [900_000, 36_000];

impl RateHeaders {
    /// Reads the budgets from the headers of a response. Headers that cannot be read are ignored.
    ///
    /// `wall` is the local wall clock, which is used for absolute reset times if the response has
    /// no `Date` header.
    pub fn read(headers: &HeaderMap, wall: SystemTime) -> Self {
        let mut rates = Self::default();
        let mut others = OtherRequestLimits::default();
        let mut now = None;
        let mut is_together_response = false;
        for (name, value) in headers {
            let name = name.as_str();
            let Some(words) = budget_words(name) else { continue };
            let Ok(value) = value.to_str() else { continue };
            let Some((window, field)) = rates.window_for(&mut others, name, words) else { continue };
            is_together_response |= is_together(name);
            match field {
                "limit" => (window.limit, window.period) = (count(value), period(value).or(window.period)),
                "remaining" => window.remaining = count(value),
                _ => window.reset = reset(value, *now.get_or_insert_with(|| clock(headers, wall))),
            }
        }
        rates.choose_requests(others, is_together_response);
        for (window, least) in
            [&mut rates.input_tokens, &mut rates.output_tokens].into_iter().zip(FIREWORKS_PER_MINUTE)
        {
            window.period.take_if(|_| window.limit.is_some_and(|limit| limit >= least));
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

    /// Returns the time until all exhausted budgets are full again. Returns `None` if no exhausted
    /// budget reports its reset.
    ///
    /// Budgets that are not exhausted did not cause the failure and are ignored.
    pub(crate) fn longest_exhausted_reset(&self) -> Option<Duration> {
        self.exhausted().filter_map(|window| window.reset).max()
    }

    /// Returns the budgets of which nothing is left.
    fn exhausted(&self) -> impl Iterator<Item = &RateWindow> {
        let totals = [&self.requests, &self.tokens, &self.requests_per_day, &self.tokens_per_day];
        let windows = totals.into_iter().chain([&self.input_tokens, &self.output_tokens]);
        windows.filter(|window| window.remaining == Some(0))
    }

    /// Chooses the limit of requests with the lowest rate among those of the response.
    /// `is_together_response` is `true` if the response is one of Together.
    fn choose_requests(&mut self, others: OtherRequestLimits, is_together_response: bool) {
        let OtherRequestLimits { mut bare, per_second, per_hour } = others;
        if bare.limit.is_some() && bare.period.is_none() {
            let named = [(MINUTE, self.requests), (SECOND, per_second), (HOUR, per_hour)];
            let mut named = named.into_iter().chain([(DAY, self.requests_per_day)]);
            let same = named.find(|(_, window)| window.limit == bare.limit);
            bare.period = same.map(|(period, _)| period).or(is_together_response.then_some(SECOND));
        }
        if bare.period == Some(DAY) {
            self.requests_per_day = RateWindow { period: None, ..std::mem::take(&mut bare) };
        }
        let windows = [bare, per_second, self.requests].into_iter();
        let stated = windows.filter(|window| *window != RateWindow::default());
        self.requests = stated.min_by(|a, b| a.rate().total_cmp(&b.rate())).unwrap_or_default();
    }

    /// Returns the budget to which a header belongs, to be updated, and the word of the name that
    /// states what the value is: `limit`, `remaining` or `reset`. Sets the period of a budget per
    /// second. Returns `None` if the name contains an unknown word, has none of these three, or
    /// names no known budget. `words` is the name without its prefix.
    fn window_for<'a, 'b>(
        &'a mut self,
        others: &'a mut OtherRequestLimits,
        name: &str,
        words: &'b str,
    ) -> Option<(&'a mut RateWindow, &'b str)> {
        let mut field = None;
        let mut tokens = name.starts_with("x-ratelimitbysize") || is_together(name);
        let (mut input, mut output, mut second) = (false, false, is_together(name));
        let (mut day, mut hour, mut bare) = (false, false, true);
        for word in words.split('-') {
            match word {
                "limit" | "remaining" | "reset" => {
                    field = Some(word);
                    continue;
                }
                "requests" | "req" | "minute" => {}
                "tokens" => tokens = true,
                "input" => input = true,
                "output" => output = true,
                "prompt" => (input, second) = (true, true),
                "generated" => (output, second) = (true, true),
                "second" => second = true,
                "hour" => hour = true,
                "day" => day = true,
                _ => return None,
            }
            bare = false;
        }
        let window = match (tokens, input, output, day) {
            (false, false, false, false) if bare => &mut others.bare,
            (false, false, false, false) if second => &mut others.per_second,
            (false, false, false, false) if hour => &mut others.per_hour,
            _ if hour => return None,
            (false, false, false, false) => &mut self.requests,
            (false, false, false, true) => &mut self.requests_per_day,
            (true, false, false, false) => &mut self.tokens,
            (true, false, false, true) => &mut self.tokens_per_day,
            (true, true, false, false) => &mut self.input_tokens,
            (true, false, true, false) => &mut self.output_tokens,
            _ => return None,
        };
        let field = field?;
        if second {
            window.period = Some(SECOND);
        }
        Some((window, field))
    }
}

impl RateWindow {
    /// Returns the limit per second, or infinity if there is no limit. A period that is not known
    /// counts as a minute.
    fn rate(&self) -> f64 {
        let period = self.period.unwrap_or(MINUTE).as_secs_f64();
        self.limit.map_or(f64::INFINITY, |limit| limit as f64 / period)
    }
}

/// Limits of requests in headers that do not name requests per minute or per day.
#[derive(Default)]
struct OtherRequestLimits {
    /// The limit in the headers whose names have neither a unit nor a period.
    bare: RateWindow,
    per_second: RateWindow,
    per_hour: RateWindow,
}

/// Returns `true` for the headers that only Together sends.
fn is_together(name: &str) -> bool {
    name.starts_with("x-tokenlimit-")
}

/// Returns the name of a rate-limit header without its prefix, or `None` for any other header.
fn budget_words(name: &str) -> Option<&str> {
    const PREFIXES: [&str; 5] =
        ["x-ratelimit-", "anthropic-ratelimit-", "ratelimit-", "x-ratelimitbysize-", "x-tokenlimit-"];
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))
}

/// Returns the time in the response's `Date` header, or `wall` without a valid one. Absolute reset
/// times are compared with this time, because the local clock may differ from the clock of the
/// provider.
pub(super) fn clock(headers: &HeaderMap, wall: SystemTime) -> SystemTime {
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    date.and_then(time_formats::http_date).unwrap_or(wall)
}

/// Parses a count of requests or tokens. For `100, 100;w=60` it is the first number. Returns `None`
/// for negative and invalid numbers.
fn count(value: &str) -> Option<u64> {
    let count = time_formats::number(value.split([',', ';']).next()?)?;
    // The cast saturates, so that "more than can be counted" is preserved.
    (count >= 0.0).then_some(count as u64)
}

/// Parses the period of a limit: for `10, 10;w=1, 50;w=60` it is that of the item whose number is
/// the first one, in seconds. Returns `None` if there is none, or if it is above a day.
fn period(value: &str) -> Option<Duration> {
    let limit = count(value)?;
    let items = value.split(',').filter(|item| count(item) == Some(limit));
    let periods = items.filter_map(|item| item.split(';').find_map(|part| part.trim().strip_prefix("w=")));
    let seconds = periods.filter_map(|period| period.parse().ok());
    seconds.map(Duration::from_secs).find(|period| (SECOND..=DAY).contains(period))
}

/// Returns the time from `now` until a budget is full again. Returns zero if that moment has
/// passed, and `None` if `value` cannot be read.
///
/// `value` is a duration, a time in RFC 3339, or a number. Numbers below 10^9 are seconds, numbers
/// below 10^12 are Unix time in seconds, and larger ones are Unix time in milliseconds.
fn reset(value: &str, now: SystemTime) -> Option<Duration> {
    let until = |then| time_formats::until(then, now);
    let unix = match time_formats::number(value) {
        None => {
            return time_formats::parse_duration(value).or_else(|| time_formats::rfc3339(value).map(until));
        }
        Some(number) if number < 1e9 => return time_formats::seconds(number),
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

    fn window(limit: u64, remaining: u64, reset: u64) -> RateWindow {
        let reset = Some(Duration::from_millis(reset));
        RateWindow { limit: Some(limit), remaining: Some(remaining), reset, period: None }
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
        assert_eq!((rates.requests.period, rates.tokens.period), (None, None));

        type Pairs<'a> = &'a [(&'static str, &'static str)];
        let per = |limit, period| (Some(limit), Some(period));
        // Envoy and Kong. The columns: the headers, the requests, and the requests per day.
        let rows: [(Pairs<'_>, _, _); 13] = [
            (&[("x-ratelimit-limit", "10, 10;w=1"), ("x-ratelimit-remaining", "9")], per(10, SECOND), None),
            (&[("ratelimit-limit", "50, 10;w=1, 50;w=60;name=\"a\"")], per(50, MINUTE), None),
            (&[("ratelimit-limit", "10;w=5")], per(10, Duration::from_secs(5)), None),
            (&[("ratelimit-limit", "900, 900; w=86400")], (None, None), Some(900)),
            (&[("ratelimit-limit", "10, 20;w=1")], (Some(10), None), None),
            (&[("ratelimit-limit", "10, 10;w=0")], (Some(10), None), None),
            (&[("ratelimit-limit", "10, 10;w=99999999999999999999")], (Some(10), None), None),
            (&[("ratelimit-limit", "10"), ("x-ratelimit-limit-second", "10")], per(10, SECOND), None),
            (&[("ratelimit-limit", "900"), ("x-ratelimit-limit-hour", "900")], per(900, HOUR), None),
            (&[("ratelimit-limit", "900"), ("x-ratelimit-limit-day", "900")], (None, None), Some(900)),
            (&[("x-ratelimit-limit-hour", "900")], (None, None), None),
            (
                &[
                    ("ratelimit-limit", "10"),
                    ("x-ratelimit-limit-second", "10"),
                    ("x-ratelimit-limit-minute", "100"),
                ],
                (Some(100), None),
                None,
            ),
            (
                &[
                    ("ratelimit-limit", "900"),
                    ("x-ratelimit-limit-minute", "100"),
                    ("x-ratelimit-limit-hour", "900"),
                ],
                per(900, HOUR),
                None,
            ),
        ];
        for (pairs, requests, per_day) in rows {
            for pairs in [pairs.to_vec(), pairs.iter().rev().copied().collect()] {
                let rates = read(&pairs);
                assert_eq!((rates.requests.limit, rates.requests.period), requests, "{pairs:?}");
                assert_eq!(rates.requests_per_day.limit, per_day, "{pairs:?}");
            }
        }
        let kong = read(&[
            ("ratelimit-limit", "100"),
            ("ratelimit-remaining", "7"),
            ("ratelimit-reset", "30"),
            ("x-ratelimit-limit-minute", "100"),
            ("x-ratelimit-remaining-minute", "7"),
        ]);
        assert_eq!(kong.requests, RateWindow { period: Some(MINUTE), ..window(100, 7, 30_000) });
    }

    #[test]
    fn fireworks_limits_of_the_size_that_it_documents_are_per_minute() {
        let fireworks = read(&[
            ("x-ratelimit-limit-tokens-prompt", "3600000"),
            ("x-ratelimit-limit-tokens-generated", "36000"),
        ]);
        assert_eq!(fireworks.output_tokens.limit, Some(36_000));
        assert_eq!((fireworks.input_tokens.period, fireworks.output_tokens.period), (None, None));
    }

    #[test]
    fn small_fireworks_and_together_limits_are_per_second() {
        let fireworks = read(&[
            ("x-ratelimit-limit-tokens-prompt", "6000"),
            ("x-ratelimit-limit-tokens-generated", "3000"),
        ]);
        assert_eq!(
            (fireworks.input_tokens.period, fireworks.output_tokens.period),
            (Some(SECOND), Some(SECOND))
        );
        for swapped in [false, true] {
            let mut pairs = vec![("x-ratelimit-limit", "2"), ("x-tokenlimit-limit", "800")];
            if swapped {
                pairs.reverse();
            }
            let together = read(&pairs);
            assert_eq!((together.requests.limit, together.requests.period), (Some(2), Some(SECOND)));
            assert_eq!((together.tokens.limit, together.tokens.period), (Some(800), Some(SECOND)));
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
        assert_eq!(rates.tokens, RateWindow::default());
        assert_eq!(rates.longest_exhausted_reset(), None);
    }
}
