//! Helpers shared by the tests of the simulator.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]
#![allow(dead_code, reason = "each test binary uses its own part")]

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidegate_sim::{SimBody, SimConfig, Simulator};

/// Returns a simulator with one engine and otherwise the calibrated configuration, which serves the
/// model `sim`. `change` can modify the configuration first.
pub(crate) fn simulator(change: impl FnOnce(&mut SimConfig)) -> Simulator {
    let mut config = SimConfig { workers: 1, ..SimConfig::calibrated() };
    change(&mut config);
    Simulator::new(config).unwrap()
}

pub(crate) fn post(path: &str, body: &Value) -> Request<Bytes> {
    Request::post(path).header("x-tenant", "t").body(Bytes::from(body.to_string())).unwrap()
}

pub(crate) fn get(path: &str) -> Request<Bytes> {
    Request::get(path).body(Bytes::new()).unwrap()
}

/// Returns a streaming chat request for an answer of `output` tokens.
pub(crate) fn chat(output: u32) -> Request<Bytes> {
    let body = json!({
        "model": "sim", "stream": true, "max_tokens": output,
        "messages": [{"role": "user", "content": "hello"}],
    });
    post("/v1/chat/completions", &body)
}

pub(crate) async fn text(response: Response<SimBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

pub(crate) async fn value(response: Response<SimBody>) -> Value {
    serde_json::from_str(&text(response).await).unwrap()
}

/// Returns the parsed JSON of each `data:` line of a stream. `[DONE]` becomes a JSON string.
pub(crate) fn events(sse: &str) -> Vec<Value> {
    let data = sse.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|d| if d == "[DONE]" { json!("[DONE]") } else { serde_json::from_str(d).unwrap() }).collect()
}
