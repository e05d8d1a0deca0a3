//! Converts JSON to the tree of untyped values.

use crate::schema::{Entry, Node, Table, Value};

/// The maximum depth of nested values, so that reading them does not exhaust the stack. Keys are at
/// most five levels deep.
const MAX_DEPTH: usize = 32;

pub(super) fn read(value: &serde_json::Value) -> Node {
    node(value, 0)
}

/// Converts a value that is nested in `depth` others. Lists and objects that are nested more deeply
/// than [`MAX_DEPTH`] become values that no key accepts.
fn node(value: &serde_json::Value, depth: usize) -> Node {
    use serde_json::Value as Json;
    let value = match value {
        Json::Array(_) | Json::Object(_) if depth >= MAX_DEPTH => Value::Other("a value nested too deeply"),
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => match (number.as_i128(), number.as_f64()) {
            (Some(whole), _) => Value::Whole(whole),
            (None, Some(float)) => Value::Float(float),
            (None, None) => Value::Other("a number that cannot be read"),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => Value::List(items.iter().map(|item| node(item, depth + 1)).collect()),
        Json::Object(map) => Value::Table(Table {
            entries: map
                .iter()
                .map(|(key, value)| Entry { key: key.clone(), line: None, node: node(value, depth + 1) })
                .collect(),
        }),
    };
    value.into()
}
