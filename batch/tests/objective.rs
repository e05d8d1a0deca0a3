//! Tests runs with an objective for the time to first token, in virtual time.

#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request};
use http_body_util::BodyExt;
use serde_json::Value;
use support::{BASE, answer_with, config, never, options, paused, play, simulator, sleep, transport};
use tidegate::config::{Config, LaneSettings, LimitSettings, Target};
use tidegate::protocol::{Dialect, Observer, Signal};
use tidegate::{Client, Gate, Lane, RequestBody, Transport};
use tidegate_batch::{AnsweredLines, Batch, LineOutcome, Record, Stop};
use tidegate_sim::engine::{EngineConfig, StepCost};
use tidegate_sim::{Faults, SimConfig, Simulator};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::ServiceExt;

/// Duration of the traffic of the interactive client, in seconds.
const INTERACTIVE_S: f64 = 120.0;
/// Calls per second of the interactive client. They occupy about a quarter of the engine.
const INTERACTIVE_RATE: f64 = 1.5;

fn lines(count: u32, output: impl Fn(u32) -> u32) -> String {
    let prompt = "The tide comes in. ".repeat(20);
    (0..count).fold(String::new(), |mut text, n| {
        let output = output(n);
        writeln!(text, r#"{{"model":"sim","max_tokens":{output},"messages":[{{"role":"user","content":"{n} {prompt}"}}]}}"#)
            .unwrap();
        text
    })
}

/// Returns an engine with 16 slots, as of a small vLLM server.
fn small_engine() -> Simulator {
    let step =
        StepCost { base_ms: 30.0, per_sequence_ms: 0.5, per_prompt_token_ms: 0.1, ..StepCost::default() };
    let engine =
        EngineConfig { max_num_seqs: 16, max_num_batched_tokens: 1_024, step, ..EngineConfig::default() };
    Simulator::new(SimConfig { workers: 1, engine, ..SimConfig::default() }).unwrap()
}

/// Sends a call that streams, and returns its time to first token in seconds, including the time in
/// the client's own queue. Returns `None` if the call failed.
async fn first_token_time(client: Client, number: u32) -> Option<f64> {
    let text = lines(1, |_| 64).replacen("\"0 ", &format!("\"own {number} "), 1);
    let body = text.trim_end().replacen('{', r#"{"stream":true,"#, 1);
    let mut request = Request::new(RequestBody::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = format!("{BASE}/chat/completions").parse().unwrap();
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let sent = Instant::now();
    let mut response = client.call(request).await.ok()?;
    let mut observer = Observer::new(Dialect::OpenAiChat, response.headers(), true);
    let mut first = None;
    while let Some(frame) = response.body_mut().frame().await {
        let chunk = frame.ok()?.into_data().unwrap_or_default();
        observer.push(&chunk, |signal| {
            if matches!(signal, Signal::FirstToken) {
                first = Some(sent.elapsed().as_secs_f64());
            }
        });
    }
    first
}

/// Sends the calls of an interactive client with a gate and an objective of its own. Returns the
/// sorted times to first token of the calls that were answered, and the number of all calls.
async fn interactive_client(simulator: &Simulator) -> (Vec<f64>, usize) {
    let objective = Duration::from_secs(1);
    let gate = Gate::over(config(|target| target.ttft(objective)), transport(simulator)).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut calls, start) = (JoinSet::new(), Instant::now());
    while start.elapsed().as_secs_f64() < INTERACTIVE_S {
        calls.spawn(first_token_time(gate.client(), calls.len() as u32));
        sleep(-(1.0 - rng.f64()).ln() / INTERACTIVE_RATE).await;
    }
    let ended = calls.join_all().await;
    let mut times: Vec<f64> = ended.iter().flatten().copied().collect();
    times.sort_by(f64::total_cmp);
    (times, ended.len())
}

/// What a run with some configuration and an interactive client do to each other.
struct Together {
    /// The 99th percentile of the interactive client's times to first token, in seconds.
    p99: f64,
    /// Share of the interactive calls that were answered.
    answered: f64,
    /// Calls of the run that were answered, and that failed.
    run: (u64, u64),
    /// The 90th percentile of the calls of the run in flight.
    in_flight: u64,
}

fn beside_a_run(config: Config) -> Together {
    paused(async {
        let simulator = small_engine();
        let batch = Batch::over(config, transport(&simulator)).unwrap();
        let (stop, stopped) = watch::channel(Stop::No);
        let gate = batch.gate().clone();
        let watched = async move {
            let mut in_flight = Vec::new();
            for _ in 0..INTERACTIVE_S as u32 {
                sleep(1.0).await;
                let snapshot = serde_json::to_value(gate.snapshot()).unwrap();
                in_flight.push(snapshot["targets"]["provider"]["in_flight"].as_u64().unwrap());
            }
            in_flight.sort_unstable();
            in_flight
        };
        let interactive = async {
            sleep(30.0).await;
            let both = tokio::join!(interactive_client(&simulator), watched);
            stop.send(Stop::Finish).unwrap();
            both
        };
        let text = lines(5_000, |n| 32 + n * 37 % 64);
        let run = play(&batch, options(), text, AnsweredLines::default(), stopped);
        let (run, ((times, calls), in_flight)) = tokio::join!(run, interactive);
        let progress = run.progress();
        Together {
            p99: times[times.len() * 99 / 100],
            answered: times.len() as f64 / calls as f64,
            run: (progress.good, progress.failed),
            in_flight: in_flight[in_flight.len() * 9 / 10],
        }
    })
}

#[test]
fn run_with_objective_leaves_room_for_an_interactive_client() {
    let objective =
        |target: Target| target.ttft(Duration::from_millis(500)).limit(LimitSettings::new().start(2));
    let with = beside_a_run(config(objective));
    let without = beside_a_run(config(|target| target));
    assert!(
        without.p99 > 2.0,
        "the test shows nothing if the interactive client is undisturbed: {}",
        without.p99
    );
    assert!(with.p99 < 1.3 && with.answered > 0.95, "p99 {} s, answered {}", with.p99, with.answered);
    assert!(with.in_flight <= 20, "{} in flight on 16 slots", with.in_flight);
    // Nothing is lost, and little of the throughput.
    assert_eq!(with.run.1, 0);
    assert!(with.run.0 * 10 > without.run.0 * 8, "{} of {}", with.run.0, without.run.0);
}

/// Removes the fields that say nothing: null and empty lists.
fn without_empty(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, field| !field.is_null() && field.as_array().is_none_or(|items| !items.is_empty()));
        fields.values_mut().for_each(without_empty);
    } else if let Value::Array(items) = value {
        items.iter_mut().for_each(without_empty);
    }
}

