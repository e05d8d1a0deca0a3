//! Readers of single values: each turns a [`Value`] into a type, or says what it wants.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::tree::Value;

/// Why a value will not do.
#[derive(Debug)]
pub(super) struct InvalidValue {
    expected: String,
    hint: Option<String>,
}

impl InvalidValue {
    pub(super) fn expected(expected: impl Into<String>) -> Self {
        Self { expected: expected.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn message(&self, given: &Value) -> String {
        let hint = self.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("expected {}; got {}{hint}", self.expected, given.describe())
    }
}

/// A whole number. A float without a fraction counts: JSON, and so JavaScript, has no other kind of number.
pub(super) fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&Value) -> Result<T, InvalidValue>
where
    T: TryFrom<i128> + PartialOrd + Display,
{
    move |value| {
        let number = match value {
            Value::Whole(number) => Some(*number),
            // Every float below 2^53 that has no fraction converts exactly.
            Value::Float(float) if float.fract() == 0.0 && float.abs() < 9e15 => Some(*float as i128),
            _ => None,
        };
        let number =
            number.and_then(|number| T::try_from(number).ok()).filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let bad =
                InvalidValue::expected(format!("a whole number from {} to {}", range.start(), range.end()));
            unquote(bad, value)
        })
    }
}

/// A number, whole or not.
pub(super) fn number(range: RangeInclusive<f64>) -> impl Fn(&Value) -> Result<f64, InvalidValue> {
    move |value| {
        let number = match value {
            Value::Whole(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        // NaN is in no range.
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            let bad = InvalidValue::expected(format!("a number from {} to {}", range.start(), range.end()));
            unquote(bad, value)
        })
    }
}

/// How many of something that providers count in thousands and millions: a whole number, also as `"450k"` or `"2M"`.
pub(super) fn count(range: RangeInclusive<u64>) -> impl Fn(&Value) -> Result<u64, InvalidValue> {
    move |value| {
        let read = whole(range.clone());
        let scaled = match value {
            Value::Text(text) => scaled(text).map(Value::Whole),
            _ => None,
        };
        read(scaled.as_ref().unwrap_or(value)).map_err(|mut bad| {
            bad.expected.push_str(" (also \"450k\", \"2M\")");
            bad
        })
    }
}

/// `"1.5M"`: exact, as decimals of the unit.
fn scaled(text: &str) -> Option<i128> {
    let thousands = text.strip_suffix(['k', 'K']).map(|digits| (digits, 3));
    let (digits, zeros) = thousands.or_else(|| text.strip_suffix('M').map(|digits| (digits, 6)))?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 20 || part.len() > zeros || !plain(whole) || !plain(part) {
        return None;
    }
    format!("{whole}{part:0<zeros$}").parse().ok()
}

fn unquote(bad: InvalidValue, value: &Value) -> InvalidValue {
    match value {
        Value::Text(text) if text.parse::<f64>().is_ok() => bad.hint("write it without quotes"),
        _ => bad,
    }
}

pub(super) fn flag(value: &Value) -> Result<bool, InvalidValue> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        _ => Err(InvalidValue::expected("true or false")),
    }
}

/// A name that the user chose somewhere else in the configuration.
pub(super) fn name_of(what: &'static str) -> impl Fn(&Value) -> Result<Arc<str>, InvalidValue> {
    move |value| match value {
        Value::Text(name) if !name.is_empty() => Ok(Arc::from(&**name)),
        _ => Err(InvalidValue::expected(what)),
    }
}

/// One of a few words.
pub(super) fn one_of<T: Copy>(
    choices: &'static [(&'static str, T)],
) -> impl Fn(&Value) -> Result<T, InvalidValue> {
    move |value| {
        let chosen = match value {
            Value::Text(text) => choices.iter().find(|(word, _)| word == text),
            _ => None,
        };
        chosen.map(|(_, choice)| *choice).ok_or_else(|| InvalidValue::expected(either(choices)))
    }
}

/// `"a", "b" or "c"`.
fn either<T>(choices: &[(&str, T)]) -> String {
    let words: Vec<String> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

/// Switched off by `false`, `"none"` or null; else what the reader takes.
pub(super) fn or_none<T>(
    reader: impl Fn(&Value) -> Result<T, InvalidValue>,
) -> impl Fn(&Value) -> Result<Option<T>, InvalidValue> {
    move |value| match value {
        Value::Bool(false) | Value::Null => Ok(None),
        Value::Text(text) if text == "none" => Ok(None),
        _ => reader(value).map(Some).map_err(|mut bad| {
            bad.expected.push_str(", or \"none\"");
            bad
        }),
    }
}

/// The range of every duration: below it timers do not resolve, above it nothing is meant.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// `"1h30m"`, or a number of seconds.
pub(super) fn duration(value: &Value) -> Result<Duration, InvalidValue> {
    duration_in(SHORTEST..=LONGEST, "1ms to 30 days", value)
}

/// The part of a minute whose share of a rate may go out at once. Beyond a minute's there is no rate to speak of.
pub(super) fn burst(value: &Value) -> Result<Duration, InvalidValue> {
    duration_in(Duration::from_millis(100)..=Duration::from_secs(60), "100ms to 1m", value)
}

/// What a percentile is taken over.
pub(super) fn window(value: &Value) -> Result<Duration, InvalidValue> {
    duration_in(Duration::from_secs(1)..=Duration::from_secs(3600), "1s to 1h", value)
}

/// How often it is taken.
pub(super) fn tick(value: &Value) -> Result<Duration, InvalidValue> {
    duration_in(Duration::from_millis(100)..=Duration::from_secs(600), "100ms to 10m", value)
}

/// A duration of a range of its own, which is `described`.
pub(super) fn within(
    range: RangeInclusive<Duration>,
    described: &'static str,
) -> impl Fn(&Value) -> Result<Duration, InvalidValue> {
    move |value| duration_in(range.clone(), described, value)
}

fn duration_in(
    range: RangeInclusive<Duration>,
    described: &str,
    value: &Value,
) -> Result<Duration, InvalidValue> {
    let duration = match value {
        Value::Time(time) => Some(*time),
        Value::Whole(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
        Value::Float(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
        // The bound keeps out sums that would overflow: u64::MAX seconds alone take more characters.
        Value::Text(text) if text.len() <= 20 => humantime::parse_duration(text).ok(),
        _ => None,
    };
    duration.filter(|duration| range.contains(duration)).ok_or_else(|| {
        let bad = InvalidValue::expected(format!(
            "a duration from {described}: a number of seconds, or a string such as \"500ms\", \"30s\", \"1h30m\""
        ));
        match value {
            Value::Text(text) if text.parse::<f64>().is_ok() => bad.hint("add a unit, or write it without quotes"),
            Value::Text(_) if duration.is_none() => bad.hint("the units are ms, s, m, h, d"),
            _ => bad,
        }
    })
}
