//! Tests of the faults that depend on load, as callers see them in process and over HTTP.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use support::{chat, post, simulator, value};
use tidegate_sim::engine::StepCost;
use tidegate_sim::faults::{Drift, LimitRamp, LoadGrowth, Overload, TokenRate};
use tidegate_sim::{Faults, Simulator, serve};
use tokio::net::TcpListener;
use tokio::time::{Duration, Instant, advance};

fn with(faults: Faults) -> Simulator {
    simulator(|c| c.faults = faults)
}

/// Sends `calls` calls, and keeps each response open until all are sent. Returns how many of them
/// were answered with 200 and not rejected.
async fn taken(sim: &Simulator, calls: usize) -> usize {
    let mut held = Vec::new();
    for _ in 0..calls {
        held.push(sim.respond(chat(50)).await.unwrap());
    }
    held.iter().filter(|answer| answer.status() == 200).count()
}

#[tokio::test(start_paused = true)]
async fn concurrency_limits_change_over_time() {
    let ramp = Some(LimitRamp { from: 2, over_s: 10.0 });
    let sim = with(Faults { concurrency_limit: Some(12), limit_ramp: ramp, ..Faults::default() });
    assert_eq!(taken(&sim, 20).await, 2);
    advance(Duration::from_secs(5)).await;
    assert_eq!(taken(&sim, 20).await, 7);
    advance(Duration::from_secs(5)).await;
    assert_eq!(taken(&sim, 20).await, 12);

    let growth = Some(LoadGrowth { at_once: 4, per_s: 1.0 });
    sim.set_faults(Faults { load_growth: growth, ..Faults::default() }).unwrap();
    assert_eq!(taken(&sim, 20).await, 4);

    let overload = Overload { above: 8, for_s: 30.0, factor: 1.0, limit: Some(3) };
    sim.set_faults(Faults { overload: Some(overload), ..Faults::default() }).unwrap();
    assert_eq!((taken(&sim, 8).await, taken(&sim, 9).await, taken(&sim, 8).await), (8, 8, 3));
    advance(Duration::from_secs(30)).await;
    assert_eq!(taken(&sim, 8).await, 8);

    let drift = Drift { after_s: None, after_calls: Some(6), factor: 1.0, limit: Some(2) };
    sim.set_faults(Faults { concurrency_limit: Some(6), drift: Some(drift), ..Faults::default() }).unwrap();
    assert_eq!((taken(&sim, 9).await, taken(&sim, 9).await), (6, 2));
}

#[tokio::test(start_paused = true)]
async fn step_times_change_with_load() {
    let drift = Drift { after_s: Some(100.0), after_calls: None, factor: 2.0, limit: None };
    let overload = Overload { above: 4, for_s: 60.0, factor: 5.0, limit: None };
    let sim = simulator(|c| {
        c.engine.step = StepCost {
            base_ms: 100.0,
            per_prompt_token_ms: 0.0,
            per_sequence_ms: 0.0,
            ..StepCost::default()
        };
        c.faults = Faults { drift: Some(drift), overload: Some(overload), ..Faults::default() };
    });
    let took = async || {
        let start = Instant::now();
        sim.respond(chat(10)).await.unwrap().into_body().collect().await.unwrap();
        start.elapsed().as_millis()
    };
    assert_eq!(took().await, 1_000);
    assert_eq!(taken(&sim, 5).await, 5);
    assert!((5_000..5_500).contains(&took().await), "behind the step in which the five were dropped");
    advance(Duration::from_secs(100)).await;
    assert_eq!(took().await, 2_000);
}

