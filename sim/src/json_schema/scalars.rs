//! Generates strings and numbers. `variant` is 0, or the number of an item of an array whose items
//! must be different.

use serde_json::{Map, Value, json};

use super::check::regex;
use super::{count, number as bound, pattern};

/// Longest string that is generated.
const MAX_LENGTH: usize = 10_000;

/// Returns a text for the keywords of strings.
///
/// # Errors
///
/// Returns a message if no short text is valid.
pub(super) fn string(fields: &Map<String, Value>, variant: usize) -> Result<Value, String> {
    let min = count(fields, "minLength").unwrap_or(0);
    let max = count(fields, "maxLength").unwrap_or(usize::MAX);
    if min > MAX_LENGTH {
        return Err(format!("`minLength` above {MAX_LENGTH} is not supported"));
    }
    let source = fields.get("pattern").and_then(Value::as_str);
    // Compiled first, because this bounds the size of the pattern.
    let regex = source.map(regex).transpose()?;
    let fits = |text: &String| {
        (min..=max).contains(&text.chars().count())
            && regex.as_ref().is_none_or(|regex| regex.is_match(text).unwrap_or(false))
    };
    let format = fields.get("format").and_then(Value::as_str);
    let example = format.and_then(|name| formatted(name, variant));
    if let Some(example) = example.clone().filter(fits) {
        return Ok(Value::String(example));
    }
    if let Some(source) = source {
        let mut previous: Option<String> = None;
        for extra in 0..=min {
            let text = pattern::matching(source, u32::try_from(extra + variant).unwrap_or(u32::MAX))?;
            // More repetitions give the same text if all have reached their maximum.
            if previous.as_ref() == Some(&text) {
                break;
            }
            let varied = (variant > 0).then(|| format!("{text}{variant}"));
            previous = Some(text.clone());
            if let Some(text) = varied.into_iter().chain([text]).find(fits) {
                return Ok(Value::String(text));
            }
        }
        return Err(format!("no text was found for `pattern` {source:?} and its length"));
    }
    if example.is_some() {
        return Err(format!(
            "no text of the format {} has the length of `minLength` and `maxLength`",
            format.unwrap_or_default()
        ));
    }
    // The number comes first, because `maxLength` cuts the end.
    let text = if variant == 0 { "text".to_owned() } else { format!("{variant} text") };
    let padded = text.chars().chain(" text".chars().cycle()).take(text.len().max(min).min(max));
    Ok(Value::String(padded.collect()))
}

/// Returns a text of a format of JSON Schema. Returns `None` for an unknown format, which
/// allows every text.
fn formatted(format: &str, n: usize) -> Option<String> {
    Some(match format {
        "date-time" => format!("2026-01-01T00:00:{:02}Z", n % 60),
        "date" => format!("2026-01-{:02}", n % 28 + 1),
        "time" => format!("00:00:{:02}Z", n % 60),
        "duration" => format!("P{}D", n + 1),
        "email" | "idn-email" => format!("user{n}@example.com"),
        "hostname" | "idn-hostname" => format!("host{n}.example.com"),
        "ipv4" => format!("192.0.2.{}", n % 255 + 1),
        "ipv6" => format!("2001:db8::{:x}", n % 0xffff + 1),
        "uuid" => format!("00000000-0000-4000-8000-{n:012x}"),
        "uri" | "uri-reference" | "iri" | "iri-reference" | "url" => format!("https://example.com/{n}"),
        "json-pointer" => format!("/{n}"),
        "regex" => format!("a{{{n}}}"),
        "byte" | "base64" => "dGV4dA==".to_owned(),
        _ => return None,
    })
}

/// Returns the allowed integer nearest to 1, or a number near 0.5. Later variants are further up or
/// down.
///
/// # Errors
///
/// Returns a message if no number is within the bounds.
pub(super) fn number(fields: &Map<String, Value>, is_integer: bool, variant: usize) -> Result<Value, String> {
    let multiple = bound(fields, "multipleOf").filter(|step| *step > 0.0);
    // Multiples of a fraction of 1, such as 0.25, include the integers.
    let step = match multiple {
        Some(step) if is_integer && step < 1.0 => 1.0,
        Some(step) => step,
        None => 1.0,
    };
    let low = bound(fields, "minimum").unwrap_or(f64::MIN);
    let high = bound(fields, "maximum").unwrap_or(f64::MAX);
    let above = bound(fields, "exclusiveMinimum").unwrap_or(f64::MIN);
    let below = bound(fields, "exclusiveMaximum").unwrap_or(f64::MAX);
    let fits = |n: f64| {
        n >= low && n <= high && (n > above || above == f64::MIN) && (n < below || below == f64::MAX)
    };
    let (bottom, top) = (low.max(above), high.min(below));
    let offset = variant as f64;
    let nearest = 1.0_f64.max(bottom).min(top);
    let base = (nearest / step).round();
    let integers = [0.0, 1.0, -1.0, 2.0, -2.0].map(|shift| (base + shift) * step);
    // The last ones are for a range between two integers.
    let fractions = ([0.5, nearest + 0.5], [low, high, bottom / 2.0 + top / 2.0]);
    let candidates: Vec<f64> = if multiple.is_some() || is_integer {
        integers.to_vec()
    } else {
        fractions.0.into_iter().chain(integers).chain(fractions.1).collect()
    };
    let found = candidates.into_iter().find(|n| fits(*n)).ok_or("no number is within its bounds")?;
    let varied =
        [found + offset * step, found - offset * step].into_iter().find(|n| fits(*n)).unwrap_or(found);
    if is_integer {
        if varied.fract() != 0.0 || varied.abs() >= 9.0e15 {
            return Err("no integer of less than 9e15 is within its bounds".to_owned());
        }
        return Ok(json!(varied as i64));
    }
    // Twelve digits, because a product such as 3 * 0.1 has an error in the sixteenth.
    let rounded = format!("{varied:.12}").parse().ok().filter(|n| fits(*n)).unwrap_or(varied);
    Ok(json!(rounded))
}
