//! Reads the list of models that a server serves, from its `/v1/models`.

use std::sync::Arc;

use serde_json::Value;

use crate::request::MAX_MODEL;

/// Maximum number of models that are read from one list.
const MAX_MODELS: usize = 1024;

/// A model or LoRA adapter that a replica serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The name that calls use.
    pub name: Arc<str>,
    /// Maximum number of tokens of prompt and output together. `None` if not reported.
    pub max_tokens: Option<u64>,
    /// For a LoRA adapter, the name of its base model. `None` for other models.
    pub parent: Option<Arc<str>>,
}

/// Returns the first 1,024 valid models in the body of `/v1/models`, or `None` if the body is not a
/// list of models.
pub fn parse_models(body: &[u8]) -> Option<Vec<Model>> {
    let document: Value = serde_json::from_slice(body).ok()?;
    Some(document.get("data")?.as_array()?.iter().filter_map(model).take(MAX_MODELS).collect())
}

/// Parses one entry of the list. Returns `None` if it has no name of at most [`MAX_MODEL`] bytes
/// without control characters, which could forge lines of a report.
fn model(entry: &Value) -> Option<Model> {
    let is_name = |text: &&str| (1..=MAX_MODEL).contains(&text.len()) && !text.contains(char::is_control);
    let text = |key| entry.get(key).and_then(Value::as_str).filter(is_name);
    Some(Model {
        name: text("id")?.into(),
        max_tokens: entry.get("max_model_len").and_then(Value::as_u64).filter(|tokens| *tokens > 0),
        parent: text("parent").map(Into::into),
    })
}
