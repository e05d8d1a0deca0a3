//! Polls the `/metrics` of an inference engine twice per second.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use tidegate::Transport;
use tidegate::protocol::vllm;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::endpoint::Endpoint;
use crate::observation::EngineObservation;

const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum duration of a poll. A longer one counts as failed.
const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of consecutive failed polls after which polling ends. Before the first successful poll,
/// the server may have no metrics, so three failures suffice.
const MAX_FAILURES: u32 = 3;
/// Number of consecutive failed polls after which polling ends if an earlier poll succeeded.
const MAX_FAILURES_AFTER_SUCCESS: u32 = 20;
/// Maximum length of a metrics response, in bytes. A longer response counts as a failed poll.
const MAX_BYTES: usize = 1 << 20;

/// Starts a task that polls the engine's metrics until the receiver is dropped or too many polls in
/// a row fail. The receiver's value is `None` before the first successful poll and after a
/// failed one.
pub(crate) fn watch(
    transport: Transport,
    endpoint: Arc<Endpoint>,
) -> watch::Receiver<Option<EngineObservation>> {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        let (mut failures, mut max_failures) = (0, MAX_FAILURES);
        while failures < max_failures {
            let seen = tokio::select! {
                () = sender.closed() => return,
                seen = tokio::time::timeout(POLL_TIMEOUT, poll(&transport, &endpoint)) => seen.ok().flatten(),
            };
            (failures, max_failures) =
                if seen.is_some() { (0, MAX_FAILURES_AFTER_SUCCESS) } else { (failures + 1, max_failures) };
            sender.send_replace(seen);
            tokio::select! {
                () = sender.closed() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
        // The last value is outdated.
        sender.send_replace(None);
    });
    receiver
}

async fn poll(transport: &Transport, endpoint: &Endpoint) -> Option<EngineObservation> {
    let response = transport.clone().oneshot(endpoint.metrics()?).await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let text = Limited::new(response.into_body(), MAX_BYTES).collect().await.ok()?.to_bytes();
    parse(&text)
}

fn parse(text: &[u8]) -> Option<EngineObservation> {
    let standing = vllm::parse_metrics(text)?;
    Some(EngineObservation {
        preemptions: preemptions(text),
        kv_usage: standing.kv_usage,
        waiting: Some(standing.waiting as u64),
        running: Some(standing.running as u64),
    })
}

/// Returns the sum of vLLM's preemption counters over all engines, or `None` if the text has none.
fn preemptions(text: &[u8]) -> Option<u64> {
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let values = lines.filter_map(|line| {
        let rest = line.strip_prefix("vllm:num_preemptions")?;
        let rest = rest.strip_prefix("_total").unwrap_or(rest);
        // A longer name is another series.
        let value = rest.starts_with(['{', ' ']).then(|| rest.rsplit(' ').next())??;
        value.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)
    });
    values.reduce(|a, b| a + b).map(|sum| sum as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_metrics_over_engines() {
        let text = b"# HELP vllm:num_preemptions_total x\nvllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_waiting{engine=\"0\"} 2\n\
            vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:num_preemptions_total{engine=\"0\"} 4.0\nvllm:num_preemptions_total{engine=\"1\"} 3.0\n\
            vllm:num_preemptions_created{engine=\"0\"} 1e9\n";
        assert_eq!(
            parse(text),
            Some(EngineObservation {
                preemptions: Some(7),
                kv_usage: Some(0.5),
                waiting: Some(2),
                running: Some(3)
            })
        );
        assert_eq!(parse(b"<html>"), None);
    }
}
