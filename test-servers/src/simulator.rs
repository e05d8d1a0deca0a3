//! The simulator of `tidegate-sim` as a transport.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody, Transport};
use tidegate_sim::engine::{EngineConfig, StepCost};
use tidegate_sim::{ConnectionError, Faults, SimConfig, Simulator};

/// Returns a transport that passes each request to the simulator. The transport delays the request
/// by half of `round_trip`, and the head of the response (or the error) by the other half.
pub fn simulator_transport(simulator: &Simulator, round_trip: Duration) -> Transport {
    let simulator = simulator.clone();
    Transport::new(tower::service_fn(move |request: Request<RequestBody>| {
        let simulator = simulator.clone();
        async move {
            delay(round_trip / 2).await;
            let response = respond(&simulator, request).await;
            delay(round_trip / 2).await;
            response
        }
    }))
}

async fn delay(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Passes a request to the simulator, and returns its response. The request body must be in memory;
/// any other body counts as empty.
///
/// # Errors
///
/// Returns [`ErrorKind::Connect`], marked with [`Error::with_connect_refused`], if the simulator
/// refuses the connection, and [`ErrorKind::Transport`] if the simulator breaks it. Reading the
/// response body can also fail with [`ErrorKind::Transport`].
pub async fn respond(
    simulator: &Simulator,
    request: Request<RequestBody>,
) -> Result<Response<ResponseBody>, Error> {
    let request = request.map(|body| body.bytes().cloned().unwrap_or_default());
    let response = simulator.respond(request).await;
    let response = response.map_err(|error| match error {
        ConnectionError::Refused => Error::new(ErrorKind::Connect, error.to_string()).with_connect_refused(),
        ConnectionError::Broken => Error::new(ErrorKind::Transport, error.to_string()),
    })?;
    Ok(response.map(|body| {
        ResponseBody::new(body.map_err(|broken| Error::new(ErrorKind::Transport, broken.to_string())))
    }))
}

/// Returns the configuration of a simulator with one engine and the given faults. Each step of the
/// engine takes `step_ms` milliseconds, however many calls there are. An answer takes one step per
/// token, and a call begins at the next step.
pub fn constant_steps(step_ms: f64, faults: Faults) -> SimConfig {
    SimConfig {
        workers: 1,
        engine: EngineConfig {
            num_blocks: 1_000_000,
            max_num_seqs: 100_000,
            max_num_batched_tokens: 10_000_000,
            prefix_cache: false,
            step: StepCost {
                base_ms: step_ms,
                per_prompt_token_ms: 0.0,
                per_sequence_ms: 0.0,
                per_sequence_squared_ms: 0.0,
            },
            ..EngineConfig::default()
        },
        faults,
        ..SimConfig::calibrated()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_sim::faults::{Outage, OutageMode};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_refused_connection_means_that_nothing_was_sent() {
        let outage = Outage { from_s: 0.05, until_s: 60.0, mode: OutageMode::Kill };
        let faults = Faults { outages: vec![outage], ..Faults::default() };
        let simulator = Simulator::new(constant_steps(100.0, faults)).unwrap();
        let call = async || {
            let body = r#"{"model": "sim", "max_tokens": 2, "messages": [{"role": "user", "content": ""}]}"#;
            let request = Request::post("/v1/chat/completions").body(body.into()).unwrap();
            respond(&simulator, request).await.unwrap_err()
        };
        assert_eq!(call().await.kind(), ErrorKind::Transport);
        assert!(call().await.is_connect_refused());
    }
}
