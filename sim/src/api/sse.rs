//! Encodes server-sent events.

use serde_json::Value;

/// Appends an event without a type: `data: VALUE` and an empty line.
pub(super) fn data(out: &mut String, value: &Value) {
    out.push_str("data: ");
    out.push_str(&value.to_string());
    out.push_str("\n\n");
}

/// Appends an event whose type is the string at the key `type` of `value`: `event: TYPE`, `data:
/// VALUE` and an empty line.
pub(super) fn event(out: &mut String, value: &Value) {
    if let Some(kind) = value.get("type").and_then(Value::as_str) {
        out.push_str("event: ");
        out.push_str(kind);
        out.push('\n');
    }
    data(out, value);
}

pub(super) const DONE: &str = "data: [DONE]\n\n";
