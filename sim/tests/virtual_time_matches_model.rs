//! Tests that the in-process simulator in virtual time gives the same figures as the model without
//! a clock.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use http_body_util::BodyExt;
use serde_json::json;
use support::post;
use tidegate_sim::scenario::{
    Arrivals, CallTiming, OUTPUT_TOKENS, PROMPT_TOKENS, Run, noisy_neighbour, summarise,
};
use tidegate_sim::{SimConfig, Simulator};
use tokio::time::{Duration, Instant, sleep_until};

async fn call(sim: Simulator, start: Instant, at: Duration) -> CallTiming {
    sleep_until(start + at).await;
    let body = json!({
        "model": "sim", "stream": true, "prompt": "x", "max_tokens": OUTPUT_TOKENS, "sim_prompt_tokens": PROMPT_TOKENS,
    });
    let mut call = CallTiming { sent: start.elapsed(), tokens: OUTPUT_TOKENS, ..CallTiming::default() };
    let mut body = sim.respond(post("/v1/completions", &body)).await.unwrap().into_body();
    while let Some(frame) = body.frame().await {
        frame.unwrap();
        call.first_token.get_or_insert(start.elapsed());
    }
    call.finished = Some(start.elapsed());
    call
}

#[tokio::test(start_paused = true)]
async fn driver_and_model_give_the_same_figures() {
    let (run, arrivals, seed) = (Run::Baseline, Arrivals::Poisson, 5);
    let config = SimConfig::calibrated();
    let pure = noisy_neighbour(&config, run, arrivals, seed);
    let (sim, start) = (Simulator::new(config).unwrap(), Instant::now());
    let calls: Vec<_> = run
        .calls(arrivals, seed)
        .into_iter()
        .map(|(tenant, at)| (tenant, tokio::spawn(call(sim.clone(), start, at))))
        .collect();
    let mut rows = vec![Vec::new(); pure.tenants.len()];
    for (tenant, call) in calls {
        rows[tenant].push(call.await.unwrap());
    }
    for ((name, pure), rows) in pure.tenants.iter().zip(&rows) {
        let driven = summarise(rows);
        // The driver's timers have a resolution of 1 ms, so an arrival may be 1 ms late and miss a
        // step.
        assert!(
            (driven.ttft_median_ms - pure.ttft_median_ms).abs() < 5.0,
            "{name}: {driven:?}, not {pure:?}"
        );
        assert!(
            (driven.decode_median_ms - pure.decode_median_ms).abs() < 0.5,
            "{name}: {driven:?}, not {pure:?}"
        );
        assert!(driven.peak_in_flight.abs_diff(pure.peak_in_flight) <= 1);
        assert_eq!(driven.failures, 0);
    }
    assert_eq!((sim.stats().in_flight, sim.stats().running), (0, 0));
}
