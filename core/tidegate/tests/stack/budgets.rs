//! Tests through the whole client of rate budgets that adapt to the responses of the provider.

use std::time::Duration;

use crate::support::*;

/// A 429 reduces the maximum burst. Responses without rate headers increase it again.
#[tokio::test(start_paused = true)]
async fn responses_without_rate_headers_raise_a_cut_rate() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        Ok(if n == 1 { status(429, &[], "{}") } else { json(exchange, ANSWER) })
    });
    let gate = gate(transport, |target| target.rpm(60));
    let burst = || gate.snapshot().targets["llm"].budgets["requests"].burst;
    for _ in 0..2 {
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    }
    assert_eq!(burst(), 3.0);
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    }
    assert_eq!(burst(), 6.0);
    assert_idle(&gate);
}
