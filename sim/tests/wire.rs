//! Tests of responses as clients read them, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use bytes::Bytes;
use http::Request;
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{chat, events, get, post, simulator, text, value};
use tidegate_sim::Adapter;
use tokio::time::{Duration, Instant};

#[tokio::test(start_paused = true)]
async fn streams_chat_completions() {
    let sim = simulator(|_| ());
    let body = json!({
        "model": "sim", "stream": true, "stream_options": {"include_usage": true}, "max_completion_tokens": 3,
        "messages": [{"role": "user", "content": "x".repeat(40)}],
    });
    let response = sim.respond(post("/v1/chat/completions", &body)).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let events = events(&text(response).await);
    let delta = |i: usize| &events[i]["choices"][0]["delta"];
    assert_eq!(delta(0), &json!({"role": "assistant", "content": ""}));
    assert_eq!(
        [delta(1), delta(2), delta(3)].map(|d| d["content"].as_str().unwrap()),
        ["The", " tide", " comes"]
    );
    assert_eq!(events[4]["choices"][0]["finish_reason"], "length");
    assert_eq!(events[5]["choices"], json!([]));
    assert_eq!(events[5]["usage"], json!({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}));
    assert_eq!(events[6], "[DONE]");
    assert_eq!(events.len(), 7);
}

