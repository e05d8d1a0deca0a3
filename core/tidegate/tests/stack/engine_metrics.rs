//! Tests of the metrics that the gate reads from the engine behind a single target.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::header::AUTHORIZATION;
use http::{Request, Response};
use parking_lot::Mutex;
use tidegate::config::{EngineMetricsPolicy, Target};
use tidegate::{Gate, ResponseBody, Transport};

use crate::support::*;

/// The answers of vLLM, which identify it.
const VLLM_ANSWER: &str = r#"{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],"system_fingerprint":"vllm-0.32.0","usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
const VLLM_TOKEN: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}],\"prompt_token_ids\":null}\n\n";

/// What an upstream received and returns.
#[derive(Default)]
struct Engine {
    /// The URL and the `authorization` of each request for metrics.
    polls: Mutex<Vec<(String, bool)>>,
    /// The calls in progress, of which at most 8 are in the batch.
    calls: AtomicUsize,
    has_metrics: AtomicBool,
}

impl Engine {
    fn polls(&self) -> usize {
        self.polls.lock().len()
    }

    fn metrics(&self) -> String {
        let calls = self.calls.load(Ordering::SeqCst);
        let (running, waiting) = (calls.min(8), calls.saturating_sub(8));
        format!(
            "vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\nvllm:kv_cache_usage_perc 0.5\n\
             vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"100\"}} 1\n"
        )
    }
}

/// Returns an engine, and its transport. Calls are answered with `answer`, after 1 s.
fn engine(answer: &'static str) -> (Transport, Arc<Engine>) {
    let engine = Arc::new(Engine::default());
    engine.has_metrics.store(true, Ordering::SeqCst);
    let shared = engine.clone();
    let (transport, _) = upstream(move |_, request, exchange| {
        let engine = shared.clone();
        async move {
            if request.uri().path() != "/metrics" {
                engine.calls.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(SECOND).await;
                engine.calls.fetch_sub(1, Ordering::SeqCst);
                return Ok(
                    if request.body().bytes().is_some_and(|body| body.ends_with(b"\"stream\": true}")) {
                        sse(exchange, [VLLM_TOKEN, TOKEN, STOP, DONE].map(|text| (SECOND, Some(text))).into())
                    } else {
                        json(exchange, answer)
                    },
                );
            }
            let has_key = request.headers().contains_key(AUTHORIZATION);
            engine.polls.lock().push((request.uri().to_string(), has_key));
            match engine.has_metrics.load(Ordering::SeqCst) {
                true => Ok(Response::new(ResponseBody::full(engine.metrics()))),
                false => Ok(status(404, &[], "{}")),
            }
        }
    });
    (transport, engine)
}

fn named(url: &str) -> Target {
    Target::new("llm").url(url)
}

fn over(transport: Transport, target: Target) -> Gate {
    Gate::builder().target(target).build_over(transport).unwrap()
}

