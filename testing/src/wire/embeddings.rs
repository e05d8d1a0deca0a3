//! Answers of `embeddings`: the same small vector for every text.

use serde_json::{Value, json};

use super::request_shape::RequestShape;

/// The embedding of every text. Its value does not matter to tests.
const VECTOR: [f32; 3] = [0.0, 0.5, 1.0];
/// [`VECTOR`] as little-endian floats in base64, the encoding that the official clients request.
const BASE64: &str = "AAAAAAAAAD8AAIA/";

pub(super) fn whole(shape: &RequestShape) -> Value {
    let vector = if shape.base64 { json!(BASE64) } else { json!(VECTOR) };
    let data: Vec<Value> = (0..shape.inputs)
        .map(|index| json!({"object": "embedding", "index": index, "embedding": vector}))
        .collect();
    let tokens = shape.input_tokens;
    json!({
        "object": "list", "data": data, "model": shape.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })
}
