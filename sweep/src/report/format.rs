//! Numbers with their units, and names, as people read them.

use crate::observation::FailureCause;
use crate::outcome::SweepEnd;
use crate::result::{Binding, Estimate, Purpose, StepVerdict};
use crate::spend::Ceiling;

/// What stands where nothing is known.
pub(super) const NOTHING: &str = "–";

/// Three digits that mean something, thousands apart.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
    }
    let size = value.abs();
    let decimals = match size {
        _ if size >= 99.95 || size == 0.0 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        // As many as show three digits, and no end of them for next to nothing.
        _ => (2.0 - size.log10().floor()).clamp(3.0, 6.0) as usize,
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { apart(&text) } else { trimmed(&text).to_owned() }
}

fn trimmed(text: &str) -> &str {
    let text = text.trim_end_matches('0');
    text.strip_suffix('.').unwrap_or(text)
}

/// A number that has little room: from a hundred thousand on in thousands, millions and so on.
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

/// A count, thousands apart.
pub(super) fn count(value: impl TryInto<u64>) -> String {
    apart(&value.try_into().unwrap_or(u64::MAX).to_string())
}

fn apart(digits: &str) -> String {
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

/// So many of them: `1 call`, `2 calls`.
pub(super) fn of(n: usize, one: &str) -> String {
    format!("{} {one}{}", count(n as u64), if n == 1 { "" } else { "s" })
}

/// A length of time.
pub(super) fn seconds(value: f64) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
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

/// An amount of money, in whatever currency its prices were in.
pub(super) fn money(value: f64) -> String {
    if value.abs() < 0.995 { number(value) } else { format!("{value:.2}") }
}

/// A share, in percent.
pub(super) fn share(value: f64) -> String {
    match value * 100.0 {
        percent if !percent.is_finite() => NOTHING.to_owned(),
        percent if percent.abs() < 9.95 => format!("{} %", trimmed(&format!("{percent:.1}"))),
        percent => format!("{percent:.0} %"),
    }
}

/// A figure with its interval.
pub(super) fn estimate(estimate: Estimate, unit: &str) -> String {
    let Estimate { value, low, high } = estimate;
    format!("{} {unit} ({} to {})", number(value), number(low), number(high))
}

/// The same, where there is one.
pub(super) fn perhaps(known: Option<f64>, say: fn(f64) -> String) -> String {
    known.map_or_else(|| NOTHING.to_owned(), say)
}

/// What binds, in a word or two.
pub(super) fn binding(binding: Binding) -> &'static str {
    match binding {
        Binding::ConcurrencyLimit => "concurrency limit",
        Binding::RequestRate => "request rate",
        Binding::TokenRate => "token rate",
        Binding::Saturation => "saturation",
        Binding::KvCliff => "KV cliff",
        Binding::Client => "this client",
        Binding::NotReached => "not reached",
    }
}

/// What that means.
pub(super) fn binding_means(binding: Binding) -> &'static str {
    match binding {
        Binding::ConcurrencyLimit => "The server takes so many at once, and turns away the next.",
        Binding::RequestRate => "The server takes so many requests over time, however many go at once.",
        Binding::TokenRate => "The server takes so many tokens over time, however many calls go at once.",
        Binding::Saturation => "The server gets no faster by having more to do at once.",
        Binding::KvCliff => {
            "Beyond it the engine's memory for keys and values is full: sequences are thrown out and computed anew."
        }
        Binding::Client => {
            "This client could not hold a higher cap: of the server nothing is known beyond it."
        }
        Binding::NotReached => "Nothing did, up to the highest cap that was looked at.",
    }
}

/// Why a step was made.
pub(super) fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Ramp => "ramp",
        Purpose::Narrow => "narrow",
        Purpose::Reference => "reference",
        Purpose::Drain => "drain",
        Purpose::Confirm => "confirm",
    }
}

/// What is thought of a step, and why.
pub(super) fn verdict(verdict: &StepVerdict) -> (&'static str, &str) {
    match verdict {
        StepVerdict::Accepted => ("accepted", ""),
        StepVerdict::Rejected(why) => ("rejected", why),
        StepVerdict::Invalid(why) => ("invalid", why),
        StepVerdict::Undecided(why) => ("undecided", why),
    }
}

/// How an attempt failed.
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

/// The same in one word, as classes, columns and keys have it.
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

/// Every cause, in the order of plots and tables.
pub(super) const CAUSES: [FailureCause; 7] = [
    FailureCause::Limited,
    FailureCause::Overloaded,
    FailureCause::Server,
    FailureCause::Timeout,
    FailureCause::Connection,
    FailureCause::Truncated,
    FailureCause::Request,
];

/// How the sweep ended, where that was not by itself.
pub(super) fn cut_short(ended: SweepEnd) -> Option<&'static str> {
    Some(match ended {
        SweepEnd::Found => return None,
        SweepEnd::Refused => "The server took no more calls of this key: this is what was known by then.",
        SweepEnd::Interrupted => "It was interrupted: this is what was known by then.",
        SweepEnd::Ceiling(Ceiling::Cost) => {
            "It ended at the ceiling of money (max-cost): this is what was known by then."
        }
        SweepEnd::Ceiling(Ceiling::Tokens) => {
            "It ended at the ceiling of tokens (max-tokens): this is what was known by then."
        }
        SweepEnd::Ceiling(Ceiling::Time) => {
            "It ended at the ceiling of time (max-time): this is what was known by then."
        }
        SweepEnd::Ceiling(Ceiling::Calls) => {
            "It ended at the ceiling of calls (max-calls): this is what was known by then."
        }
    })
}
