//! The simulator as a transport: what stands below the gate where no socket is needed.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody, Transport};
use tidegate_sim::engine::{EngineConfig, StepCost};
use tidegate_sim::{ConnectionRefused, Faults, SimConfig, Simulator};
use tower::Service;

/// Requests go to a [`Simulator`] in process, as over a network of this round trip.
#[derive(Clone, Debug)]
pub(crate) struct SimTransport {
    simulator: Simulator,
    round_trip: Duration,
}

impl SimTransport {
    pub(crate) fn over(simulator: &Simulator, round_trip: Duration) -> Transport {
        Transport::new(Self { simulator: simulator.clone(), round_trip })
    }
}

impl Service<Request<RequestBody>> for SimTransport {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let Self { simulator, round_trip } = self.clone();
        Box::pin(async move {
            travel(round_trip / 2).await;
            let answer =
                simulator.respond(request.map(|body| body.bytes().cloned().unwrap_or_default())).await;
            travel(round_trip / 2).await;
            let response = answer
                .map_err(|refused: ConnectionRefused| Error::new(ErrorKind::Connect, refused.to_string()))?;
            Ok(response.map(|body| {
                ResponseBody::new(body.map_err(|broken| Error::new(ErrorKind::Transport, broken.to_string())))
            }))
        })
    }
}

async fn travel(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// A server that answers every call in about `service`, however many there are: for experiments on policies, where the engine must
/// not be what binds. A call joins at the next step, so that it takes between 8 and 9 eighths of it.
pub(crate) fn steady(service: Duration, faults: Faults) -> SimConfig {
    let step = service.as_secs_f64() * 1e3 / f64::from(STEADY_TOKENS);
    SimConfig {
        workers: 1,
        engine: EngineConfig {
            num_blocks: 1_000_000,
            max_num_seqs: 100_000,
            max_num_batched_tokens: 10_000_000,
            prefix_cache: false,
            step: StepCost {
                base_ms: step,
                per_prompt_token_ms: 0.0,
                per_sequence_ms: 0.0,
                ..StepCost::default()
            },
            ..EngineConfig::default()
        },
        attempt_log: 1_000_000,
        faults,
        ..SimConfig::calibrated()
    }
}

/// Tokens of an answer of [`steady`]: one step each.
pub(crate) const STEADY_TOKENS: u32 = 8;
