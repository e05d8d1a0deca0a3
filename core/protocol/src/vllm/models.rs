//! The list of models that a server serves.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

/// Maximum number of models kept per replica, more than any server has, adapters included.
const MAX_MODELS: usize = 1024;
/// Maximum length of a model name in bytes. Longer names are dropped.
const MAX_NAME: usize = 200;

/// A model that a replica serves, including LoRA adapters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The name that calls use.
    pub name: Arc<str>,
    /// Maximum tokens of prompt and answer together, if reported.
    pub longest: Option<u64>,
    /// For an adapter, the base model.
    pub parent: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct List {
    data: Vec<Value>,
}

/// Parses the body of `/v1/models`, up to 1,024 models. Returns `None` if it is no such list.
pub fn models(body: &[u8]) -> Option<Vec<Model>> {
    let List { data } = serde_json::from_slice(body).ok()?;
    Some(data.iter().filter_map(model).take(MAX_MODELS).collect())
}

fn model(entry: &Value) -> Option<Model> {
    let text =
        |key| entry.get(key).and_then(Value::as_str).filter(|text| (1..=MAX_NAME).contains(&text.len()));
    Some(Model {
        name: text("id")?.into(),
        longest: entry.get("max_model_len").and_then(Value::as_u64).filter(|tokens| *tokens > 0),
        parent: text("parent").map(Into::into),
    })
}
