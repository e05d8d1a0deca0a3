//! Reads the values of flags: durations and numbers of tokens.

use std::time::Duration;

use tidegate::config::parse_duration;
use tidegate::duration::{MAX, from_secs};

/// Returns the duration that a text such as `90s` or `10m` states. A plain number such as `90` is a
/// number of seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) => from_secs(seconds).ok_or_else(|| {
            format!("{seconds} is not a valid number of seconds; examples are 90, 90s and 10m")
        }),
        Err(_) => parse_duration(text)
            .map(|parsed| parsed.min(MAX))
            .map_err(|error| format!("{error}; examples are 90, 90s and 10m")),
    }
}

/// Returns the count that a text such as `500000`, `1.5k` or `2M` states. The count must be whole.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (text.get(..at), 1e3),
        Some((at, 'm' | 'M')) => (text.get(..at), 1e6),
        _ => (Some(text), 1.0),
    };
    let count = digits.and_then(|digits| digits.parse::<f64>().ok()).map(|number| number * unit);
    match count {
        // Products such as that of 1.001 and 1,000 are not exact.
        Some(count) if count >= 0.0 && (count - count.round()).abs() < 1e-6 => Ok(count.round() as u64),
        _ => Err("expected a whole number, such as 500000, 500k or 2M".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations_and_counts() {
        assert_eq!([count("12"), count("1.5k"), count("2M")], [Ok(12), Ok(1_500), Ok(2_000_000)]);
        assert_eq!([count("1.001k"), count("0.29M")], [Ok(1_001), Ok(290_000)]);
        assert!(count("1.7").is_err() && count("1.0005k").is_err() && count("inf").is_err());
        assert!(count("many").is_err() && count("").is_err() && count("-1").is_err());
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert!(duration("soon").is_err() && duration("-1").is_err());
        let long = duration("18446744073709551615s 1000000000ns");
        assert!(long.is_err_and(|error| error.contains("16 digits")));
    }
}
