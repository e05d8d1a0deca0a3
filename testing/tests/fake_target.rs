//! Tests of the fake target with a whole gate on top of it, on the paused clock.
#![allow(clippy::expect_used, reason = "a test fails by panicking, its helpers too")]

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidegate::config::{Pool, Target, Tokenizer};
use tidegate::{Error, ErrorKind, Gate, RequestBody, ResponseBody};
use tidegate_testing::{AttemptState, FakeTarget, Script};
use tokio::time::{Duration, Instant};

fn target(script: Value) -> FakeTarget {
    FakeTarget::new(serde_json::from_value(script).expect("a script"))
}

fn gate(target: &FakeTarget) -> Gate {
    Gate::builder().target(Target::new("all").cap(4)).build_over(target.transport()).expect("a gate")
}

fn request(path: &str, body: Value) -> Request<RequestBody> {
    let url = format!("https://models.example.com{path}?key=secret");
    let mut request = Request::post(url);
    for name in ["x-api-key", "ocp-apim-subscription-key", "x-amz-security-token"] {
        request = request.header(name, "secret");
    }
    request.body(body.to_string().into()).expect("a request")
}

async fn ask(gate: &Gate, stream: bool) -> Result<Response<ResponseBody>, Error> {
    gate.client().call(request("/v1/chat/completions", json!({"model": "small", "stream": stream}))).await
}

async fn text(response: Response<ResponseBody>) -> Result<String, Error> {
    let bytes = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test(start_paused = true)]
