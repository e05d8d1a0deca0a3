//! Encodes server-sent events.

use serde_json::Value;

pub(super) const DONE: &str = "data: [DONE]\n\n";

/// Returns an event without a type: `data: VALUE` and an empty line.
pub(super) fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// Returns an event whose type is the string at the key `type` of `value`.
pub(super) fn event(value: &Value) -> String {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    format!("event: {kind}\ndata: {value}\n\n")
}
