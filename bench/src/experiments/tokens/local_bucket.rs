//! The limiter that applications usually write themselves: a token bucket that charges the prompt
//! and all of `max_tokens`, first come, first served.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tidegate::{Error, RequestBody, ResponseBody, Transport};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::{ServiceExt, service_fn};

use crate::retrying_clients::Rule;

/// A function that returns the estimated cost of a request, in tokens.
type Estimate = fn(&Request<RequestBody>) -> f64;

/// Returns the input tokens as the provider counts them, plus all of `max_tokens`.
pub(super) fn exact(request: &Request<RequestBody>) -> f64 {
    number(request, "x-true-input") + number(request, "x-true-max")
}

/// Returns a quarter of the body's length in characters, plus all of `max_tokens`.
pub(super) fn quarter(request: &Request<RequestBody>) -> f64 {
    let text = request.body().bytes().map(|body| String::from_utf8_lossy(body).chars().count()).unwrap_or(0);
    text as f64 / 4.0 + number(request, "x-true-max")
}

/// Returns the true cost in tokens, which no client knows in advance.
pub(super) fn used(request: &Request<RequestBody>) -> f64 {
    number(request, "x-true-input") + number(request, "x-true-output")
}

fn number(request: &Request<RequestBody>, name: &str) -> f64 {
    request.headers().get(name).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0.0)
}

/// A limiter: its bucket, the function that estimates costs, and the transport below it.
#[derive(Clone)]
pub(super) struct Local {
    rate: f64,
    estimate: Estimate,
    level: Arc<Mutex<(f64, Instant)>>,
    transport: Transport,
}

impl Local {
    /// Returns a client that limits its requests to `tpm` tokens per minute. Its bucket holds the
    /// tokens of one minute, and is full at first.
    pub(super) fn over(transport: Transport, tpm: f64, estimate: Estimate) -> Transport {
        let level = Arc::new(Mutex::new((tpm, Instant::now())));
        let local = Self { rate: tpm / 60.0, estimate, level, transport };
        // Retries pass the bucket like calls.
        Rule::openai(Duration::from_secs(600))
            .over(Transport::new(service_fn(move |request| local.clone().exchange(request))))
    }

    async fn exchange(self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, Error> {
        let Self { rate, estimate, level, transport } = self;
        let cost = estimate(&request);
        {
            // The lock is held while the call waits, so that calls are served first come, first
            // served.
            let mut bucket = level.lock().await;
            loop {
                let now = Instant::now();
                bucket.0 = (bucket.0 + rate * (now - bucket.1).as_secs_f64()).min(rate * 60.0);
                bucket.1 = now;
                let missing = cost.min(rate * 60.0) - bucket.0;
                if missing <= 0.0 {
                    break;
                }
                tokio::time::sleep(Duration::from_secs_f64(missing / rate + 0.001)).await;
            }
            bucket.0 -= cost;
        }
        transport.oneshot(request).await
    }
}