#[tokio::test(start_paused = true)]
async fn rejections_contain_the_configured_details() {
    let limited = Faults { concurrency_limit: Some(0), ..Faults::default() };
    let sim = with(limited.clone());
    let refused = sim.respond(chat(1)).await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers().get("retry-after")), (429, None));
    assert_eq!(value(refused).await["error"]["code"], "concurrency_limit_exceeded");

    sim.set_faults(Faults { limits_retry_after_s: Some(2.0), hide_limit_name: true, ..limited }).unwrap();
    let refused = sim.respond(chat(1)).await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "2");
    assert_eq!(value(refused).await["error"]["message"], "Too many requests.");

    let rate = TokenRate {
        requests_per_minute: Some(1.0),
        headers: false,
        retry_after: false,
        ..TokenRate::default()
    };
    sim.set_faults(Faults { token_rate: Some(rate), hide_limit_name: true, ..Faults::default() }).unwrap();
    let rates =
        |answer: &http::Response<_>| answer.headers().keys().any(|name| name.as_str().contains("rate"));
    assert!(!rates(&sim.respond(chat(1)).await.unwrap()));
    let refused = sim.respond(chat(1)).await.unwrap();
    assert!(refused.status() == 429 && !rates(&refused));
    assert!(["retry-after", "retry-after-ms"].iter().all(|name| !refused.headers().contains_key(*name)));
    assert_eq!(value(refused).await["error"]["message"], "Too many requests.");
}

#[tokio::test(start_paused = true)]
async fn invalid_load_faults_are_rejected_by_key() {
    let sim = with(Faults::default());
    for (bad, key) in [
        (json!({"limit_ramp": {"from": 2, "over_s": 1}}), "limit_ramp.from"),
        (json!({"load_growth": {"at_once": 0, "per_s": 1}}), "load_growth.at_once"),
        (json!({"overload": {"above": 1, "for_s": 1, "factor": 0.5}}), "overload.factor"),
        (json!({"drift": {"factor": 2}}), "drift"),
        (json!({"token_rate": {"tokens_per_minute": 0}}), "token_rate.tokens_per_minute"),
    ] {
        let response = sim.respond(post("/sim/faults", &bad)).await.unwrap();
        assert_eq!(response.status(), 400);
        assert!(support::text(response).await.contains(key), "{bad}");
    }
}

/// A client that keeps exactly as many calls in flight as the limit allows is never rejected,
/// because the server counts the end of a call before the client can see it.
#[tokio::test(start_paused = true)]
async fn client_at_the_limit_is_never_rejected_in_process() {
    let sim = with(Faults { concurrency_limit: Some(5), ..Faults::default() });
    let call = async |stream: bool| {
        let body = json!({"model": "sim", "stream": stream, "max_tokens": 3, "messages": [{"role": "user", "content": "hi"}]});
        let answer = sim.respond(post("/v1/chat/completions", &body)).await.unwrap();
        let status = answer.status();
        answer.into_body().collect().await.unwrap();
        status
    };
    let worker = async |number: usize| {
        for turn in 0..40 {
            assert_eq!(call((number + turn).is_multiple_of(2)).await, 200);
        }
    };
    tokio::join!(worker(0), worker(1), worker(2), worker(3), worker(4));
    assert_eq!(sim.stats().peak_in_flight, 5);
}

/// Like [`client_at_the_limit_is_never_rejected_in_process`], but over sockets and with several
/// threads. In addition, a rejected call no longer counts as in flight when the client sees its
/// rejection.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn client_at_the_limit_is_never_rejected_over_http() {
    let sim = simulator(|c| {
        c.time_scale = 1_000.0;
        c.faults.concurrency_limit = Some(5);
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/chat/completions", listener.local_addr().unwrap());
    let server = tokio::spawn(serve(listener, sim.clone()));
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let refused = Arc::new(AtomicUsize::new(0));
    let workers = (0..5).map(|number| {
        let (client, url, refused) = (client.clone(), url.clone(), Arc::clone(&refused));
        tokio::spawn(async move {
            for turn in 0..100 {
                let stream = (number + turn) % 2 == 0;
                let body = json!({"model": "sim", "stream": stream, "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]});
                let request = Request::post(&url).body(Full::from(body.to_string())).unwrap();
                let answer = client.request(request).await.unwrap();
                refused.fetch_add(usize::from(answer.status() != 200), Ordering::Relaxed);
                answer.into_body().collect().await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert_eq!(refused.load(Ordering::Relaxed), 0);
    server.abort();
}
