//! Tests that dropping a response future or body aborts its sequence in the engine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use http_body_util::BodyExt;
use serde_json::json;
use support::{chat, post, simulator, text};
use tidegate_sim::{AttemptEnd, Faults, faults::Stall};
use tokio::time::Duration;

#[tokio::test(start_paused = true)]
async fn dropped_body_aborts_its_running_or_queued_sequence() {
    let sim = simulator(|c| c.engine.max_num_seqs = 1);
    let mut running = sim.respond(chat(100)).await.unwrap().into_body();
    let queued = sim.respond(chat(100)).await.unwrap();
    running.frame().await.unwrap().unwrap();
    assert_eq!((sim.stats().running, sim.stats().waiting), (1, 1));
    drop(queued);
    assert_eq!((sim.stats().running, sim.stats().waiting), (1, 0));
    drop(running);
    let stats = sim.stats();
    assert_eq!((stats.running, stats.waiting, stats.in_flight), (0, 0, 0));
    assert!(stats.attempts.iter().all(|a| a.outcome == AttemptEnd::Aborted && a.ended_s.is_some()));
    assert!(
        sim.metrics()
            .contains(r#"vllm:request_success_total{engine="0",finished_reason="abort",model_name="sim"} 2"#)
    );
    assert!(sim.metrics().contains(r#"vllm:kv_cache_usage_perc{engine="0",model_name="sim"} 0"#));
}

#[tokio::test(start_paused = true)]
async fn dropped_future_aborts_its_sequence() {
    let sim = simulator(|_| ());
    let body = json!({"model": "sim", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]});
    let call = sim.respond(post("/v1/chat/completions", &body));
    assert!(tokio::time::timeout(Duration::from_secs(1), call).await.is_err());
    let stats = sim.stats();
    assert_eq!((stats.running, stats.waiting, stats.in_flight), (0, 0, 0));
    assert_eq!(stats.attempts[0].outcome, AttemptEnd::Aborted);
    assert!((stats.attempts[0].ended_s.unwrap() - 1.0).abs() < 0.01);
}

#[tokio::test(start_paused = true)]
async fn call_dropped_before_headers_never_reaches_the_engine() {
    let sim = simulator(|_| ());
    sim.set_faults(Faults { stall_before_headers: Some(Stall::default()), ..Faults::default() }).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(9), sim.respond(chat(5))).await.is_err());
    let stats = sim.stats();
    assert_eq!((stats.in_flight, stats.running), (0, 0));
    assert_eq!(stats.tenants["t"].outcomes[&AttemptEnd::Aborted], 1);
}

#[tokio::test(start_paused = true)]
async fn random_cancellations_leave_no_sequence_behind() {
    let sim = simulator(|c| c.engine.max_num_seqs = 16);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut calls = Vec::new();
    for _ in 0..2_000 {
        let (sim, patience) = (sim.clone(), Duration::from_millis(rng.u64(0..3_000)));
        calls.push(tokio::spawn(async move {
            let call = async { text(sim.respond(chat(20)).await.unwrap()).await };
            tokio::time::timeout(patience, call).await.is_ok()
        }));
        if rng.u8(0..4) == 0 {
            tokio::time::sleep(Duration::from_millis(rng.u64(0..200))).await;
        }
    }
    let mut whole = 0;
    for call in calls {
        whole += u64::from(call.await.unwrap());
    }
    let stats = sim.stats();
    assert_eq!((stats.in_flight, stats.running, stats.waiting), (0, 0, 0));
    let outcomes = &stats.tenants["t"].outcomes;
    assert_eq!(outcomes[&AttemptEnd::Completed], whole);
    assert_eq!(outcomes.values().sum::<u64>(), 2_000);
    assert!(whole > 0 && whole < 2_000);
}
