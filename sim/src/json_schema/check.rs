//! Checks a value against a schema.

use std::cell::Cell;

use fancy_regex::Regex;
use serde_json::{Map, Value};

use super::{ENDLESS, UNSUPPORTED, count, item_schemas, list, number, resolve, types};

/// Bound of the depth of a schema with its references.
const MAX_DEPTH: usize = 200;
/// Bound of the number of schemas that are checked.
const MAX_STEPS: usize = 200_000;

/// Checks values against the parts of a schema document. `format` is not checked.
pub(super) struct Checker<'a> {
    root: &'a Value,
    depth: Cell<usize>,
    steps: Cell<usize>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self { root, depth: Cell::new(0), steps: Cell::new(0) }
    }

    /// Checks `value` against `schema`, a part of the document or merged from its parts.
    ///
    /// # Errors
    ///
    /// Returns a message with the first keyword that the value breaks.
    pub(super) fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        self.steps.set(self.steps.get() + 1);
        if self.is_over_limit() || self.depth.get() > MAX_DEPTH {
            self.steps.set(MAX_STEPS);
            return Err(ENDLESS.to_owned());
        }
        self.depth.set(self.depth.get() + 1);
        let result = match schema {
            Value::Bool(true) => Ok(()),
            Value::Bool(false) => Err("a `false` schema allows no value".to_owned()),
            Value::Object(schema) => self.check_keywords(schema, value),
            _ => Err(format!("a schema must be an object or a boolean, not {schema}")),
        };
        self.depth.set(self.depth.get() - 1);
        result
    }

    /// Returns `true` if a check was given up because the schema has no end, or has too many parts.
    /// The results of all checks are then unreliable, because `not` and `oneOf` may invert them.
    pub(super) fn is_over_limit(&self) -> bool {
        self.steps.get() >= MAX_STEPS
    }

    fn is_valid(&self, schema: &Value, value: &Value) -> bool {
        self.check(schema, value).is_ok()
    }

    fn check_keywords(&self, schema: &Map<String, Value>, value: &Value) -> Result<(), String> {
        if let Some(keyword) = UNSUPPORTED.iter().find(|keyword| schema.contains_key(**keyword)) {
            return Err(format!("`{keyword}` is not supported"));
        }
        if value.is_null() && schema.get("nullable") == Some(&Value::Bool(true)) {
            return Ok(());
        }
        if let Some(Value::String(reference)) = schema.get("$ref") {
            self.check(resolve(self.root, reference)?, value)?;
        }
        for part in list(schema, "allOf") {
            self.check(part, value)?;
        }
        // One match is enough for `anyOf`, and two break `oneOf`.
        let matching = |key, enough| {
            list(schema, key).iter().filter(|option| self.is_valid(option, value)).take(enough).count()
        };
        let condition = schema.get("if").map(|condition| self.is_valid(condition, value));
        if let Some(then) = condition.and_then(|holds| schema.get(if holds { "then" } else { "else" })) {
            self.check(then, value)?;
        }
        let types = types(schema);
        broken([
            ("type", !types.is_empty() && !types.iter().any(|name| has_type(value, name))),
            ("enum", schema.contains_key("enum") && !contains(list(schema, "enum"), value)),
            ("const", schema.get("const").is_some_and(|constant| !equal(constant, value))),
            ("anyOf", schema.contains_key("anyOf") && matching("anyOf", 1) == 0),
            ("oneOf", schema.contains_key("oneOf") && matching("oneOf", 2) != 1),
            ("not", schema.get("not").is_some_and(|not| self.is_valid(not, value))),
        ])?;
        match value {
            Value::Object(fields) => self.check_object(schema, fields),
            Value::Array(items) => self.check_array(schema, items),
            Value::String(text) => check_string(schema, text),
            Value::Number(n) => check_number(schema, n.as_f64().unwrap_or(f64::NAN)),
            Value::Bool(_) | Value::Null => Ok(()),
        }
    }

    fn check_object(&self, schema: &Map<String, Value>, fields: &Map<String, Value>) -> Result<(), String> {
        let has = |name: &Value| name.as_str().is_some_and(|name| fields.contains_key(name));
        let depends = |(name, needed): (&String, &Value)| {
            fields.contains_key(name) && !needed.as_array().is_some_and(|names| names.iter().all(has))
        };
        broken([
            ("required", !list(schema, "required").iter().all(has)),
            ("minProperties", count(schema, "minProperties").is_some_and(|min| fields.len() < min)),
            ("maxProperties", count(schema, "maxProperties").is_some_and(|max| fields.len() > max)),
            ("dependentRequired", object(schema, "dependentRequired").any(depends)),
        ])?;
        for (name, dependent) in object(schema, "dependentSchemas") {
            if fields.contains_key(name) {
                self.check(dependent, &Value::Object(fields.clone()))?;
            }
        }
        for (name, value) in fields {
            let property = schema.get("properties").and_then(|properties| properties.get(name));
            let mut known = property.is_some();
            if let Some(property) = property {
                self.check(property, value).map_err(|error| format!("{name}: {error}"))?;
            }
            for (pattern, property) in object(schema, "patternProperties") {
                if is_match(pattern, name)? {
                    known = true;
                    self.check(property, value)?;
                }
            }
            if let Some(names) = schema.get("propertyNames") {
                self.check(names, &Value::String(name.clone()))?;
            }
            if let Some(additional) = schema.get("additionalProperties").filter(|_| !known) {
                self.check(additional, value).map_err(|error| format!("{name}: {error}"))?;
            }
        }
        Ok(())
    }

    fn check_array(&self, schema: &Map<String, Value>, items: &[Value]) -> Result<(), String> {
        let (first, rest) = item_schemas(schema);
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = first.get(index).or(rest) {
                self.check(schema, item).map_err(|error| format!("[{index}]: {error}"))?;
            }
        }
        let repeated = || (1..items.len()).any(|end| contains(&items[..end], &items[end]));
        let contained = |part| items.iter().filter(|item| self.is_valid(part, item)).count();
        let unfit = |part| {
            let number = contained(part);
            number < count(schema, "minContains").unwrap_or(1)
                || count(schema, "maxContains").is_some_and(|max| number > max)
        };
        broken([
            ("minItems", count(schema, "minItems").is_some_and(|min| items.len() < min)),
            ("maxItems", count(schema, "maxItems").is_some_and(|max| items.len() > max)),
            ("uniqueItems", schema.get("uniqueItems") == Some(&Value::Bool(true)) && repeated()),
            ("contains", schema.get("contains").is_some_and(unfit)),
        ])
    }
}

