//! Answers requests that generate nothing: the model list, token counts, health, metrics, and the
//! control API under `/sim/`.

use std::sync::Arc;

use http::{HeaderMap, Method, Response};
use serde_json::{Value, json};

use super::body::SimBody;
use super::respond::{EPOCH, error, json as json_response, with_type};
use super::{ConnectionError, Shared, Simulator};
use crate::api::ApiError;
use crate::api::request::{ServerLimits, count_prompt};
use crate::faults::{Faults, OutageMode};

pub(super) async fn control(
    shared: &Arc<Shared>,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response<SimBody>, ConnectionError> {
    let simulator = Simulator { shared: Arc::clone(shared) };
    // The control API stays reachable during an outage, because a test uses it to end the outage.
    if let Some(command) = path.strip_prefix("/sim/") {
        return Ok(sim_command(&simulator, method, command, body));
    }
    let outage = shared.state.lock().faults.outage(shared.clock.now());
    match outage {
        Some(OutageMode::Refuse | OutageMode::Kill) => return Err(ConnectionError::Refused),
        Some(OutageMode::Unavailable) => return Ok(error(None, &ApiError::unavailable())),
        Some(OutageMode::Hang) => return std::future::pending().await,
        Some(OutageMode::Dead) if matches!(path, "/health" | "/ping") => {
            return Ok(with_type(503, "text/plain", ""));
        }
        Some(OutageMode::Dead) => return Ok(error(None, &ApiError::engine_dead())),
        None => {}
    }
    Ok(match (method, path) {
        (&Method::GET, "/v1/models") => json_response(200, &models(shared)),
        (&Method::POST, "/tokenize") => token_count(shared, headers, body),
        (&Method::GET, "/health" | "/ping") => with_type(200, "text/plain", ""),
        (&Method::GET, "/metrics") => {
            with_type(200, "text/plain; version=0.0.4; charset=utf-8", simulator.metrics())
        }
        (_, "/v1/models" | "/tokenize" | "/health" | "/metrics") => {
            error(None, &ApiError::new(405, "Method Not Allowed", "Method Not Allowed"))
        }
        _ => error(None, &ApiError::new(404, "Not Found", "Not Found")),
    })
}

fn sim_command(simulator: &Simulator, method: &Method, command: &str, body: &[u8]) -> Response<SimBody> {
    match (method, command) {
        (&Method::GET, "stats") => as_json(&simulator.stats()),
        (&Method::GET, "faults") => as_json(&simulator.faults()),
        (&Method::POST, "reset") => {
            simulator.reset_stats();
            json_response(200, &json!({"reset": true}))
        }
        (&Method::POST, "faults") => {
            let read = serde_json::from_slice::<Faults>(body).map_err(|e| e.to_string());
            match read.and_then(|faults| simulator.set_faults(faults).map_err(|e| e.to_string())) {
                Ok(()) => as_json(&simulator.faults()),
                Err(problem) => error(None, &ApiError::bad_request(problem)),
            }
        }
        _ => error(None, &ApiError::new(404, "Not Found", "Not Found")),
    }
}

fn as_json<T: serde::Serialize>(value: &T) -> Response<SimBody> {
    match serde_json::to_vec(value) {
        Ok(body) => with_type(200, "application/json", body),
        Err(e) => error(None, &ApiError::new(500, "InternalServerError", e.to_string())),
    }
}

/// Answers a request to `/tokenize`. Unlike vLLM's answer, this one has the number of tokens only.
fn token_count(shared: &Shared, headers: &HeaderMap, body: &[u8]) -> Response<SimBody> {
    let limits = ServerLimits::from_config(&shared.config);
    match count_prompt(headers, body, limits) {
        Ok(count) => {
            json_response(200, &json!({"count": count, "max_model_len": limits.max_model_len, "tokens": []}))
        }
        Err(api) => error(None, &api),
    }
}

fn models(shared: &Shared) -> Value {
    let served = &shared.config.models;
    let fallback = [String::from("sim")];
    let names = if served.is_empty() { fallback.as_slice() } else { served.as_slice() };
    let length = shared.config.engine.max_model_len;
    let models = names.iter().map(|name| {
        json!({
            "id": name, "object": "model", "created": EPOCH, "owned_by": "vllm",
            "root": name, "parent": null, "max_model_len": length,
        })
    });
    // vLLM reports no maximum length for an adapter.
    let adapters = shared.config.adapters.iter().map(|adapter| {
        json!({
            "id": adapter.name, "object": "model", "created": EPOCH, "owned_by": "vllm",
            "root": adapter.name, "parent": adapter.parent.as_ref().or(names.first()), "max_model_len": null,
        })
    });
    let cards: Vec<Value> = models.chain(adapters).collect();
    json!({"object": "list", "data": cards})
}
