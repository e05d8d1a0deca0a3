//! Tests of every fault, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::json;
use support::{chat, events, get, post, simulator, text, value};
use tidegate_sim::faults::{
    Outage, OutageMode, RateLimitWindow, SlowStart, Stall, StreamCut, TokenCounting, TokenRate,
};
use tidegate_sim::{AttemptEnd, BodyError, ConnectionError, Faults, SimBody, Simulator};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, advance, sleep};

fn with(faults: Faults) -> Simulator {
    simulator(|c| c.faults = faults)
}

async fn status(sim: &Simulator) -> u16 {
    sim.respond(chat(1)).await.unwrap().status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn rate_limit_window_rejects_all_calls() {
    let window = |retry_after: Option<&str>| RateLimitWindow {
        from_s: 1.0,
        until_s: 4.0,
        retry_after: retry_after.map(str::to_owned),
    };
    let sim = with(Faults { rate_limit_windows: vec![window(None)], ..Faults::default() });
    assert_eq!(status(&sim).await, 200);
    advance(Duration::from_millis(1_500)).await;
    let refused = sim.respond(chat(1)).await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "3"));
    assert_eq!(value(refused).await["error"]["code"], "rate_limit_exceeded");
    advance(Duration::from_millis(2_500)).await;
    assert_eq!(status(&sim).await, 200);
    // Times count from when the faults were set.
    for (given, seen) in [(Some("-1"), Some("-1")), (Some("none"), None), (Some("soon"), Some("soon"))] {
        sim.set_faults(Faults { rate_limit_windows: vec![window(given)], ..Faults::default() }).unwrap();
        advance(Duration::from_secs(2)).await;
        let refused = sim.respond(chat(1)).await.unwrap();
        assert_eq!(refused.headers().get("retry-after").map(|v| v.to_str().unwrap()), seen);
    }
}

#[tokio::test(start_paused = true)]
async fn concurrency_limit_rejects_calls_above_it() {
    let sim = with(Faults { concurrency_limit: Some(2), ..Faults::default() });
    let (first, second) = (sim.respond(chat(5)).await.unwrap(), sim.respond(chat(5)).await.unwrap());
    assert_eq!(status(&sim).await, 429);
    drop(first);
    assert_eq!(status(&sim).await, 200);
    drop(second);
    assert_eq!(sim.stats().peak_in_flight, 3, "a refused attempt is in flight while it is refused");
    assert_eq!(sim.stats().tenants["t"].statuses[&429], 1);
}

#[tokio::test(start_paused = true)]
async fn full_queue_answers_with_a_status_or_an_error_event() {
    let sim = simulator(|c| {
        c.engine.max_num_seqs = 1;
        c.faults.max_num_queued_reqs = Some(1);
    });
    let held = [sim.respond(chat(5)).await.unwrap(), sim.respond(chat(5)).await.unwrap()];
    let streamed = sim.respond(chat(5)).await.unwrap();
    assert_eq!(streamed.status(), 200);
    let events = events(&text(streamed).await);
    assert_eq!((&events[0]["error"]["code"], &events[1]), (&json!(503), &json!("[DONE]")));
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "hi"}]});
    let whole = sim.respond(post("/v1/chat/completions", &body)).await.unwrap();
    assert_eq!((whole.status().as_u16(), whole.headers().get("retry-after")), (503, None));
    drop(held);
    assert_eq!(sim.stats().tenants["t"].outcomes[&AttemptEnd::Rejected], 2);
}

