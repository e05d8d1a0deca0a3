//! Builds a value for a schema. Tries the next alternative if one has no value or does not end.

use serde_json::{Map, Value, json};

use super::check::{self, Checker};
use super::merge::merge;
use super::{ENDLESS, count, item_schemas, list, resolve, scalars, types};

/// Longest array that is generated.
const MAX_LENGTH: usize = 10_000;
/// Maximum length of all strings and chosen values of one answer, in bytes of JSON.
const MAX_BYTES: usize = 4 << 20;
/// Deepest nesting of values, references and combined schemas.
const MAX_DEPTH: usize = 200;

/// Limits of one attempt to build a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttemptLimits {
    /// Number of times that a `$ref` may occur again within itself.
    recursion: usize,
    /// Whether optional properties and items are included.
    optional: bool,
    /// Number of schemas that may be visited.
    steps: usize,
}

impl AttemptLimits {
    /// Attempts in order. The later ones are for schemas that are recursive or large.
    pub(super) const ATTEMPTS: [Self; 3] = [
        Self { recursion: 0, optional: true, steps: 3_000 },
        Self { recursion: 0, optional: false, steps: 20_000 },
        Self { recursion: 2, optional: false, steps: 50_000 },
    ];
}

pub(super) struct Builder<'a> {
    root: &'a Value,
    checker: Checker<'a>,
    limits: AttemptLimits,
    /// The references that lead to the current schema.
    references: Vec<String>,
    depth: usize,
    /// Length of the strings, `enum` values and `examples` so far, in bytes of JSON.
    bytes: usize,
    /// Which of several possible strings, numbers or `enum` values to use. Items of an array with
    /// `uniqueItems` have different numbers.
    variant: usize,
}

impl<'a> Builder<'a> {
    pub(super) fn new(root: &'a Value, limits: AttemptLimits) -> Self {
        Self {
            root,
            checker: Checker::new(root),
            limits,
            references: Vec::new(),
            depth: 0,
            bytes: 0,
            variant: 0,
        }
    }

    /// Returns a value for the whole document, or a message with the reason why there is none.
    pub(super) fn value(mut self) -> Result<Value, String> {
        let root = self.root;
        self.schema(root)
    }

    fn schema(&mut self, schema: &Value) -> Result<Value, String> {
        self.merged(Map::new(), vec![schema.clone()])
    }

    /// Returns a value that is valid against the keywords in `fields` and all `pending` schemas.
    fn merged(&mut self, fields: Map<String, Value>, pending: Vec<Value>) -> Result<Value, String> {
        self.limits.steps = self.limits.steps.saturating_sub(1);
        if self.limits.steps == 0 {
            return Err(ENDLESS.to_owned());
        }
        if self.depth == MAX_DEPTH {
            return Err(format!("the value nests deeper than {MAX_DEPTH} levels"));
        }
        self.depth += 1;
        let value = self.merge_next(fields, pending);
        self.depth -= 1;
        value
    }

