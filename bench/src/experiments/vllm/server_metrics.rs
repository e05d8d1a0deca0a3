//! Polls the Prometheus metrics of vLLM, or of the simulator.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt;
use tidegate::{Gate, RequestBody, Transport};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use super::contender::TARGET;
use crate::Fallible;

/// The interval between two samples.
const INTERVAL: Duration = Duration::from_millis(500);

/// The state of the server, and of the gate's limit, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// Seconds since the start of the run.
    pub(super) at: f64,
    pub(super) running: f64,
    pub(super) waiting: f64,
    /// Number of preemptions since the start of the server. The other counters begin there, too.
    pub(super) preemptions: f64,
    pub(super) prompt_tokens: f64,
    pub(super) output_tokens: f64,
    /// Number of prompt tokens that were looked up in the prefix cache, and of those found there.
    pub(super) prefix_queries: f64,
    pub(super) prefix_hits: f64,
    /// Number of times between tokens, and their sum in seconds.
    pub(super) gaps: f64,
    pub(super) gap_seconds: f64,
    /// Number of decreases of the adaptive limit. 0 without one.
    pub(super) cuts: f64,
}

/// Appends a sample to `samples` at each interval, for ever. A poll that fails is skipped.
pub(super) async fn poll(wire: &Transport, base: &str, gate: Option<&Gate>, samples: &mut Vec<Sample>) {
    let start = Instant::now();
    loop {
        if let Ok(mut sample) = sample(wire, base).await {
            sample.at = start.elapsed().as_secs_f64();
            let target = gate.and_then(|gate| gate.snapshot().targets.remove(TARGET));
            sample.cuts = target.and_then(|target| target.adaptive).map_or(0.0, |limit| limit.cuts as f64);
            samples.push(sample);
        }
        sleep(INTERVAL).await;
    }
}

/// Returns the metrics of the server at the URL `base` now. [`Sample::at`] is 0.
pub(super) async fn sample(wire: &Transport, base: &str) -> Fallible<Sample> {
    let mut request = Request::new(RequestBody::default());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = format!("{base}/metrics").parse()?;
    let response = wire.clone().oneshot(request).await?;
    if !response.status().is_success() {
        return Err(format!("{base}/metrics answers {}", response.status()).into());
    }
    let body = response.into_body().collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    let get = |name: &str| sum(&text, name);
    Ok(Sample {
        at: 0.0,
        running: get("vllm:num_requests_running"),
        waiting: get("vllm:num_requests_waiting"),
        preemptions: get("vllm:num_preemptions_total"),
        prompt_tokens: get("vllm:prompt_tokens_total"),
        output_tokens: get("vllm:generation_tokens_total"),
        prefix_queries: get("vllm:prefix_cache_queries_total"),
        prefix_hits: get("vllm:prefix_cache_hits_total"),
        gaps: get("vllm:inter_token_latency_seconds_count"),
        gap_seconds: get("vllm:inter_token_latency_seconds_sum"),
        cuts: 0.0,
    })
}

/// Returns the sum of the series named `name`, or 0 if there is none.
fn sum(text: &str, name: &str) -> f64 {
    let value =
        |line: &str| line.strip_prefix(name)?.strip_prefix('{')?.rsplit(' ').next()?.parse::<f64>().ok();
    text.lines().filter_map(value).sum()
}