#[tokio::test(start_paused = true)]
async fn stalls_delay_headers_and_streams() {
    let pause = Some(Stall { seconds: Some(30.0), after_tokens: 2, probability: 1.0 });
    let whole = text(with(Faults::default()).respond(chat(4)).await.unwrap()).await;
    let sim = with(Faults { stall_before_headers: pause, ..Faults::default() });
    let start = Instant::now();
    let response = sim.respond(chat(4)).await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(30));
    assert_eq!(events(&text(response).await).len(), events(&whole).len());

    let sim = with(Faults { stall_mid_stream: pause, ..Faults::default() });
    let mut body = sim.respond(chat(4)).await.unwrap().into_body();
    let mut gaps = Vec::new();
    let mut last = Instant::now();
    while let Some(frame) = body.frame().await {
        frame.unwrap();
        gaps.push(last.elapsed().as_secs());
        last = Instant::now();
    }
    assert_eq!(gaps, [0, 0, 30, 0, 0], "the engine goes on meanwhile");

    let forever = Some(Stall { seconds: None, after_tokens: 1, probability: 1.0 });
    let sim = with(Faults { stall_mid_stream: forever, ..Faults::default() });
    let call = async { text(sim.respond(chat(4)).await.unwrap()).await };
    assert!(tokio::time::timeout(Duration::from_secs(86_400), call).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn streams_are_reset_or_truncated() {
    let cut = Some(StreamCut { after_tokens: 2, probability: 1.0 });
    let sim = with(Faults { reset_mid_stream: cut, ..Faults::default() });
    let mut body = sim.respond(chat(9)).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok() && body.frame().await.unwrap().is_ok());
    assert_eq!(body.frame().await.unwrap().unwrap_err(), BodyError::Reset);
    assert!(body.frame().await.is_none());

    sim.set_faults(Faults { truncate_stream: cut, ..Faults::default() }).unwrap();
    let sse = text(sim.respond(chat(9)).await.unwrap()).await;
    assert!(events(&sse).len() == 3 && !sse.contains("[DONE]") && !sse.contains("finish_reason\":\"length"));
    let shorter = text(sim.respond(chat(1)).await.unwrap()).await;
    assert!(shorter.contains("[DONE]"));
    drop(body);
    let outcomes = &sim.stats().tenants["t"].outcomes;
    assert_eq!(
        [AttemptEnd::Reset, AttemptEnd::Truncated, AttemptEnd::Completed].map(|o| outcomes[&o]),
        [1, 1, 1]
    );
    assert_eq!(sim.stats().running, 0);
}

#[tokio::test(start_paused = true)]
async fn slow_start_lengthens_early_steps() {
    let sim =
        with(Faults { slow_start: Some(SlowStart { over_s: 100.0, factor: 11.0 }), ..Faults::default() });
    let first_token = async || {
        let start = Instant::now();
        let mut body = sim.respond(chat(2)).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        start.elapsed().as_secs_f64()
    };
    let step = sim.config().engine.step.time(1, 2).as_secs_f64();
    assert!((first_token().await / step - 11.0).abs() < 0.2);
    sleep(Duration::from_secs(50)).await;
    assert!((first_token().await / step - 6.0).abs() < 0.2);
    sleep(Duration::from_secs(50)).await;
    assert!((first_token().await / step - 1.0).abs() < 0.1);
}

#[tokio::test(start_paused = true)]
async fn token_rate_charges_the_maximum_on_arrival() {
    let rate =
        TokenRate { tokens_per_minute: Some(600.0), requests_per_minute: Some(60.0), ..TokenRate::default() };
    let sim = with(Faults { token_rate: Some(rate), ..Faults::default() });
    let call = |tokens: u32| {
        let mut request = chat(tokens);
        request.headers_mut().insert("x-sim-prompt-tokens", "100".parse().unwrap());
        request
    };
    let first = sim.respond(call(400)).await.unwrap();
    let header = |r: &http::Response<_>, name: &str| r.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header(&first, "x-ratelimit-limit-tokens"), "600");
    assert_eq!(header(&first, "x-ratelimit-remaining-tokens"), "100");
    assert_eq!(header(&first, "x-ratelimit-reset-tokens"), "50s");
    assert_eq!(header(&first, "x-ratelimit-remaining-requests"), "59");
    drop(first);
    let refused = sim.respond(call(100)).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(
        (header(&refused, "retry-after"), header(&refused, "retry-after-ms")),
        ("10".into(), "10000".into())
    );
    assert_eq!(header(&refused, "x-ratelimit-remaining-requests"), "59", "a refused call costs nothing");
    advance(Duration::from_secs(10)).await;
    assert_eq!(sim.respond(call(100)).await.unwrap().status(), 200, "who waits as told gets in");
}