fn check_string(schema: &Map<String, Value>, text: &str) -> Result<(), String> {
    let length = text.chars().count();
    if let Some(Value::String(pattern)) = schema.get("pattern") {
        broken([("pattern", !is_match(pattern, text)?)])?;
    }
    broken([
        ("minLength", count(schema, "minLength").is_some_and(|min| length < min)),
        ("maxLength", count(schema, "maxLength").is_some_and(|max| length > max)),
    ])
}

fn check_number(schema: &Map<String, Value>, n: f64) -> Result<(), String> {
    let breaks =
        |key, holds: fn(f64, f64) -> bool| (key, number(schema, key).is_some_and(|bound| !holds(n, bound)));
    broken([
        breaks("minimum", |n, bound| n >= bound),
        breaks("maximum", |n, bound| n <= bound),
        breaks("exclusiveMinimum", |n, bound| n > bound),
        breaks("exclusiveMaximum", |n, bound| n < bound),
        // A product of decimal fractions is not exact in binary.
        breaks("multipleOf", |n, step| (n / step - (n / step).round()).abs() < 1e-9),
    ])
}

/// Returns an error with the first keyword that is marked as broken.
fn broken<const N: usize>(keywords: [(&str, bool); N]) -> Result<(), String> {
    match keywords.into_iter().find(|(_, is_broken)| *is_broken) {
        Some((keyword, _)) => Err(format!("no value was found that is valid against `{keyword}`")),
        None => Ok(()),
    }
}

/// Returns `true` if `values` contain `value`, with numbers compared by value: 1 is 1.0.
pub(super) fn contains(values: &[Value], value: &Value) -> bool {
    values.iter().any(|other| equal(other, value))
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    }
}

fn object<'a>(schema: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// Compiles a pattern.
///
/// # Errors
///
/// Returns a message if the pattern is invalid or too large.
pub(super) fn regex(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| format!("`pattern` {pattern:?}: {error}"))
}

fn is_match(pattern: &str, text: &str) -> Result<bool, String> {
    // Fails if the search takes too many steps.
    regex(pattern)?.is_match(text).map_err(|error| format!("`pattern` {pattern:?}: {error}"))
}
