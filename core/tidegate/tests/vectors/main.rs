//! Runs the cross-language vectors of `tests/vectors` against the core.
//!
//! Each file is one JSON object with `about` and `cases`. Each case has a `name`. The bindings run
//! the same files.

// The helpers are test code too, but clippy recognizes only functions with a test attribute.
#![allow(clippy::expect_used)]

mod calls;
mod wire;

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Deserialize)]
struct File<T> {
    cases: Vec<T>,
}

fn cases<T: DeserializeOwned>(file: &str) -> Vec<T> {
    let path = format!("{}/../../tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let file: File<T> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(!file.cases.is_empty(), "{path} has no cases");
    file.cases
}

type Headers = BTreeMap<String, String>;

fn header_map(headers: &Headers) -> HeaderMap {
    headers
        .iter()
        .map(|(name, value)| {
            let name: HeaderName = name.parse().expect("a header name");
            (name, HeaderValue::from_bytes(value.as_bytes()).expect("a header value"))
        })
        .collect()
}

/// Returns the bytes of a body, which the vectors give as text or as JSON.
fn body(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) => text.clone().into_bytes(),
        value => value.to_string().into_bytes(),
    }
}
