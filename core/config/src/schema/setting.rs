//! The types that the value of a key can have, and how each is read, written and printed.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::uri::PathAndQuery;

#[cfg(test)]
use super::Kind;
use super::{Given, Lines, Value};
use crate::parse_duration;

/// A type that can be the value of a key: a single value, or a table of keys.
pub(crate) trait Setting {
    /// What limits the values in addition to their type: a range, a [`TextRule`], or `()` for
    /// nothing.
    type Bounds;

    /// Replaces `self` by the given value. If it is invalid, reports a problem and leaves `self`
    /// unchanged. A table replaces only the keys that are given.
    fn overlay(&mut self, given: &Given<'_>, bounds: &Self::Bounds);

    /// Returns the path of each key at and below `path`, and its value followed by `unit`, for
    /// `tidegate check`. `none` is the text for a value that is switched off.
    fn list(&self, path: &str, unit: &str, none: &str) -> Lines;

    /// Returns the type of the value for the reference page and the types of other languages.
    #[cfg(test)]
    fn kind(bounds: &Self::Bounds) -> Kind;
}

/// A [`Setting`] that is a single value.
pub(crate) trait Scalar: Sized {
    /// What limits the values; see [`Setting::Bounds`].
    type Bounds;

    /// Converts an untyped value, or returns why it is invalid.
    fn read(value: &Value, bounds: &Self::Bounds) -> Result<Self, InvalidValue>;

    /// Returns the untyped value that [`Scalar::read`] converts to `self`.
    fn to_value(&self) -> Value;

    /// Returns the type of the value; see [`Setting::kind`].
    #[cfg(test)]
    fn kind(bounds: &Self::Bounds) -> Kind;
}

impl<T: Scalar> From<T> for Value {
    fn from(value: T) -> Self {
        value.to_value()
    }
}

impl<T: Scalar> Setting for T {
    type Bounds = T::Bounds;

    fn overlay(&mut self, given: &Given<'_>, bounds: &T::Bounds) {
        if let Some(value) = given.read(|value| T::read(value, bounds)) {
            *self = value;
        }
    }

    fn list(&self, path: &str, unit: &str, none: &str) -> Lines {
        let text = match self.to_value() {
            Value::Null => none.to_owned(),
            value => format!("{} {unit}", value.show()).trim_end().to_owned(),
        };
        vec![(path.to_owned(), text)]
    }

    #[cfg(test)]
    fn kind(bounds: &T::Bounds) -> Kind {
        <T as Scalar>::kind(bounds)
    }
}

/// Why a value is invalid: what was expected instead, and a hint.
#[derive(Debug)]
pub(crate) struct InvalidValue {
    expected: String,
    /// What to do about the given value. Empty: no hint.
    hint: String,
}

impl InvalidValue {
    /// Creates an error without a hint. `expected` describes the valid values.
    pub(crate) fn expected(expected: impl Into<String>) -> Self {
        Self { expected: expected.into(), hint: String::new() }
    }

    /// Sets the hint, which the message shows in parentheses. An empty one removes it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Appends `form`, another valid form, to the description of the valid values.
    pub(crate) fn also(mut self, form: &str) -> Self {
        self.expected.push_str(form);
        self
    }

    /// Sets the hint if `value` is a number in quotes.
    pub(crate) fn hint_quotes(self, value: &Value, hint: &str) -> Self {
        let quoted = value.as_text().is_some_and(|text| text.parse::<f64>().is_ok());
        if quoted { self.hint(hint) } else { self }
    }

    /// Returns the text of the problem: what was expected, what was given, and the hint.
    pub(crate) fn message(&self, given: &Value) -> String {
        let hint = if self.hint.is_empty() { String::new() } else { format!(" ({})", self.hint) };
        format!("expected {}; got {}{hint}", self.expected, given.describe())
    }
}

/// Reads a whole number in `range`. Accepts floats without a fraction, because JavaScript has only
/// floats.
fn whole<T>(value: &Value, range: &RangeInclusive<T>) -> Result<T, InvalidValue>
where
    T: TryFrom<i128> + PartialOrd + Display,
{
    let number = match value {
        Value::Whole(number) => Some(*number),
        // Every float below 2^53 that has no fraction converts exactly.
        Value::Float(float) if float.fract() == 0.0 && float.abs() < 9e15 => Some(*float as i128),
        _ => None,
    };
    let number = number.and_then(|number| T::try_from(number).ok()).filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        InvalidValue::expected(expected).hint_quotes(value, "write it without quotes")
    })
}

