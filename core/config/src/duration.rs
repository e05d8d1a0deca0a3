//! Parses durations in text.

use std::time::Duration;

/// Returns the duration that a text such as `500ms`, `30s` or `1h30m` states.
///
/// # Errors
///
/// Returns what is wrong with the text if it is no duration, or has more than 16 digits.
///
/// ```
/// use std::time::Duration;
/// use tidegate_config::parse_duration;
///
/// assert_eq!(parse_duration("1h 30m"), Ok(Duration::from_secs(5_400)));
/// assert!(parse_duration("soon").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    // The parser panics if a sum overflows, which takes more than 16 digits.
    if text.bytes().filter(u8::is_ascii_digit).count() > 16 {
        return Err("the time has more than 16 digits".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}
