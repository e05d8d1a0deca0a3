//! Formats numbers with their units, and the names of enum variants, for people.

use crate::observation::FailureCause;
use crate::search_result::{Binding, Estimate, Purpose, StepVerdict};
use crate::spend::Ceiling;
use crate::sweep_outcome::SweepEnd;

/// Placeholder for unknown values.
pub(super) const UNKNOWN: &str = "–";

/// Formats a number with three significant digits, and thousands separators from 1,000 on. Returns
/// [`UNKNOWN`] if it is not finite.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    let size = value.abs();
    let decimals = match size {
        _ if size >= 99.95 || size == 0.0 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        // Enough decimals for three digits, but at most six.
        _ => (2.0 - size.log10().floor()).clamp(3.0, 6.0) as usize,
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { with_separators(&text) } else { without_trailing_zeros(&text).to_owned() }
}

fn without_trailing_zeros(text: &str) -> &str {
    let text = text.trim_end_matches('0');
    text.strip_suffix('.').unwrap_or(text)
}

/// Formats a number like [`number`] below 100,000, and otherwise with the suffix k, M, G or T.
pub(super) fn short(value: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    if value.abs() >= 1e15 {
        return format!("{value:.0e}");
    }
    if value.abs() < 1e5 {
        return number(value);
    }
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| value.abs() >= *unit).unwrap_or((1.0, ""));
    format!("{}{name}", number(value / unit))
}

/// Formats a count with thousands separators.
pub(super) fn count(value: impl TryInto<u64>) -> String {
    with_separators(&value.try_into().unwrap_or(u64::MAX).to_string())
}

fn with_separators(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut text = String::from(sign);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with the noun `one`, in the plural unless the count is 1: `1 call`, `2 calls`.
pub(super) fn plural(n: usize, one: &str) -> String {
    format!("{} {one}{}", count(n as u64), if n == 1 { "" } else { "s" })
}

/// Formats a duration that is given in seconds: in milliseconds below 1 s, in seconds below 120 s,
/// in minutes below 2 h, and otherwise in hours. Returns [`UNKNOWN`] if it is not finite.
pub(super) fn seconds(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    if value.abs() < 0.9995 {
        return format!("{} ms", number(value * 1e3));
    }
    if value.abs() < 120.0 {
        return format!("{} s", number(value));
    }
    let (whole, unit) = (value.round() as i64, 60);
    match whole {
        whole if whole < 2 * 3600 => format!("{} min {} s", whole / unit, whole % unit),
        whole => format!("{} h {} min", whole / 3600, whole % 3600 / unit),
    }
}

/// Formats an amount of money without a currency: two decimals from 1 on, otherwise three
/// significant digits.
pub(super) fn money(value: f64) -> String {
    if value.abs() < 0.995 { number(value) } else { format!("{value:.2}") }
}

/// Formats a share from 0 to 1 in percent. Returns [`UNKNOWN`] if it is not finite.
pub(super) fn share(value: f64) -> String {
    match value * 100.0 {
        percent if !percent.is_finite() => UNKNOWN.to_owned(),
        percent if percent.abs() < 9.95 => format!("{} %", without_trailing_zeros(&format!("{percent:.1}"))),
        percent => format!("{percent:.0} %"),
    }
}

/// Formats an estimate with `unit`, followed by its confidence interval: `2 calls/s (1.9 to 2.1)`.
pub(super) fn estimate(estimate: Estimate, unit: &str) -> String {
    let Estimate { value, low, high } = estimate;
    format!("{} {unit} ({} to {})", number(value), number(low), number(high))
}

/// Formats a value with `format`, or returns [`UNKNOWN`] for `None`.
pub(super) fn or_unknown(known: Option<f64>, format: fn(f64) -> String) -> String {
    known.map_or_else(|| UNKNOWN.to_owned(), format)
}

/// Returns the name of the limit that determines the cap.
pub(super) fn binding(binding: Binding) -> &'static str {
    match binding {
        Binding::ConcurrencyLimit => "concurrency limit",
        Binding::RequestRate => "request rate",
        Binding::TokenRate => "token rate",
        Binding::Saturation => "saturation",
        Binding::KvCliff => "KV-cache memory",
        Binding::Client => "this client",
        Binding::NotReached => "not reached",
    }
}

/// Returns the name of a step's purpose.
pub(super) fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Ramp => "ramp",
        Purpose::Narrow => "narrow",
        Purpose::Reference => "reference",
        Purpose::Drain => "drain",
        Purpose::Confirm => "confirm",
    }
}

/// Returns the name of a verdict and its explanation. The explanation of an accepted step is empty.
pub(super) fn verdict(verdict: &StepVerdict) -> (&'static str, &str) {
    match verdict {
        StepVerdict::Accepted => ("accepted", ""),
        StepVerdict::Rejected(why) => ("rejected", why),
        StepVerdict::Invalid(why) => ("invalid", why),
        StepVerdict::Undecided(why) => ("undecided", why),
    }
}

/// Returns the name of a failure's cause in words for people.
pub(super) fn cause(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::Limited => "429",
        FailureCause::Overloaded => "503 or 529",
        FailureCause::Server => "other 5xx",
        FailureCause::Timeout => "timeout",
        FailureCause::Connection => "connection",
        FailureCause::Truncated => "truncated",
        FailureCause::Request => "other 4xx",
    }
}

/// Returns the name of a failure's cause for CSS classes, CSV columns and JSON keys.
pub(super) fn cause_key(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::Limited => "limited",
        FailureCause::Overloaded => "overloaded",
        FailureCause::Server => "server",
        FailureCause::Timeout => "timeout",
        FailureCause::Connection => "connection",
        FailureCause::Truncated => "truncated",
        FailureCause::Request => "request",
    }
}

/// All causes of failure, in the order of plots and tables.
pub(super) const CAUSES: [FailureCause; 7] = [
    FailureCause::Limited,
    FailureCause::Overloaded,
    FailureCause::Server,
    FailureCause::Timeout,
    FailureCause::Connection,
    FailureCause::Truncated,
    FailureCause::Request,
];

/// Returns sentences that explain why the sweep ended early, or `None` if the search finished.
pub(super) fn early_end_text(ended: SweepEnd) -> Option<&'static str> {
    Some(match ended {
        SweepEnd::Found => return None,
        SweepEnd::Refused => "The server rejected all further calls with this key. The result is partial.",
        SweepEnd::Interrupted => "The sweep was interrupted. The result is partial.",
        SweepEnd::Ceiling(Ceiling::Cost) => {
            "The sweep reached the cost ceiling (max-cost). The result is partial."
        }
        SweepEnd::Ceiling(Ceiling::Tokens) => {
            "The sweep reached the token ceiling (max-tokens). The result is partial."
        }
        SweepEnd::Ceiling(Ceiling::Time) => {
            "The sweep reached the time ceiling (max-time). The result is partial."
        }
        SweepEnd::Ceiling(Ceiling::Calls) => {
            "The sweep reached the request ceiling (max-calls). The result is partial."
        }
    })
}