/// Implements [`Scalar`] for integer types: the bounds are a range, and the named function reads
/// the value.
macro_rules! whole_numbers {
    ($($type:ty: $read:ident, $Kind:ident;)+) => {$(
        impl Scalar for $type {
            type Bounds = RangeInclusive<$type>;

            fn read(value: &Value, range: &Self::Bounds) -> Result<Self, InvalidValue> {
                $read(value, range)
            }

            fn to_value(&self) -> Value {
                // Every usize fits: it has at most 64 bits.
                Value::Whole(*self as i128)
            }

            #[cfg(test)]
            fn kind(range: &Self::Bounds) -> Kind {
                Kind::$Kind(format!("{} to {}", range.start(), range.end()))
            }
        }
    )+};
}

whole_numbers! {
    usize: whole, Whole;
    u32: whole, Whole;
    u64: count, Count;
}

/// Reads a number of tokens or requests in `range`. Also accepts thousands and millions as text:
/// `"450k"`, `"2M"`.
fn count(value: &Value, range: &RangeInclusive<u64>) -> Result<u64, InvalidValue> {
    let scaled = value.as_text().and_then(scale).map(Value::Whole);
    whole(scaled.as_ref().unwrap_or(value), range).map_err(|invalid| invalid.also(" (also \"450k\", \"2M\")"))
}

/// Converts text such as `"1.5M"` to the exact whole number, here 1,500,000. Returns `None` if the
/// text is not a decimal number followed by `k`, `K` or `M`, or if the result is not whole.
fn scale(text: &str) -> Option<i128> {
    let thousands = text.strip_suffix(['k', 'K']).map(|digits| (digits, 3));
    let (digits, zeros) = thousands.or_else(|| text.strip_suffix('M').map(|digits| (digits, 6)))?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 20 || part.len() > zeros || !plain(whole) || !plain(part) {
        return None;
    }
    format!("{whole}{part:0<zeros$}").parse().ok()
}

impl Scalar for f64 {
    type Bounds = RangeInclusive<f64>;

    fn read(value: &Value, range: &Self::Bounds) -> Result<Self, InvalidValue> {
        let number = match value {
            Value::Whole(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        // NaN is in no range.
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            let expected = format!("a number from {} to {}", range.start(), range.end());
            InvalidValue::expected(expected).hint_quotes(value, "write it without quotes")
        })
    }

    fn to_value(&self) -> Value {
        Value::Float(*self)
    }

    #[cfg(test)]
    fn kind(range: &Self::Bounds) -> Kind {
        Kind::Number(format!("{} to {}", range.start(), range.end()))
    }
}

impl Scalar for bool {
    type Bounds = ();

    fn read(value: &Value, (): &()) -> Result<Self, InvalidValue> {
        match value {
            Value::Bool(flag) => Ok(*flag),
            _ => Err(InvalidValue::expected("true or false")),
        }
    }

    fn to_value(&self) -> Value {
        Value::Bool(*self)
    }

    #[cfg(test)]
    fn kind((): &()) -> Kind {
        Kind::Bool
    }
}

/// The range of each duration whose key declares no narrower one: 1 ms, the resolution of timers,
/// to 30 days.
pub(crate) const TIME_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(30 * 24 * 3600);

impl Scalar for Duration {
    type Bounds = RangeInclusive<Duration>;

    fn read(value: &Value, range: &Self::Bounds) -> Result<Self, InvalidValue> {
        let duration = match value {
            Value::Time(time) => Some(*time),
            Value::Whole(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
            Value::Float(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
            Value::Text(text) => parse_duration(text).ok(),
            _ => None,
        };
        duration.filter(|duration| range.contains(duration)).ok_or_else(|| {
            let invalid = InvalidValue::expected(format!(
                "a duration from {} to {}: a number of seconds, or a string such as \"500ms\", \"30s\", \"1h30m\"",
                show_duration(*range.start()),
                show_duration(*range.end())
            ));
            match value {
                Value::Text(text) if duration.is_none() && text.parse::<f64>().is_err() => {
                    invalid.hint("the units are ms, s, m, h, d")
                }
                _ => invalid.hint_quotes(value, "add a unit, or write it without quotes"),
            }
        })
    }

    fn to_value(&self) -> Value {
        Value::Time(*self)
    }

    #[cfg(test)]
    fn kind(range: &Self::Bounds) -> Kind {
        Kind::Duration(format!("{} to {}", show_duration(*range.start()), show_duration(*range.end())))
    }
}

/// Returns a duration as text, such as `1h 30m`.
pub(crate) fn show_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace("days", "d").replace("day", "d")
}

/// An optional value, which `false`, `"none"` and null switch off (`None`).
impl<T: Scalar> Scalar for Option<T> {
    type Bounds = T::Bounds;