    fn merge_next(
        &mut self,
        mut fields: Map<String, Value>,
        mut pending: Vec<Value>,
    ) -> Result<Value, String> {
        let mut schema = match pending.pop() {
            None => return self.typed(&fields),
            Some(Value::Bool(true)) => return self.merged(fields, pending),
            Some(Value::Object(schema)) => schema,
            Some(Value::Bool(false)) => return Err("a `false` schema allows no value".to_owned()),
            Some(other) => return Err(format!("a schema must be an object or a boolean, not {other}")),
        };
        if let Some(Value::String(reference)) = schema.remove("$ref") {
            let target = resolve(self.root, &reference)?.clone();
            if self.references.iter().filter(|open| **open == reference).count() > self.limits.recursion {
                return Err(format!("every value for {reference:?} contains itself"));
            }
            self.references.push(reference);
            pending.extend([Value::Object(schema), target]);
            let value = self.merged(fields, pending);
            self.references.pop();
            return value;
        }
        if let Some(Value::Array(parts)) = schema.remove("allOf") {
            pending.push(Value::Object(schema));
            pending.extend(parts.into_iter().rev());
            return self.merged(fields, pending);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(options)) = schema.remove(key) {
                pending.push(Value::Object(schema));
                return self.first_option(key, &options, &fields, &pending);
            }
        }
        merge(&mut fields, schema)?;
        self.merged(fields, pending)
    }

    /// Returns a value for the first option that has one.
    fn first_option(
        &mut self,
        key: &str,
        options: &[Value],
        fields: &Map<String, Value>,
        pending: &[Value],
    ) -> Result<Value, String> {
        let alternatives = json!({ key: options });
        let mut reason = None;
        for index in 0..options.len() {
            let Some(option) = options.get((index + self.variant) % options.len()) else { break };
            let pending = pending.iter().chain([option]).cloned().collect();
            let result = self.merged(fields.clone(), pending).and_then(|value| {
                self.checker.check(&alternatives, &value)?;
                Ok(value)
            });
            match result {
                Ok(value) => return Ok(value),
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        Err(reason.unwrap_or_else(|| format!("`{key}` is empty")))
    }

    /// Returns a value for keywords that contain no combination of schemas.
    fn typed(&mut self, fields: &Map<String, Value>) -> Result<Value, String> {
        let schema = Value::Object(fields.clone());
        let valid = |values: &[Value]| -> Vec<Value> {
            values.iter().filter(|value| self.checker.check(&schema, value).is_ok()).cloned().collect()
        };
        if fields.contains_key("enum") {
            let values = valid(list(fields, "enum"));
            let value = values.get(self.variant % values.len().max(1)).cloned();
            let invalid = || "no value of an `enum` is valid against the rest of its schema".to_owned();
            return self.counted(value.ok_or_else(invalid)?);
        }
        let examples = valid(list(fields, "examples"));
        if let Some(example) = examples.get(self.variant) {
            return self.counted(example.clone());
        }
        let mut names = types(fields);
        if names.is_empty() {
            names.push(implied_type(fields).to_owned());
        }
        // `null` only if nothing else is possible.
        names.sort_by_key(|name| name == "null");
        let mut reason = None;
        for name in names {
            let result = match name.as_str() {
                "object" => self.object(fields),
                "array" => self.array(fields),
                "string" => scalars::string(fields, self.variant).and_then(|text| self.counted(text)),
                "number" | "integer" => scalars::number(fields, name == "integer", self.variant),
                "boolean" => Ok(Value::Bool(self.variant.is_multiple_of(2))),
                "null" => Ok(Value::Null),
                _ => Err(format!("the type {name:?} does not exist")),
            };
            match result {
                Ok(value) => return Ok(value),
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        if fields.get("nullable") == Some(&Value::Bool(true)) {
            return Ok(Value::Null);
        }
        Err(reason.unwrap_or_default())
    }

    /// Returns the value, or an error if the values so far are longer than [`MAX_BYTES`].
    fn counted(&mut self, value: Value) -> Result<Value, String> {
        self.bytes = self.bytes.saturating_add(value.to_string().len());
        if self.bytes > MAX_BYTES {
            return Err(format!("the strings of the value are longer than {MAX_BYTES} bytes"));
        }
        Ok(value)
    }

    fn object(&mut self, fields: &Map<String, Value>) -> Result<Value, String> {
        let required: Vec<&str> = list(fields, "required").iter().filter_map(Value::as_str).collect();
        let empty = Map::new();
        let properties = fields.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let additional = fields.get("additionalProperties").unwrap_or(&Value::Bool(true));
        let min = count(fields, "minProperties").unwrap_or(0);
        let max = count(fields, "maxProperties").unwrap_or(usize::MAX);
        let mut object = Map::new();
        let mut free = max.saturating_sub(required.len());
        for (name, schema) in properties {
            if required.contains(&name.as_str()) {
                object.insert(name.clone(), self.schema(schema).map_err(|error| format!("{name}: {error}"))?);
            } else if (self.limits.optional || object.len() < min)
                && free > 0
                && let Ok(value) = self.schema(schema)
            {
                object.insert(name.clone(), value);
                free -= 1;
            }
        }
        for name in required {
            if !object.contains_key(name) {
                let value = self.schema(additional).map_err(|error| format!("{name}: {error}"))?;
                object.insert(name.to_owned(), value);
            }
        }
        // A map from names to values gets one entry, so that callers see its shape.
        let shown = usize::from(self.limits.optional && properties.is_empty() && additional.is_object());
        let wanted = min.max(shown.min(max));
        for index in 0..wanted.saturating_mul(2).min(MAX_LENGTH) {
            if object.len() >= wanted {
                break;
            }
            let entry = self.with_variant(index, |builder| builder.entry(fields, additional));
            match entry {
                Ok((name, value)) => drop(object.insert(name, value)),
                Err(error) if object.len() < min => return Err(error),
                Err(_) => break,
            }
        }
        Ok(Value::Object(object))
    }

    /// Returns a property that is not one of `properties`.
    fn entry(&mut self, fields: &Map<String, Value>, additional: &Value) -> Result<(String, Value), String> {
        let name = match fields.get("propertyNames") {
            Some(names) => {
                let text = json!({"type": "string"});
                let name = self.merged(Map::new(), vec![text, names.clone()])?;
                name.as_str().unwrap_or_default().to_owned()
            }
            None if self.variant == 0 => "key".to_owned(),
            None => format!("key{}", self.variant),
        };
        Ok((name, self.schema(additional)?))
    }

    fn with_variant<T>(&mut self, variant: usize, build: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.variant, variant);
        let built = build(self);
        self.variant = outer;
        built
    }

    fn array(&mut self, fields: &Map<String, Value>) -> Result<Value, String> {
        let min = count(fields, "minItems").unwrap_or(0);
        if min > MAX_LENGTH {
            return Err(format!("`minItems` above {MAX_LENGTH} is not supported"));
        }
        let max = count(fields, "maxItems").unwrap_or(usize::MAX);
        let (first, rest) = item_schemas(fields);
        let contained = fields.get("contains");
        let needed = contained.map_or(0, |_| count(fields, "minContains").unwrap_or(1));
        if needed > MAX_LENGTH {
            return Err(format!("`minContains` above {MAX_LENGTH} is not supported"));
        }
        let shown = if self.limits.optional { first.len().max(1) } else { 0 };
        let wanted = shown.max(needed).min(max).max(min);
        let unique = fields.get("uniqueItems") == Some(&Value::Bool(true));
        let anything = Value::Bool(true);
        let rest = rest.unwrap_or(&anything);
        let mut items: Vec<Value> = Vec::new();
        let mut tries = 0;
        while items.len() < wanted {
            let mut pending = vec![first.get(items.len()).unwrap_or(rest).clone()];
            pending.extend(contained.cloned());
            let variant = if unique { tries } else { self.variant };
            match self.with_variant(variant, |builder| builder.merged(Map::new(), pending)) {
                Ok(item) if unique && check::contains(&items, &item) => {}
                Ok(item) => items.push(item),
                Err(error) if items.len() < min => return Err(format!("[{}]: {error}", items.len())),
                Err(_) => break,
            }
            tries += 1;
            if tries > 4 * wanted + 10 {
                return Err(format!("fewer than {wanted} different items were found for `uniqueItems`"));
            }
        }
        Ok(Value::Array(items))
    }
}

/// Returns the type that the keywords of a schema without `type` are about.
fn implied_type(fields: &Map<String, Value>) -> &'static str {
    let has = |keys: &[&str]| keys.iter().any(|key| fields.contains_key(*key));
    if has(&[
        "properties",
        "required",
        "additionalProperties",
        "minProperties",
        "propertyNames",
        "patternProperties",
    ]) {
        "object"
    } else if has(&["items", "prefixItems", "minItems", "contains", "uniqueItems"]) {
        "array"
    } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        "number"
    } else {
        "string"
    }
}
