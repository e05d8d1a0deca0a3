//! The list of models.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

/// More than any server has, adapters included: a pool keeps what each of its replicas serves.
const MOST: usize = 1024;
/// The longest name of a model; one that is longer could not be told from one that is cut.
const LONGEST: usize = 200;

/// A model that a replica serves, an adapter (LoRA) included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// What calls ask for.
    pub name: Arc<str>,
    /// Tokens of prompt and answer together, where it says so.
    pub longest: Option<u64>,
    /// Of an adapter, the model that it adapts.
    pub parent: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct List {
    data: Vec<Value>,
}

/// What a server serves, by the body of its `/v1/models`; the first 1,024. `None` for what is no such list.
pub fn models(body: &[u8]) -> Option<Vec<Model>> {
    let List { data } = serde_json::from_slice(body).ok()?;
    Some(data.iter().filter_map(model).take(MOST).collect())
}

fn model(entry: &Value) -> Option<Model> {
    let text =
        |key| entry.get(key).and_then(Value::as_str).filter(|text| (1..=LONGEST).contains(&text.len()));
    Some(Model {
        name: text("id")?.into(),
        longest: entry.get("max_model_len").and_then(Value::as_u64).filter(|tokens| *tokens > 0),
        parent: text("parent").map(Into::into),
    })
}