#[tokio::test(start_paused = true)]
async fn rate_headers_are_those_of_the_provider() {
    let openai = [
        "x-ratelimit-limit-requests",
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-requests",
        "x-ratelimit-reset-tokens",
    ];
    let anthropic = [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ];
    let rate =
        TokenRate { tokens_per_minute: Some(600.0), requests_per_minute: Some(60.0), ..TokenRate::default() };
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "sim", "stream": true, "max_tokens": 599, "messages": messages});
    let accepted: &[&str] = &[];
    for (path, rates, rejected) in [
        ("/v1/chat/completions", openai, &["retry-after", "retry-after-ms"][..]),
        ("/v1/messages", anthropic, &["retry-after"][..]),
    ] {
        let sim = with(Faults { token_rate: Some(rate), ..Faults::default() });
        for delays in [accepted, rejected] {
            let response = sim.respond(post(path, &body)).await.unwrap();
            let mut names: Vec<_> = response.headers().keys().map(|name| name.as_str()).collect();
            names.retain(|name| name.contains("ratelimit") || name.starts_with("retry-after"));
            names.sort_unstable();
            let mut expected = [&rates[..], delays].concat();
            expected.sort_unstable();
            assert_eq!(names, expected);
            if path == "/v1/messages" {
                let reset = response.headers()["anthropic-ratelimit-tokens-reset"].to_str().unwrap();
                assert!(reset.len() == 20 && reset.ends_with('Z'), "{reset}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn gemini_gets_the_retry_delay_in_the_body() {
    let body = json!({"contents": [{"parts": [{"text": "x"}]}], "generationConfig": {"maxOutputTokens": 3}});
    let call = || post("/v1beta/models/sim:streamGenerateContent?alt=sse", &body);
    let window = RateLimitWindow { from_s: 0.0, until_s: 3.5, retry_after: None };
    let sim = with(Faults { rate_limit_windows: vec![window], ..Faults::default() });
    let refused = sim.respond(call()).await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers().get("retry-after")), (429, None));
    let error = value(refused).await["error"].take();
    assert_eq!(error["status"], "RESOURCE_EXHAUSTED");
    assert_eq!(error["details"][0]["retryDelay"], "3.5s");

    let cut = StreamCut { after_tokens: 2, ..StreamCut::default() };
    sim.set_faults(Faults { truncate_stream: Some(cut), ..Faults::default() }).unwrap();
    let events = events(&text(sim.respond(call()).await.unwrap()).await);
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event["candidates"][0].get("finishReason").is_none()));

    let rate = TokenRate { tokens_per_minute: Some(60.0), burst_s: 4.0, ..TokenRate::default() };
    sim.set_faults(Faults { token_rate: Some(rate), ..Faults::default() }).unwrap();
    assert!(sim.respond(call()).await.unwrap().headers().get("x-ratelimit-limit-tokens").is_none());
    let refused = value(sim.respond(call()).await.unwrap()).await;
    assert_eq!(refused["error"]["details"][0]["retryDelay"], "4s");
}

#[tokio::test(start_paused = true)]
async fn token_rate_charges_generated_tokens_at_the_end() {
    let rate = TokenRate {
        tokens_per_minute: Some(600.0),
        burst_s: 1.0,
        counts: TokenCounting::Actual,
        ..TokenRate::default()
    };
    let sim = with(Faults { token_rate: Some(rate), ..Faults::default() });
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50});
    // 1 token for the prompt now, 50 at the end: a debt of 40.
    assert_eq!(sim.respond(post("/v1/chat/completions", &body)).await.unwrap().status(), 200);
    let refused = sim.respond(post("/v1/chat/completions", &body)).await.unwrap();
    assert_eq!(refused.status(), 429);
    let wait: u64 = refused.headers()["retry-after-ms"].to_str().unwrap().parse().unwrap();
    assert!((4_000..4_200).contains(&wait), "{wait}");
}

