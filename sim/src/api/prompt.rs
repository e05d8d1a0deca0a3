//! How long a prompt is.

use serde_json::{Map, Value};

/// Keys whose text the model reads.
const READ: [&str; 8] =
    ["messages", "prompt", "input", "system", "instructions", "tools", "contents", "systemInstruction"];
/// Keys within them that are form, not text.
const FORM: [&str; 3] = ["role", "type", "id"];

/// Tokens of a request's prompt: UTF-8 bytes over four, token ids one each; at least one.
pub(super) fn tokens(body: &Map<String, Value>) -> u64 {
    let mut sum = Sum::default();
    for value in READ.iter().filter_map(|key| body.get(*key)) {
        sum.add(value);
    }
    (sum.bytes.div_ceil(4) + sum.ids).max(1)
}

#[derive(Default)]
struct Sum {
    bytes: u64,
    ids: u64,
}

impl Sum {
    /// Recursion is bounded by the JSON parser's own limit of depth.
    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.bytes += text.len() as u64,
            Value::Number(_) => self.ids += 1,
            Value::Array(parts) => parts.iter().for_each(|part| self.add(part)),
            Value::Object(fields) => fields
                .iter()
                .filter(|(key, _)| !FORM.contains(&key.as_str()))
                .for_each(|(_, value)| self.add(value)),
            Value::Bool(_) | Value::Null => {}
        }
    }
}