/// Makes a call with a credential to `host`, and reads its answer.
async fn call(gate: &Gate, host: &str) {
    let body = r#"{"model": "m", "messages": [{"role": "user", "content": "hi"}]}"#;
    let request = Request::post(format!("{host}/v1/chat/completions")).header(AUTHORIZATION, "Bearer secret");
    read(gate.client().call(request.body(body.into()).unwrap()).await.unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn private_server_named_by_url_is_polled_without_credentials_while_calls_are_made() {
    let (transport, engine) = engine(ANSWER);
    let gate = over(transport, named("http://10.0.0.7:8000/v1"));
    assert_eq!(engine.polls(), 0);
    call(&gate, "http://10.0.0.7:8000").await;
    assert!(engine.polls() >= 1);
    assert_eq!(engine.polls.lock()[0], ("http://10.0.0.7:8000/metrics".to_owned(), false));
    let kv = gate.snapshot().targets["llm"].kv.clone().expect("a size");
    assert_eq!(kv.capacity, 1_600);
    tokio::time::sleep(30 * SECOND).await;
    let after = engine.polls();
    assert!((8..=16).contains(&after), "{after} polls in 10 s");
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(engine.polls(), after, "no call is made");
    call(&gate, "http://10.0.0.7:8000").await;
    assert!(engine.polls() > after);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn other_servers_are_polled_only_if_their_answers_are_those_of_vllm() {
    let private = "http://vllm:8000";
    let public = "https://llm.example.com";
    for (host, target, answer, is_polled) in [
        (private, Target::new("other").url("http://elsewhere"), ANSWER, false),
        (private, Target::new("other").url("http://elsewhere"), VLLM_ANSWER, true),
        (public, Target::new("other").url("http://elsewhere"), VLLM_ANSWER, false),
        (public, named(public), ANSWER, false),
        (public, named(public), VLLM_ANSWER, true),
        (private, named(private).metrics(EngineMetricsPolicy::Off), VLLM_ANSWER, false),
    ] {
        let (transport, engine) = engine(answer);
        let gate = over(transport, target);
        call(&gate, host).await;
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(engine.polls() > 0, is_polled, "{host} {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn stream_identifies_vllm_with_its_first_event() {
    let (transport, engine) = engine(ANSWER);
    let gate = over(transport, Target::new("other").url("http://elsewhere"));
    let request = Request::post("http://vllm/v1/chat/completions");
    let body = r#"{"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true}"#;
    let response = gate.client().call(request.body(body.into()).unwrap()).await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(engine.polls(), 1, "before the end of the stream");
    read(response).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn server_without_metrics_is_asked_three_times() {
    let (transport, engine) = engine(ANSWER);
    engine.has_metrics.store(false, Ordering::SeqCst);
    let gate = over(transport, named("http://llm"));
    for _ in 0..60 {
        call(&gate, "http://llm").await;
    }
    assert_eq!(engine.polls(), 3);
}

#[tokio::test(start_paused = true)]
async fn target_with_several_servers_is_not_polled() {
    let (transport, engine) = engine(ANSWER);
    let gate = over(transport, Target::new("llm").url("http://one").url("http://two"));
    call(&gate, "http://one").await;
    call(&gate, "http://two").await;
    let before = engine.polls();
    for _ in 0..30 {
        call(&gate, "http://one").await;
    }
    assert!(engine.polls() <= before + 1, "{} polls after {before}", engine.polls());
}

#[tokio::test(start_paused = true)]
async fn targets_with_the_same_server_share_its_polls() {
    let (transport, engine) = engine(ANSWER);
    let target = |name: &str| Target::new(name).url(format!("http://llm/{name}"));
    let gate = Gate::builder().target(target("a")).target(target("b")).build_over(transport).unwrap();
    for _ in 0..10 {
        call(&gate, "http://llm/a").await;
        call(&gate, "http://llm/b").await;
    }
    assert!((10..=30).contains(&engine.polls()), "{} polls in 20 s", engine.polls());
    let snapshot = gate.snapshot();
    assert!(["a", "b"].iter().all(|name| snapshot.targets[*name].kv.is_some()));
}

#[tokio::test(start_paused = true)]
async fn queue_of_the_engine_bounds_the_limit() {
    let (transport, _) = engine(ANSWER);
    let gate = over(transport, named("http://llm").kv_tokens(1_000_000));
    let calls = (0..600).map(|_| call(&gate, "http://llm"));
    let limits = async {
        tokio::time::sleep(30 * SECOND).await;
        gate.snapshot().targets["llm"].adaptive.clone().expect("a limit")
    };
    let (_, limit) = tokio::join!(futures_util::future::join_all(calls), limits);
    // Of the calls that are more than the batch, one may wait in the engine.
    assert!(
        (8..=10).contains(&limit.limit) && limit.decisions.iter().any(|change| change.cause == "queued"),
        "{limit:?}"
    );
}
