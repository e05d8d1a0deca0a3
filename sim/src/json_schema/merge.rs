//! Merges the keywords of two schemas that both apply to a value.

use serde_json::{Map, Value, json};

use super::check::contains;
use super::{number, types};

/// Adds the keywords of `other` to `fields`. Keywords that cannot be merged keep the value in
/// `fields`; the check of the generated value then finds a contradiction.
///
/// # Errors
///
/// Returns an error if no value can have both types, or be in both `enum`s.
pub(super) fn merge(fields: &mut Map<String, Value>, mut other: Map<String, Value>) -> Result<(), String> {
    if let Some(value) = other.remove("const") {
        merge_keyword(fields, "enum", Value::Array(vec![value]))?;
    }
    for (key, value) in other {
        merge_keyword(fields, &key, value)?;
    }
    Ok(())
}

fn merge_keyword(fields: &mut Map<String, Value>, key: &str, value: Value) -> Result<(), String> {
    let Some(old) = fields.get(key) else {
        fields.insert(key.to_owned(), value);
        return Ok(());
    };
    let merged = match (key, old, value) {
        ("properties" | "patternProperties", Value::Object(old), Value::Object(new)) => {
            let mut all = old.clone();
            for (name, schema) in new {
                let both = match all.get(&name) {
                    Some(old) => json!({"allOf": [old, schema]}),
                    None => schema,
                };
                all.insert(name, both);
            }
            Value::Object(all)
        }
        ("required", Value::Array(old), Value::Array(new)) => {
            let added: Vec<_> = new.into_iter().filter(|name| !old.contains(name)).collect();
            Value::Array(old.iter().cloned().chain(added).collect())
        }
        ("enum", Value::Array(old), Value::Array(new)) => {
            let common: Vec<_> = old.iter().filter(|value| contains(&new, value)).cloned().collect();
            if common.is_empty() {
                return Err("no value is in both `enum`s of an `allOf`".to_owned());
            }
            Value::Array(common)
        }
        ("type", old, new) => common_types(old, &new)?,
        ("items" | "additionalProperties" | "propertyNames", old, new) => json!({"allOf": [old, new]}),
        (_, old, new) => {
            let bounds = (number(fields, key), new.as_f64());
            let replace = match bounds {
                (Some(a), Some(b)) if key.starts_with("min") || key == "exclusiveMinimum" => b > a,
                (Some(a), Some(b)) if key.starts_with("max") || key == "exclusiveMaximum" => b < a,
                _ => new == Value::Bool(true),
            };
            if replace { new } else { old.clone() }
        }
    };
    fields.insert(key.to_owned(), merged);
    Ok(())
}

fn common_types(old: &Value, new: &Value) -> Result<Value, String> {
    let names = |value: &Value| types(&Map::from_iter([("type".to_owned(), value.clone())]));
    let (old_names, new_names) = (names(old), names(new));
    let mut common = Vec::new();
    for name in &old_names {
        let has = |other: &str| new_names.iter().any(|name| name == other);
        if has(name) || (name == "integer" && has("number")) {
            common.push(name.clone());
        } else if name == "number" && has("integer") {
            common.push("integer".to_owned());
        }
    }
    if common.is_empty() {
        return Err(format!("no value has both the type {old} and the type {new}"));
    }
    Ok(json!(common))
}