#[tokio::test(start_paused = true)]
async fn usage_is_sent_on_request_and_short_answers_finish_with_stop() {
    let sim = simulator(|_| ());
    let body = json!({
        "model": "sim", "stream": true, "max_tokens": 10, "sim_output_tokens": 2,
        "messages": [{"role": "user", "content": "hi"}],
    });
    let events = events(&text(sim.respond(post("/v1/chat/completions", &body)).await.unwrap()).await);
    assert!(events.iter().all(|e| e.get("usage").is_none()));
    assert_eq!(events[3]["choices"][0]["finish_reason"], "stop");
    assert_eq!(events.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn streams_completions() {
    let sim = simulator(|_| ());
    let body = json!({"model": "sim", "stream": true, "max_tokens": 2, "prompt": "hi"});
    let events = events(&text(sim.respond(post("/v1/completions", &body)).await.unwrap()).await);
    assert_eq!(events[0]["choices"][0]["text"], "The");
    assert_eq!(events[0]["choices"][0]["finish_reason"], Value::Null);
    assert_eq!(events[1]["choices"][0]["finish_reason"], "length");
    assert_eq!(events[2], "[DONE]");
}

#[tokio::test(start_paused = true)]
async fn streams_responses() {
    let sim = simulator(|_| ());
    let body = json!({"model": "sim", "stream": true, "max_output_tokens": 2, "input": "hi"});
    let sse = text(sim.respond(post("/v1/responses", &body)).await.unwrap()).await;
    let events = events(&sse);
    let kinds: Vec<_> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    let part = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ];
    assert_eq!(kinds[..4], part);
    assert_eq!(kinds[4..6], ["response.output_text.delta"; 2]);
    assert_eq!(kinds.last(), Some(&"response.completed"));
    let numbers: Vec<_> = events.iter().map(|e| e["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["output"][0]["content"][0]["text"], "The tide");
    assert_eq!(last["usage"]["output_tokens"], 2);
    assert!(sse.starts_with("event: response.created\ndata: ") && !sse.contains("[DONE]"));
}

#[tokio::test(start_paused = true)]
async fn streams_messages() {
    let sim = simulator(|_| ());
    let body = json!({"model": "sim", "stream": true, "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]});
    let sse = text(sim.respond(post("/v1/messages", &body)).await.unwrap()).await;
    let kinds: Vec<_> = sse.lines().filter_map(|l| l.strip_prefix("event: ")).collect();
    let all = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(kinds, all);
    let events = events(&sse);
    assert_eq!(events[0]["message"]["usage"], json!({"input_tokens": 1, "output_tokens": 0}));
    assert_eq!(events[5]["delta"]["stop_reason"], "max_tokens");
    assert_eq!(events[5]["usage"]["output_tokens"], 2);
}

fn gemini(output: u32) -> Value {
    json!({
        "contents": [{"role": "user", "parts": [{"text": "x".repeat(40)}]}],
        "generationConfig": {"maxOutputTokens": output},
    })
}

#[tokio::test(start_paused = true)]
async fn streams_gemini() {
    let sim = simulator(|_| ());
    let path = "/v1beta/models/sim:streamGenerateContent";
    let response = sim.respond(post(&format!("{path}?alt=sse"), &gemini(2))).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let sse = text(response).await;
    assert!(sse.ends_with("}\r\n\r\n"), "{sse}");
    let events = events(&sse);
    let parts: Vec<_> = events.iter().map(|e| &e["candidates"][0]["content"]["parts"][0]["text"]).collect();
    assert_eq!(parts, ["The", " tide", ""]);
    assert_eq!(events[0]["candidates"][0].get("finishReason"), None);
    assert_eq!(events[2]["candidates"][0]["finishReason"], "MAX_TOKENS");
    let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 2, "totalTokenCount": 12});
    assert_eq!(events[2]["usageMetadata"], usage);

    let list = sim.respond(post(path, &gemini(2))).await.unwrap();
    assert_eq!(list.headers()["content-type"], "application/json; charset=UTF-8");
    let list = value(list).await;
    assert_eq!((list.as_array().map(Vec::len), &list[2]["usageMetadata"]), (Some(3), &usage));
}

#[tokio::test(start_paused = true)]
async fn gemini_answers_vertex_paths_and_rejects_invalid_requests() {
    let sim = simulator(|_| ());
    let path = "/v1beta1/projects/p/locations/l/publishers/google/models/sim:generateContent";
    let answer = value(sim.respond(post(path, &gemini(2))).await.unwrap()).await;
    assert_eq!(answer["candidates"][0]["content"]["parts"][0]["text"], "The tide");
    let none = sim.respond(post("/v1beta/models/sim:generateContent", &json!({}))).await.unwrap();
    assert_eq!(
        (none.status().as_u16(), &value(none).await["error"]["status"]),
        (400, &json!("INVALID_ARGUMENT"))
    );
    let unknown = sim.respond(post("/v1beta/models/gone:generateContent", &gemini(2))).await.unwrap();
    assert_eq!(
        (unknown.status().as_u16(), &value(unknown).await["error"]["status"]),
        (404, &json!("NOT_FOUND"))
    );
    let two = json!({"contents": [{}], "generationConfig": {"candidateCount": 2}});
    assert_eq!(sim.respond(post("/v1beta/models/sim:generateContent", &two)).await.unwrap().status(), 400);
}

#[tokio::test(start_paused = true)]
async fn answers_without_streaming() {
    let sim = simulator(|_| ());
    let messages = json!([{"role": "user", "content": "hi"}]);
    let chat = json!({"model": "sim", "max_tokens": 2, "messages": messages});
    let answer = value(sim.respond(post("/v1/chat/completions", &chat)).await.unwrap()).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "The tide");
    assert_eq!(answer["usage"]["completion_tokens"], 2);
    let anthropic = value(sim.respond(post("/v1/messages", &chat)).await.unwrap()).await;
    assert_eq!(anthropic["content"][0]["text"], "The tide");
    let completion = json!({"model": "sim", "max_tokens": 2, "prompt": [1, 2, 3]});
    let completion = value(sim.respond(post("/v1/completions", &completion)).await.unwrap()).await;
    assert_eq!(
        (&completion["choices"][0]["text"], &completion["usage"]["prompt_tokens"]),
        (&json!("The tide"), &json!(3))
    );
    let response =
        json!({"model": "sim", "max_output_tokens": 2, "input": [{"role": "user", "content": "hi"}]});
    let response = value(sim.respond(post("/v1/responses", &response)).await.unwrap()).await;
    assert_eq!(response["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn fingerprint_identifies_the_server_as_vllm() {
    for fingerprint in [None, Some("vllm-sim")] {
        let sim = simulator(|c| c.system_fingerprint = fingerprint.map(str::to_owned));
        let ask = async |path: &str, stream: bool| {
            let body = json!({
                "model": "sim", "stream": stream, "stream_options": {"include_usage": true}, "max_tokens": 1,
                "messages": [{"role": "user", "content": "hi"}], "prompt": "hi",
            });
            text(sim.respond(post(path, &body)).await.unwrap()).await
        };
        for path in ["/v1/chat/completions", "/v1/completions"] {
            for stream in [false, true] {
                let has_mark = ask(path, stream).await.contains(r#""system_fingerprint":"vllm-sim""#);
                assert_eq!(has_mark, fingerprint.is_some(), "{path}");
            }
        }
        let first = events(&ask("/v1/chat/completions", true).await).remove(0);
        assert_eq!(first.get("prompt_token_ids").is_some(), fingerprint.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn headers_override_token_counts() {
    let sim = simulator(|c| c.default_output_tokens = 3);
    let (start, mut request) = (Instant::now(), chat(200));
    request.headers_mut().insert("x-sim-prompt-tokens", "100".parse().unwrap());
    request.headers_mut().insert("x-sim-output-tokens", "2".parse().unwrap());
    text(sim.respond(request).await.unwrap()).await;
    let step = &sim.config().engine.step;
    let expected = step.time(1, 100) + step.time(1, 0);
    let took = start.elapsed();
    // The timer has a resolution of 1 ms.
    assert!(took >= expected && took < expected + Duration::from_millis(2), "{took:?}, not {expected:?}");
    let attempt = &sim.stats().attempts[0];
    assert_eq!((attempt.prompt_tokens, attempt.output_tokens), (100, 2));
}

#[tokio::test(start_paused = true)]
async fn time_scale_speeds_up_the_simulation() {
    let sim = simulator(|c| c.time_scale = 10.0);
    let start = Instant::now();
    text(sim.respond(chat(20)).await.unwrap()).await;
    let step = &sim.config().engine.step;
    let simulated = step.time(1, 2) + step.time(1, 0) * 19;
    let took = start.elapsed();
    // Rounding to the timer's milliseconds must not accumulate over the steps.
    assert!(
        took >= simulated / 10 && took < simulated / 10 + Duration::from_millis(2),
        "{took:?} for {simulated:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn errors_match_vllm() {
    let sim = simulator(|c| c.engine.max_model_len = 100);
    let message = |text: &str| json!([{"role": "user", "content": text}]);
    let cases = [
        (json!({"model": "gone", "messages": message("x")}), 404, "model"),
        (json!({"model": "sim", "messages": message(&"x".repeat(400))}), 400, "input_tokens"),
        (json!({"model": "sim"}), 400, "messages"),
        (json!({"model": "sim", "messages": message("x"), "max_tokens": 0}), 400, "max_tokens"),
        (json!({"model": "sim", "messages": message("x"), "max_tokens": -1}), 400, "max_tokens"),
        (json!({"model": "sim", "messages": message("x"), "stream": "yes"}), 400, "stream"),
        (json!({"model": "sim", "messages": message("x"), "n": 2}), 400, "n"),
    ];
    for (body, status, param) in cases {
        let response = sim.respond(post("/v1/chat/completions", &body)).await.unwrap();
        assert_eq!(response.status(), status, "{body}");
        let error = value(response).await;
        assert_eq!(
            (&error["error"]["param"], &error["error"]["code"]),
            (&json!(param), &json!(status)),
            "{body}"
        );
    }
    let anthropic = json!({"model": "gone", "max_tokens": 1, "messages": message("x")});
    let error = value(sim.respond(post("/v1/messages", &anthropic)).await.unwrap()).await;
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("not_found_error")));
    // Prompt and maximum output exceed the model length, so the maximum is silently reduced.
    let long = json!({"model": "sim", "messages": message(&"x".repeat(360)), "max_tokens": 50});
    let cut = value(sim.respond(post("/v1/chat/completions", &long)).await.unwrap()).await;
    assert_eq!(
        (&cut["usage"]["total_tokens"], &cut["choices"][0]["finish_reason"]),
        (&json!(100), &json!("length"))
    );
}

#[tokio::test(start_paused = true)]
async fn serves_models_and_health_and_404() {
    let sim = simulator(|_| ());
    let models = value(sim.respond(get("/v1/models")).await.unwrap()).await;
    assert_eq!(
        (&models["data"][0]["id"], &models["data"][0]["max_model_len"]),
        (&json!("sim"), &json!(8192))
    );
    assert_eq!(sim.respond(get("/health")).await.unwrap().status(), 200);
    assert_eq!(sim.respond(get("/v1/nothing")).await.unwrap().status(), 404);
    assert_eq!(sim.respond(get("/v1/chat/completions")).await.unwrap().status(), 405);
}

#[tokio::test(start_paused = true)]
async fn tokenize_counts_the_prompt_as_a_call_does() {
    let sim = simulator(|_| ());
    let messages = json!([{"role": "user", "content": "x".repeat(40)}]);
    for (body, count) in [
        (json!({"model": "sim", "messages": messages}), 10),
        (json!({"model": "sim", "prompt": [1, 2, 3]}), 3),
    ] {
        let answer = value(sim.respond(post("/tokenize", &body)).await.unwrap()).await;
        assert_eq!(answer, json!({"count": count, "max_model_len": 8192, "tokens": []}));
    }
    for (body, status) in [(json!({"model": "gone", "prompt": "x"}), 404), (json!({"model": "sim"}), 400)] {
        assert_eq!(sim.respond(post("/tokenize", &body)).await.unwrap().status(), status);
    }
    assert_eq!(sim.respond(get("/tokenize")).await.unwrap().status(), 405);
}

#[tokio::test(start_paused = true)]
async fn adapters_are_models_with_a_parent() {
    let sim = simulator(|c| c.adapters = vec![Adapter { name: "sql".into(), parent: None }]);
    let models = value(sim.respond(get("/v1/models")).await.unwrap()).await;
    let card = &models["data"][1];
    assert_eq!(
        [&card["id"], &card["parent"], &card["max_model_len"]],
        [&json!("sql"), &json!("sim"), &json!(null)]
    );
    let ask = |model| post("/v1/completions", &json!({"model": model, "prompt": "a", "max_tokens": 1}));
    assert_eq!(sim.respond(ask("sql")).await.unwrap().status(), 200);
    assert_eq!(sim.respond(ask("tsql")).await.unwrap().status(), 404);
}

#[tokio::test(start_paused = true)]
async fn repeated_prefix_hits_the_cache_and_shortens_ttft() {
    let sim = simulator(|c| c.engine.prefix_cache = true);
    let ask = |question: &str| {
        let system = "The tide comes in and goes out. ".repeat(100);
        let messages = json!([{"role": "system", "content": system}, {"role": "user", "content": question}]);
        post("/v1/chat/completions", &json!({"model": "sim", "max_tokens": 1, "messages": messages}))
    };
    let mut took = Vec::new();
    for question in ["When?", "Why?"] {
        let start = Instant::now();
        text(sim.respond(ask(question)).await.unwrap()).await;
        took.push(start.elapsed());
    }
    // 800 of 801 or 802 tokens are cached, and each saves 0.27 ms.
    assert_eq!((took[0] - took[1]).as_millis(), 216);
    let metrics = sim.metrics();
    let events_seen = |series: &str, value: u32| {
        metrics.contains(&format!(
            "vllm:prefix_cache_{series}_total{{engine=\"0\",model_name=\"sim\"}} {value}\n"
        ))
    };
    assert!(events_seen("queries", 1603) && events_seen("hits", 800), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn metrics_exist_from_the_start_and_count() {
    let sim = simulator(|c| c.workers = 2);
    let read = |text: &str, series: &str| {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(series))
            .unwrap_or_else(|| panic!("no {series} in\n{text}"));
        line.trim().parse::<f64>().unwrap()
    };
    let label = |name: &str, engine: u8| format!(r#"vllm:{name}{{engine="{engine}",model_name="sim"}}"#);
    let before = sim.metrics();
    for name in
        ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total"]
    {
        assert_eq!(read(&before, &label(name, 0)) + read(&before, &label(name, 1)), 0.0);
    }
    assert!(
        before.contains(r#"block_size="16",enable_prefix_caching="False",engine="0",kv_cache_size_tokens="90000",num_gpu_blocks="5625""#),
        "{before}"
    );
    let streams = [sim.respond(chat(5)).await.unwrap(), sim.respond(chat(5)).await.unwrap()];
    assert_eq!(read(&sim.metrics(), &label("num_requests_running", 1)), 1.0);
    for stream in streams {
        text(stream).await;
    }
    let after = sim.metrics();
    assert_eq!(read(&after, &label("generation_tokens_total", 0)), 5.0);
    assert_eq!(read(&after, &label("time_to_first_token_seconds_count", 0)), 1.0);
    assert_eq!(read(&after, &label("inter_token_latency_seconds_count", 1)), 4.0);
    assert_eq!(read(&after, &label("request_queue_time_seconds_count", 1)), 1.0);
    assert_eq!(read(&after, &label("num_requests_running", 0)), 0.0);
    let text_of = text(sim.respond(get("/metrics")).await.unwrap()).await;
    assert_eq!(text_of, after);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// A request gets an answer with status 200, 400 or 404, whatever its body contains.
    #[test]
    fn arbitrary_requests_get_an_answer(path in 0usize..7, garbage in prop::collection::vec(any::<u8>(), 0..200), token in "\\PC{0,8}", n in any::<i64>()) {
        let paths = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
            "/v1beta/models/sim:streamGenerateContent", "/sim/faults", "/x"];
        let shaped = json!({"model": "sim", "messages": [{"role": token, "content": [token, n]}], "prompt": [n, n],
            "contents": [{"parts": [token, n]}], "generationConfig": {"maxOutputTokens": n}, "input": token, "max_tokens": n, "max_output_tokens": n, "sim_prompt_tokens": n, "stream": n % 2 == 0});
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let sim = simulator(|c| c.engine.max_model_len = 64);
            for body in [Bytes::from(garbage), Bytes::from(shaped.to_string())] {
                let request = Request::post(paths[path]).body(body).unwrap();
                let response = sim.respond(request).await.unwrap();
                assert!([200, 400, 404].contains(&response.status().as_u16()));
                text(response).await;
            }
            assert_eq!(sim.stats().in_flight, 0);
        });
    }
}