async fn retries_follow_the_script_and_are_recorded() {
    let target = target(json!({"routes": [{
        "answers": [{"status": {"status": 429, "retry_after": 90, "times": 2}}, {"overloaded": {}}],
        "otherwise": {"reply": {"text": "the tide"}},
    }]}));
    let response = ask(&gate(&target), false).await.expect("an answer");
    assert!(text(response).await.expect("a body").contains("the tide"));
    let attempts = target.attempts();
    let statuses: Vec<_> = attempts.iter().map(|attempt| attempt.status).collect();
    assert_eq!(statuses, [Some(429), Some(429), Some(503), Some(200)]);
    assert_eq!(attempts.iter().map(|attempt| attempt.attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(attempts.iter().all(|attempt| attempt.call == 0));
    assert!(attempts[1].arrived >= 90.0 && attempts[2].arrived >= 180.0);
}

#[tokio::test(start_paused = true)]
async fn stream_timing_is_independent_of_the_reader() {
    let target = target(
        json!({"routes": [{"otherwise": {"reply": {"chunks": ["a", "b", "c"], "after": 2, "every": 5}}}]}),
    );
    let start = Instant::now();
    let mut body = ask(&gate(&target), true).await.expect("an answer").into_body();
    assert_eq!(start.elapsed().as_secs(), 2, "the gate holds the head for the first event");
    tokio::time::sleep(Duration::from_secs(60)).await;
    while let Some(frame) = body.frame().await {
        frame.expect("a frame");
    }
    assert_eq!(start.elapsed().as_secs(), 62, "what was due meanwhile is there");
    assert_eq!(target.in_flight(), 0);
    assert_eq!(target.attempts()[0].outcome, AttemptState::Answered);
}

#[tokio::test(start_paused = true)]
async fn gate_classifies_every_failed_end() {
    let kinds = [
        ("truncate", ErrorKind::Truncated),
        ("break", ErrorKind::Transport),
        ("stall", ErrorKind::IdleTimeout),
    ];
    for (end, kind) in kinds {
        let target = target(json!({"routes": [{"otherwise": {"reply": {"chunks": ["half"], "end": end}}}]}));
        let gate = Gate::builder().target(Target::new("all").idle(Duration::from_secs(30)));
        let gate = gate.build_over(target.transport()).expect("a gate");
        let response = ask(&gate, true).await.expect("a head");
        assert_eq!(text(response).await.expect_err(end).kind(), kind);
        assert_eq!(target.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn stream_without_chunks_ends_after_its_delay() {
    let reply = json!({"end": "truncate", "end_after": 0, "after": 5});
    let target = target(json!({"routes": [{"otherwise": {"reply": reply}}]}));
    let request = request("/v1/chat/completions", json!({"model": "small", "stream": true}));
    let start = Instant::now();
    let response = tower::ServiceExt::oneshot(target.transport(), request).await.expect("a head");
    assert_eq!((text(response).await.expect("an end"), start.elapsed().as_secs()), (String::new(), 5));
    assert_eq!(target.attempts()[0].outcome, AttemptState::Answered);
}

#[tokio::test(start_paused = true)]
async fn whole_answer_that_stalls_at_once_has_a_head_only() {
    let reply = json!({"end": "stall", "end_after": 0});
    let target = target(json!({"routes": [{"otherwise": {"reply": reply}}]}));
    let request = request("/v1/chat/completions", json!({"model": "small"}));
    let response = tower::ServiceExt::oneshot(target.transport(), request).await.expect("a head");
    let first = tokio::time::timeout(Duration::from_secs(60), response.into_body().frame()).await;
    assert!(first.is_err(), "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn gate_accepts_the_streams_of_every_api() {
    let script = json!({"routes": [{"otherwise": {"reply": {
        "chunks": ["the ", "tide"], "tool_calls": [{"name": "search", "arguments": {"text": "moon"}}],
    }}}]});
    let streamed = json!({"model": "small", "stream": true});
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1beta/models/gemini:streamGenerateContent",
    ] {
        let target = target(script.clone());
        let response = gate(&target).client().call(request(path, streamed.clone())).await.expect(path);
        let text = text(response).await.expect(path);
        assert!(text.contains("the ") && text.contains("tide"), "{text}");
        assert_eq!(target.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn text_beside_tool_calls_is_sent_if_the_script_has_one() {
    for (given, sent) in [(Value::Null, Value::Null), (json!("ok"), json!("ok"))] {
        let reply = json!({"text": given, "tool_calls": [{"name": "search"}]});
        let target = target(json!({"routes": [{"otherwise": {"reply": reply}}]}));
        let answer = text(ask(&gate(&target), false).await.expect("an answer")).await.expect("a body");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["choices"][0]["message"]["content"], sent);
    }
}

#[tokio::test(start_paused = true)]
async fn stream_of_an_empty_answer_opens_and_closes() {
    let target = target(json!({"routes": [{"otherwise": {"reply": {"text": ""}}}]}));
    for (path, events) in [
        ("/v1/chat/completions", &[r#""role":"assistant""#, r#""finish_reason":"stop""#][..]),
        (
            "/v1/messages",
            &["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"],
        ),
        ("/v1/responses", &["response.created", "response.output_item.done", "response.completed"]),
    ] {
        let request = request(path, json!({"model": "small", "stream": true}));
        let response = gate(&target).client().call(request).await.expect(path);
        let text = text(response).await.expect(path);
        let mut rest = text.as_str();
        for event in events {
            rest = rest.split_once(event).expect(&text).1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_response_is_recorded_as_cancelled_at_once() {
    let target = target(json!({"routes": [{"otherwise": {"reply": {"after": 60}}}]}));
    let gate = gate(&target);
    let waited = tokio::time::timeout(Duration::from_secs(7), ask(&gate, false)).await;
    assert!(waited.is_err());
    assert_eq!(target.attempts()[0].outcome, AttemptState::Cancelled);
    assert_eq!(target.attempts()[0].ended, Some(7.0));
}

#[tokio::test(start_paused = true)]
async fn refused_connection_is_reported_as_such() {
    let target = target(json!({"routes": [{"answers": [{"refuse": {}}]}]}));
    let request = request("/v1/chat/completions", json!({"model": "small"}));
    let error = tower::ServiceExt::oneshot(target.transport(), request).await.expect_err("refused");
    assert!(error.is_connect_refused());
}

#[tokio::test(start_paused = true)]
async fn capacity_is_free_once_the_answer_has_ended() {
    let target = target(json!({"routes": [{"otherwise": {"reply": {}}, "capacity": 1}]}));
    let transport = target.transport();
    let send = async || {
        let request = request("/v1/chat/completions", json!({"model": "small", "stream": true}));
        tower::ServiceExt::oneshot(transport.clone(), request).await.expect("a head")
    };
    let first = send().await;
    assert_eq!(send().await.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(first);
    assert_eq!(send().await.status(), StatusCode::OK);
    assert_eq!(target.max_in_flight(), 2);
}

#[tokio::test(start_paused = true)]
async fn rate_applies_to_a_sliding_minute() {
    let target = target(json!({"routes": [{"otherwise": {"reply": {}}, "rate": 2}]}));
    let transport = target.transport();
    let send = async || {
        let request = request("/v1/messages", json!({"model": "claude"}));
        let head = tower::ServiceExt::oneshot(transport.clone(), request).await.expect("a head");
        head.headers().get("retry-after").map(|after| after.to_str().unwrap_or_default().to_owned())
    };
    assert_eq!(send().await, None);
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(send().await, None);
    assert_eq!(send().await.as_deref(), Some("40"));
    tokio::time::advance(Duration::from_secs(40)).await;
    assert_eq!(send().await, None);
    assert_eq!(send().await.as_deref(), Some("20"));
}

#[tokio::test(start_paused = true)]
async fn unmatched_requests_fail_and_are_reported_without_secrets() {
    let target = target(json!({"routes": [{"model": "gpt-*", "otherwise": {"reply": {}}}]}));
    let error = ask(&gate(&target), false).await.expect_err("no route");
    assert_eq!(error.kind(), ErrorKind::Request);
    assert_eq!(
        target.unmatched(),
        ["POST models.example.com/v1/chat/completions: no route of the script matches"]
    );
    assert_eq!(target.in_flight(), 0);
    assert!(!format!("{:?}", target.attempts()).contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn requests_of_the_gate_itself_use_no_answer_and_are_not_recorded() {
    let target = target(json!({"routes": [{
        "answers": [{"status": {"status": 429, "retry_after": 90}}, {"reply": {"text": "done"}}],
    }]}));
    let url = "http://localhost:8000/v1";
    // The gate reads the metrics of a private server, and asks it for token counts.
    let server = Target::new("all").url(url).tokenizer(Tokenizer::Vllm);
    let gate = Gate::builder().target(server).build_over(target.transport()).expect("a gate");
    let body = json!({"model": "small", "messages": [{"role": "user", "content": "hello"}]}).to_string();
    let request = Request::post(format!("{url}/chat/completions")).body(body.into()).expect("a request");
    let response = gate.client().call(request).await.expect("an answer");
    assert!(text(response).await.expect("a body").contains("done"));
    let attempts = target.attempts();
    assert_eq!(attempts.iter().map(|attempt| attempt.status).collect::<Vec<_>>(), [Some(429), Some(200)]);
    assert_eq!((target.max_in_flight(), target.unmatched().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn route_that_names_a_path_answers_requests_of_the_gate_itself() {
    let models = json!({"status": 200, "body": {"data": [{"id": "small"}]}});
    let target = target(json!({"routes": [
        {"host": "a", "path": "*/models", "otherwise": {"status": models}},
        {"path": "/v1/*", "answers": [{"reply": {"times": 4}}]},
    ]}));
    let pool = Target::new("llama").pool(Pool::new(["http://a", "http://b"]));
    let gate = Gate::builder().target(pool).build_over(target.transport()).expect("a gate");
    for _ in 0..4 {
        let request = Request::post("http://llama/v1/chat/completions");
        let request = request.body(json!({"model": "small"}).to_string().into()).expect("a request");
        let response = gate.client().call(request).await.expect("an answer");
        text(response).await.expect("a body");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!((target.attempts().len(), target.unmatched().len()), (4, 0));
    let replicas = &gate.snapshot().targets["llama"].replicas;
    let statuses: Vec<_> = replicas.iter().map(|replica| replica.models_status).collect();
    assert_eq!(statuses, [None, Some(404)]);
    assert!(replicas[0].models.is_some() && replicas.iter().all(|replica| replica.problem.is_none()));
}

#[test]
fn invalid_scripts_are_rejected_with_a_reason() {
    for (script, text) in [
        (json!({"routes": [{"otherwise": {"reply": {"after": -1}}}]}), "is not a number of seconds"),
        (json!({"routes": [{"otherwise": {"reply": {"afetr": 1}}}]}), "afetr"),
        (json!({"routes": [{"otherwise": {"replay": {}}}]}), "replay"),
        (json!({"routes": [{"otherwise": {"status": {"status": 42}}}]}), "status: 42 is not"),
        (json!({"routes": [{"otherwise": {"status": {"status": 1000}}}]}), "status: 1000 is not"),
        (json!({"routes": [{"otherwise": {"status": {"status": 200, "headers": {"a b": "c"}}}}]}), "a b"),
        (json!({"route": []}), "route"),
    ] {
        let error = serde_json::from_value::<Script>(script).expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    }
}