#[tokio::test(start_paused = true)]
async fn outages_reject_or_refuse_calls() {
    let outage = |mode| vec![Outage { from_s: 0.0, until_s: 60.0, mode }];
    let sim = with(Faults { outages: outage(OutageMode::Refuse), ..Faults::default() });
    assert_eq!(sim.respond(chat(1)).await.err(), Some(ConnectionError::Refused));
    assert_eq!(sim.respond(get("/health")).await.err(), Some(ConnectionError::Refused));
    assert_eq!(sim.respond(get("/sim/stats")).await.unwrap().status(), 200);
    assert_eq!(sim.stats().tenants["t"].outcomes[&AttemptEnd::Refused], 1);
    advance(Duration::from_secs(60)).await;
    assert_eq!(status(&sim).await, 200);
    sim.set_faults(Faults { outages: outage(OutageMode::Unavailable), ..Faults::default() }).unwrap();
    assert_eq!(status(&sim).await, 503);
}

fn outage(from_s: f64, mode: OutageMode) -> Faults {
    Faults { outages: vec![Outage { from_s, until_s: 60.0, mode }], ..Faults::default() }
}

fn chat_request() -> Request<Bytes> {
    let body = json!({"model": "sim", "max_tokens": 20, "messages": [{"role": "user", "content": "hi"}]});
    post("/v1/chat/completions", &body)
}

/// Sends a streaming call, reads two frames of its body, and returns the rest of the body.
async fn start_stream(sim: &Simulator) -> SimBody {
    let mut body = sim.respond(chat(20)).await.unwrap().into_body();
    for _ in 0..2 {
        body.frame().await.unwrap().unwrap();
    }
    body
}

async fn ends_within_an_hour<T>(what: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_secs(3_600), what).await.ok()
}

#[tokio::test(start_paused = true)]
async fn hang_outage_accepts_requests_without_answering() {
    let sim = with(Faults::default());
    let mut open = start_stream(&sim).await;
    sim.set_faults(outage(0.0, OutageMode::Hang)).unwrap();
    let (health, call) = (sim.respond(get("/health")), sim.respond(chat_request()));
    let (health, call, open) = tokio::join!(
        ends_within_an_hour(health),
        ends_within_an_hour(call),
        ends_within_an_hour(async { while open.frame().await.is_some_and(|frame| frame.is_ok()) {} })
    );
    assert!(health.is_none() && call.is_none() && open.is_none(), "for good, though the outage is over");
    assert_eq!(status(&sim).await, 200);
    assert_eq!((sim.stats().in_flight, sim.stats().running), (1, 0), "only the open stream is held");
}

#[tokio::test(start_paused = true)]
async fn dead_engine_outage_answers_with_errors() {
    let sim = with(Faults::default());
    sim.set_faults(outage(0.2, OutageMode::Dead)).unwrap();
    let open = sim.respond(chat(20)).await.unwrap();
    let (open, whole) = tokio::join!(text(open), sim.respond(chat_request()));
    let events_seen = events(&open);
    assert_eq!(
        events_seen[events_seen.len() - 2]["error"]["code"],
        500,
        "after some tokens, under status 200: {open}"
    );
    assert_eq!(whole.unwrap().status(), 500);
    assert_eq!(status(&sim).await, 500);
    assert_eq!(sim.respond(get("/health")).await.unwrap().status(), 503);
    assert_eq!(sim.respond(get("/metrics")).await.unwrap().status(), 500);
    assert_eq!((sim.stats().in_flight, sim.stats().running), (0, 0));
    advance(Duration::from_secs(60)).await;
    assert_eq!(
        (status(&sim).await, sim.respond(get("/health")).await.unwrap().status().as_u16()),
        (200, 200)
    );
}

#[tokio::test(start_paused = true)]
async fn kill_outage_breaks_open_streams() {
    let sim = with(Faults::default());
    sim.set_faults(outage(0.2, OutageMode::Kill)).unwrap();
    let open = sim.respond(chat(20)).await.unwrap().into_body().collect();
    let (open, whole) = tokio::join!(open, sim.respond(chat_request()));
    assert!(open.is_err(), "the stream breaks off");
    assert_eq!(
        (whole.err(), sim.respond(get("/health")).await.err()),
        (Some(ConnectionError::Broken), Some(ConnectionError::Refused))
    );
    assert_eq!((sim.stats().in_flight, sim.stats().running), (0, 0));
    let metrics = sim.metrics();
    for series in ["prompt_tokens_total", "time_to_first_token_seconds_count"] {
        let restarted = format!("vllm:{series}{{engine=\"0\",model_name=\"sim\"}} 0\n");
        assert!(metrics.contains(&restarted), "{metrics}");
    }
    advance(Duration::from_secs(60)).await;
    assert_eq!(status(&sim).await, 200);
}

