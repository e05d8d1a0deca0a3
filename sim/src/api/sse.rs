//! Server-sent events.

use serde_json::Value;

/// Appends `data: VALUE`.
pub(super) fn data(out: &mut String, value: &Value) {
    out.push_str("data: ");
    out.push_str(&value.to_string());
    out.push_str("\n\n");
}

/// Appends `event: TYPE` and `data: VALUE`.
pub(super) fn event(out: &mut String, value: &Value) {
    if let Some(kind) = value.get("type").and_then(Value::as_str) {
        out.push_str("event: ");
        out.push_str(kind);
        out.push('\n');
    }
    data(out, value);
}

pub(super) const DONE: &str = "data: [DONE]\n\n";
