//! Parses the time formats of providers: durations such as `6m0s`, `12ms`, `1h2m3.5s`, `26 seconds`
//! and `1.5`, and times in RFC 3339.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::duration;

/// Converts seconds to a duration of at most [`duration::MAX`]. Returns `None` for negative numbers
/// and NaN.
pub(super) fn seconds(value: f64) -> Option<Duration> {
    duration::from_secs(value.clamp(f64::MIN, f64::MAX))
}

/// Parses a decimal number. Returns `None` for invalid text, including `inf` and `NaN`. A number
/// too large for `f64`, such as `1e999`, gives infinity.
pub(super) fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let decimal = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'+' | b'-' | b'e' | b'E');
    if text.bytes().all(decimal) { text.parse().ok() } else { None }
}

/// Parses a whole string as a duration: a number of seconds, or numbers with units. Returns `None`
/// for anything else.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let with_units = || duration_prefix(text.as_bytes()).filter(|(_, used)| *used == text.len());
    number(text).map_or_else(|| with_units().map(|(found, _)| found), seconds)
}

/// Parses the duration with units at the start of a text. Returns the duration and its length in
/// bytes: `10h17m5.7s. Then` gives 37,025.7 s and 10. Returns `None` if the text starts with
/// something else.
pub(super) fn duration_prefix(text: &[u8]) -> Option<(Duration, usize)> {
    let mut total = 0.0;
    let mut used = 0;
    while let Some((part, length)) = duration_part(text.get(used..)?) {
        total += part;
        used += length;
    }
    if used == 0 { None } else { Some((seconds(total)?, used)) }
}

/// Parses one number with its unit at the start of a text. Returns the number in seconds, and its
/// length in bytes including the unit. Returns `None` if the text starts with something else.
fn duration_part(text: &[u8]) -> Option<(f64, usize)> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
    let value: f64 = std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()?;
    let rest = text.get(digits..)?;
    let space = usize::from(rest.first() == Some(&b' '));
    let rest = rest.get(space..)?;
    let letters = rest.iter().take_while(|b| b.is_ascii_alphabetic() || **b >= 0x80).count();
    let unit = match std::str::from_utf8(rest.get(..letters)?).ok()? {
        "d" | "day" | "days" => 86_400.0,
        "h" | "hour" | "hours" => 3_600.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "ms" | "millisecond" | "milliseconds" => 1e-3,
        "us" | "µs" | "μs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    Some((value * unit, digits + space + letters))
}

/// Returns the time from `now` to `then`, at most [`duration::MAX`]. Returns zero if `then` has
/// passed.
pub(super) fn until(then: SystemTime, now: SystemTime) -> Duration {
    then.duration_since(now).unwrap_or(Duration::ZERO).min(duration::MAX)
}

/// Parses a date of an HTTP header, such as `Fri, 21 Nov 2025 08:48:00 GMT`. The zone may also be
/// `UTC`, `+0000` or `-0000`, which some libraries write instead of `GMT`. Returns `None` for
/// anything else.
pub(super) fn http_date(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    let zone = ["UTC", "+0000", "-0000"].into_iter().find_map(|zone| text.strip_suffix(zone));
    let date = zone.map_or(Cow::Borrowed(text), |time| format!("{time}GMT").into());
    httpdate::parse_http_date(&date).ok()
}

/// Parses a time in RFC 3339, such as `2026-11-21T08:48:00Z`, with an optional fraction and any
/// offset. Returns `None` for anything else and for times before 1970.
pub(super) fn rfc3339(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at_checked(zone)?;

    let mut date = date.split('-').map(digits);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut clock = clock.split(':');
    let (hour, minute) = (digits(clock.next()?)?, digits(clock.next()?)?);
    let second: f64 = number(clock.next()?)?;
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let is_clock = hour <= 23 && minute <= 59 && (0.0..61.0).contains(&second);
    if !is_date || !is_clock || date.next().is_some() || clock.next().is_some() {
        return None;
    }
    let whole_seconds =
        days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 - offset(zone)?;
    let since = Duration::from_secs(u64::try_from(whole_seconds).ok()?).checked_add(seconds(second)?)?;
    UNIX_EPOCH.checked_add(since)
}

/// Returns the offset of a time zone (`Z` or `+02:00`) in seconds east of UTC, or `None` if it is
/// invalid.
fn offset(zone: &str) -> Option<i64> {
    let sign = match zone.chars().next()? {
        'Z' | 'z' => return (zone.len() == 1).then_some(0),
        '-' => -1,
        _ => 1,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Parses a number of one to four digits. Returns `None` for any other text.
fn digits(text: &str) -> Option<i64> {
    // `parse` would also accept a sign.
    let is_number = text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Returns the number of days from 1 January 1970 to a date of the Gregorian calendar. The
/// calculation counts years from March, so that the leap day is the last day of a year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let leap_days = year / 4 - year / 100 + year / 400;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    // 719,468 days lie between 1 March of year 0 and 1 January 1970.
    year * 365 + leap_days + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_agrees_with_http_dates() {
        for (rfc, http) in [
            ("1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("2000-02-29T23:59:59Z", "Tue, 29 Feb 2000 23:59:59 GMT"),
            ("2026-11-21T10:48:00+02:00", "Sat, 21 Nov 2026 08:48:00 GMT"),
            ("2100-03-01T00:00:00-00:30", "Mon, 01 Mar 2100 00:30:00 GMT"),
        ] {
            assert_eq!(rfc3339(rfc), httpdate::parse_http_date(http).ok(), "{rfc}");
        }
        for nonsense in
            ["", "2026", "2026-13-01T00:00:00Z", "2026-11-21T08:48:00", "2026-11-21T08:48:00+2", "é-é-éTé"]
        {
            assert_eq!(rfc3339(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn consecutive_days_have_consecutive_numbers() {
        let mut expected = days_since_1970(1999, 12, 31);
        for year in 2000..2008 {
            for month in 1..=12 {
                let leap = year % 4 == 0;
                let length = match month {
                    2 if leap => 29,
                    2 => 28,
                    4 | 6 | 9 | 11 => 30,
                    _ => 31,
                };
                for day in 1..=length {
                    expected += 1;
                    assert_eq!(days_since_1970(year, month, day), expected);
                }
            }
        }
    }
}