#[tokio::test(start_paused = true)]
async fn killed_calls_end_in_order_of_arrival() {
    let sim = with(Faults::default());
    let (ended, mut order) = mpsc::unbounded_channel();
    for number in 0..32 {
        let (sim, ended) = (sim.clone(), ended.clone());
        tokio::spawn(async move {
            assert!(sim.respond(chat_request()).await.is_err());
            ended.send(number).unwrap();
        });
    }
    drop(ended);
    sleep(Duration::from_millis(100)).await;
    sim.set_faults(outage(0.0, OutageMode::Kill)).unwrap();
    for number in 0..32 {
        assert_eq!(order.recv().await, Some(number));
    }
}

#[tokio::test(start_paused = true)]
async fn error_500_share_follows_probability_and_seed() {
    let draw = async |seed| {
        let sim = with(Faults { seed, error_500: 0.3, ..Faults::default() });
        let mut seen = Vec::new();
        for _ in 0..400 {
            seen.push(status(&sim).await);
        }
        seen
    };
    let first = draw(1).await;
    let share = first.iter().filter(|s| **s == 500).count();
    // 120 expected, standard deviation 9.
    assert!((80..160).contains(&share), "{share}");
    assert_eq!(first, draw(1).await);
    assert_ne!(first, draw(2).await);
}

#[tokio::test(start_paused = true)]
async fn max_num_seqs_can_change_at_run_time() {
    let sim = simulator(|c| c.workers = 1);
    sim.set_max_num_seqs(1);
    let _held = [sim.respond(chat(50)).await.unwrap(), sim.respond(chat(50)).await.unwrap()];
    sleep(Duration::from_millis(500)).await;
    assert_eq!((sim.stats().running, sim.stats().waiting), (1, 1));
    sim.set_max_num_seqs(2);
    sleep(Duration::from_millis(500)).await;
    assert_eq!((sim.stats().running, sim.stats().waiting), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn faults_are_set_over_http() {
    let sim = simulator(|_| ());
    let set = |body| post("/sim/faults", &body);
    assert_eq!(sim.respond(set(json!({"error_500": 1.0}))).await.unwrap().status(), 200);
    assert_eq!(status(&sim).await, 500);
    for bad in [
        json!({"eror_500": 1.0}),
        json!({"error_500": 1.5}),
        json!({"slow_start": {"over_s": -1, "factor": 2}}),
    ] {
        let response = sim.respond(set(bad.clone())).await.unwrap();
        assert_eq!(response.status(), 400, "{bad}");
        let key = if bad.get("slow_start").is_some() { "slow_start.over_s" } else { "or_500" };
        assert!(text(response).await.contains(key));
    }
    assert_eq!(status(&sim).await, 500, "bad faults change nothing");
    assert_eq!(value(sim.respond(get("/sim/faults")).await.unwrap()).await["error_500"], 1.0);
    let stats = value(sim.respond(get("/sim/stats")).await.unwrap()).await;
    assert_eq!(stats["tenants"]["t"]["outcomes"], json!({"rejected": 2}));
    assert_eq!(stats["tenants"]["t"]["statuses"], json!({"500": 2}));
    assert_eq!(stats["attempts"][0]["status"], 500);
    sim.set_faults(Faults::default()).unwrap();
    let held = sim.respond(chat(3)).await.unwrap();
    sim.respond(post("/sim/reset", &json!({}))).await.unwrap();
    drop(held);
    let stats = sim.stats();
    assert_eq!((stats.total_attempts, stats.in_flight, stats.attempts.len()), (0, 0, 0));
    assert!(stats.tenants["t"].outcomes.is_empty(), "what arrived before the reset is not counted after it");
}