/// Returns the id of a record, and its answer without what differs between any two answers.
fn content(record: &Record) -> (String, Value) {
    let LineOutcome::Answered(answer) = &record.outcome else { panic!("{record:?}") };
    let mut body: Value = serde_json::from_str(answer.body.get()).unwrap();
    without_empty(&mut body);
    let fields = body.as_object_mut().unwrap();
    assert!(fields.remove("id").is_some() && fields.remove("created").is_some());
    (record.custom_id.clone(), body)
}

#[test]
fn records_of_a_streamed_run_are_those_of_a_run_without_streaming() {
    let objective = Duration::from_secs(2);
    let chat = lines(20, |n| 1 + n);
    let legacy: String = (0..20).fold(String::new(), |mut text, n| {
        writeln!(text, r#"{{"model":"sim","max_tokens":{},"prompt":"{n}"}}"#, 1 + n).unwrap();
        text
    });
    for text in [chat, legacy] {
        let records =
            [config(|target| target.cap(4)), config(|target| target.ttft(objective))].map(|config| {
                paused(async {
                    let simulator = simulator(Faults::default());
                    let batch = Batch::over(config, transport(&simulator)).unwrap();
                    let result =
                        play(&batch, options(), text.clone(), AnsweredLines::default(), never()).await;
                    let mut contents: Vec<_> = result.records.iter().map(content).collect();
                    contents.sort_by(|a, b| a.0.cmp(&b.0));
                    (contents, result.progress().spend)
                })
            });
        let [plain, streamed] = records;
        assert_eq!((plain.0.len(), plain.1), (20, streamed.1));
        assert_eq!(plain.0, streamed.0);
    }
}

#[test]
fn objective_of_the_lane_rejects_no_call_of_a_run() {
    paused(async {
        let lane = |target: Target| {
            target.cap(1).lane(Lane::Batch, LaneSettings::new().ttft(Duration::from_millis(100)))
        };
        let simulator = simulator(Faults::default());
        let batch = Batch::over(config(lane), transport(&simulator)).unwrap();
        let result = play(&batch, options(), lines(100, |_| 8), AnsweredLines::default(), never()).await;
        assert_eq!((result.progress().good, result.progress().failed), (100, 0));
    });
}

#[test]
fn provider_that_rejects_streams_still_answers_every_line() {
    paused(async {
        let inner = transport(&simulator(Faults::default()));
        let streamed = Arc::new(AtomicU32::new(0));
        let count = streamed.clone();
        let rejecting = tower::service_fn(move |request: Request<RequestBody>| {
            let (inner, count) = (inner.clone(), count.clone());
            async move {
                let text = request.body().bytes().cloned().unwrap_or_default();
                if String::from_utf8_lossy(&text).contains("\"stream\":true") {
                    count.fetch_add(1, Ordering::Relaxed);
                    let mut response =
                        http::Response::new(tidegate::ResponseBody::full("{\"error\":\"no streams\"}"));
                    *response.status_mut() = http::StatusCode::BAD_REQUEST;
                    return Ok(response);
                }
                inner.oneshot(request).await
            }
        });
        let objective = |target: Target| target.ttft(Duration::from_secs(2));
        let batch = Batch::over(config(objective), Transport::new(rejecting)).unwrap();
        let result = play(&batch, options(), lines(300, |_| 8), AnsweredLines::default(), never()).await;
        assert_eq!((result.progress().good, result.progress().failed), (300, 0));
        let streamed = streamed.load(Ordering::Relaxed);
        assert!((1..100).contains(&streamed), "{streamed} calls were streamed");
    });
}

/// Runs 1,000 lines over a server whose first `failing` streams end without a finish reason.
/// Returns the number of streams that were requested.
fn streams_of_a_run(failing: u32) -> u32 {
    const STREAM: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"}}]}\n\n";
    const FINISHED: &str =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\n";
    paused(async {
        let streams = Arc::new(AtomicU32::new(0));
        let count = streams.clone();
        let server = tower::service_fn(move |request: Request<RequestBody>| {
            let text = request.body().bytes().cloned().unwrap_or_default();
            let is_stream = String::from_utf8_lossy(&text).contains("\"stream\":true");
            let is_failing = is_stream && count.fetch_add(1, Ordering::Relaxed) < failing;
            async move {
                sleep(0.1).await;
                if !is_stream {
                    return Ok(answer_with(200, "{}"));
                }
                let event = if is_failing { STREAM } else { FINISHED };
                let body = tidegate::ResponseBody::full(format!("{event}data: [DONE]\n\n"));
                let response = http::Response::builder().header(CONTENT_TYPE, "text/event-stream");
                Ok::<_, tidegate::Error>(response.body(body).unwrap())
            }
        });
        let objective =
            |target: Target| target.ttft(Duration::from_secs(2)).limit(LimitSettings::new().start(2));
        let batch = Batch::over(config(objective), Transport::new(server)).unwrap();
        let result = play(&batch, options(), lines(1_000, |_| 8), AnsweredLines::default(), never()).await;
        assert_eq!((result.progress().good, result.progress().failed), (1_000, 0));
        streams.load(Ordering::Relaxed)
    })
}

#[test]
fn server_whose_streams_cannot_be_joined_gets_few_streams() {
    let streams = streams_of_a_run(u32::MAX);
    // Streams that wait in the queue of the gate are still sent.
    assert!((3..300).contains(&streams), "{streams} calls were streamed");
}

#[test]
fn streams_that_fail_at_once_do_not_end_streaming() {
    assert_eq!(streams_of_a_run(6), 1_000);
}
