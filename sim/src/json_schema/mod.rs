//! Generates a JSON value that is valid against a JSON schema. Pure.
//!
//! The same schema always gives the same value. Optional properties are included, an array has one
//! item, and the first alternative of `anyOf` and `oneOf` is used, unless that does not end or is
//! not valid. [`Checker`] checks each value before it is returned, so a schema gives a valid value
//! or an error.

mod build;
mod check;
mod merge;
mod pattern;
mod scalars;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use self::build::{AttemptLimits, Builder};
use self::check::Checker;

/// Keywords that are neither generated nor checked.
const UNSUPPORTED: [&str; 4] = ["$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties"];

/// Error for a schema whose check was given up.
const ENDLESS: &str = "the schema has too many parts or alternatives, or refers to itself without end";

/// Returns a value that is valid against `schema`: JSON Schema 2020-12 (also `items` with a list,
/// from older drafts), or the OpenAPI subset of Gemini (type names in capital letters, `nullable`).
///
/// # Errors
///
/// Returns a message that names the reason if no value was found: the schema is unsatisfiable,
/// needs a value that is too long or nested too deeply, or contains a keyword that is not
/// supported.
pub(crate) fn instance(schema: &Value) -> Result<Value, String> {
    let mut reason = String::new();
    for limits in AttemptLimits::ATTEMPTS {
        let checked = Builder::new(schema, limits).value().and_then(|value| {
            let checker = Checker::new(schema);
            checker.check(schema, &value)?;
            if checker.is_over_limit() { Err(ENDLESS.to_owned()) } else { Ok(value) }
        });
        match checked {
            Ok(value) => return Ok(value),
            // The reason of the first attempt is the clearest, because it has the fewest limits.
            Err(error) if reason.is_empty() => reason = error,
            Err(_) => {}
        }
    }
    Err(reason)
}

/// Returns the schema that a `$ref` in `root` refers to. Only references within the document are
/// supported: `#`, and `#/` with a JSON pointer.
fn resolve<'a>(root: &'a Value, reference: &str) -> Result<&'a Value, String> {
    let pointer = reference.strip_prefix('#').and_then(|fragment| {
        let fragment = percent_encoding::percent_decode_str(fragment).decode_utf8().ok()?;
        root.pointer(&fragment)
    });
    pointer.ok_or_else(|| format!("`$ref` {reference:?} is not a JSON pointer to a part of the schema"))
}

/// Returns the number at `key`. Gemini also accepts numbers as strings.
fn number(schema: &Map<String, Value>, key: &str) -> Option<f64> {
    let value = schema.get(key)?;
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// Returns the number at `key` as a length or count. A negative number counts as 0.
fn count(schema: &Map<String, Value>, key: &str) -> Option<usize> {
    number(schema, key).map(|number| number as usize)
}

fn list<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the type names of a schema in lower case. Empty if the schema has no `type`.
fn types(schema: &Map<String, Value>) -> Vec<String> {
    let names = match schema.get("type") {
        Some(Value::Array(names)) => names.as_slice(),
        Some(name) => std::slice::from_ref(name),
        None => &[],
    };
    names.iter().filter_map(|name| name.as_str().map(str::to_lowercase)).collect()
}

/// Returns the schemas of the first items of an array, and the schema of the others.
fn item_schemas(schema: &Map<String, Value>) -> (&[Value], Option<&Value>) {
    match schema.get("items") {
        Some(Value::Array(first)) => (first, schema.get("additionalItems")),
        rest => (list(schema, "prefixItems"), rest),
    }
}