    fn read(value: &Value, bounds: &Self::Bounds) -> Result<Self, InvalidValue> {
        match value {
            Value::Bool(false) | Value::Null => Ok(None),
            Value::Text(text) if text == "none" => Ok(None),
            _ => T::read(value, bounds).map(Some).map_err(|invalid| invalid.also(", or \"none\"")),
        }
    }

    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_value)
    }

    #[cfg(test)]
    fn kind(bounds: &Self::Bounds) -> Kind {
        Kind::OrNone(Box::new(<T as Scalar>::kind(bounds)))
    }
}

/// The value of a key that is a text. A [`TextRule`] states which texts are valid.
pub(crate) type Text = Arc<str>;

/// Which texts a key accepts, and how they are converted to a value.
pub(crate) struct TextRule<T> {
    /// The description of a valid text, which follows "expected" in errors.
    pub(crate) expected: &'static str,
    /// Converts a text. The error is a hint for the user; empty: no hint.
    pub(crate) parse: fn(&str) -> Result<T, &'static str>,
}

impl<T> TextRule<T> {
    /// Converts a text value, or returns why it is invalid.
    fn convert(&self, value: &Value) -> Result<T, InvalidValue> {
        let parsed = value.as_text().map_or(Err(""), self.parse);
        parsed.map_err(|hint| InvalidValue::expected(self.expected).hint(hint))
    }

    /// Reads a text. Reports a problem and returns `None` if it is invalid.
    pub(crate) fn read(&self, given: &Given<'_>) -> Option<T> {
        given.read(|value| self.convert(value))
    }

    /// Reads a text or a list of texts. Reports each invalid item and omits it.
    pub(crate) fn read_list(&self, given: &Given<'_>) -> Vec<T> {
        given.items().iter().filter_map(|item| self.read(item)).collect()
    }
}

/// Implements [`Scalar`] for types that a [`TextRule`] converts from text.
macro_rules! texts {
    ($($type:ty),+) => {$(
        impl Scalar for $type {
            type Bounds = TextRule<$type>;

            fn read(value: &Value, rule: &TextRule<$type>) -> Result<Self, InvalidValue> {
                rule.convert(value)
            }

            fn to_value(&self) -> Value {
                Value::Text(AsRef::<str>::as_ref(self).to_owned())
            }

            #[cfg(test)]
            fn kind(rule: &TextRule<$type>) -> Kind {
                Kind::Text(rule.expected)
            }
        }
    )+};
}

texts!(Text, HeaderName);

/// Accepts the name of a target: any text that is not empty. Whether it exists is checked later.
pub(crate) const TARGET_NAME: TextRule<Text> =
    TextRule { expected: "the name of a target", parse: not_empty };
/// Accepts the name of a shared budget: any text that is not empty. Whether it exists is checked
/// later.
pub(crate) const BUDGET_NAME: TextRule<Text> =
    TextRule { expected: "the name of one of [budgets]", parse: not_empty };
/// Accepts the path of a URL, with or without a query, of at most 200 bytes.
pub(crate) const URL_PATH: TextRule<Text> = TextRule {
    expected: "a path such as \"/health\"",
    parse: |path| {
        let path = Some(path).filter(|path| path.starts_with('/') && path.len() <= 200).ok_or("")?;
        path.parse::<PathAndQuery>().map(|path| path.as_str().into()).map_err(|_| "")
    },
};
/// Accepts the name of a request header.
pub(crate) const HEADER: TextRule<HeaderName> = TextRule {
    expected: "the name of a request header such as \"x-session-id\"",
    parse: |name| name.parse().map_err(|_| ""),
};

fn not_empty(name: &str) -> Result<Text, &'static str> {
    if name.is_empty() { Err("") } else { Ok(name.into()) }
}
