//! Formats times as in RFC 3339.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second that has four digits of the year, in seconds since 1970.
const MAX_SECONDS: u64 = 253_402_300_799;
const DAY_SECONDS: u64 = 86_400;

/// Returns the time that is `span` after now on the wall clock, in whole seconds, rounded up.
#[allow(clippy::disallowed_methods, reason = "clients compare the time with their own wall clock")]
pub(super) fn from_now(span: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = now.saturating_add(span);
    format(time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)))
}

/// Formats a time in seconds since 1970.
fn format(seconds: u64) -> String {
    let seconds = seconds.min(MAX_SECONDS);
    let (year, month, day) = date(seconds / DAY_SECONDS);
    let second = seconds % DAY_SECONDS;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns the year, the month and the day of a number of days since 1970. See `civil_from_days` in
/// <https://howardhinnant.github.io/date_algorithms.html>: years begin in March, and eras of 400
/// years at a multiple of 400.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_times_in_seconds_since_1970() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_763_714_887, "2025-11-21T08:48:07Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(format(seconds), text);
        }
        assert_eq!(from_now(Duration::MAX), "9999-12-31T23:59:59Z");
    }
}
