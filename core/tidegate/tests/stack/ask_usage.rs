//! Tests of `ask_usage`: the client requests the usage of streams, and hides it from callers that
//! did not request it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tidegate::config::{Config, Mode};
use tidegate::{Error, ErrorKind, Gate, RequestBody, ResponseBody, Transport};
use tidegate_sim::{SimConfig, Simulator};

use crate::support::*;

const MS: Duration = Duration::from_millis(1);
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,\"total_tokens\":4}}\n\n";

fn over(transport: Transport, more: &str) -> Gate {
    let targets = format!("{more}\n[targets.llm]\nurl = 'http://llm'\nmetrics = 'off'\nask_usage = true");
    Gate::over(Config::from_toml(&targets).expect("a configuration"), transport).expect("a gate")
}

/// Returns an upstream that answers each request with a stream of `frames`, and the list of the
/// request bodies that it received.
fn streams(frames: Vec<&'static str>) -> (Transport, Arc<Mutex<Vec<String>>>) {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let seen = bodies.clone();
    let (transport, _) = upstream(move |_, request, exchange| {
        let body = request.body().bytes().unwrap().to_vec();
        let length =
            request.headers().get("content-length").map(|length| length.to_str().unwrap().to_owned());
        assert!(length.is_none_or(|length| length == body.len().to_string()), "the length is the body's");
        seen.lock().push(String::from_utf8_lossy(&body).into_owned());
        let frames = frames.iter().map(|frame| (MS, Some(*frame))).collect();
        async move { Ok(sse(exchange, frames)) }
    });
    (transport, bodies)
}

fn post(body: &'static str) -> Request<RequestBody> {
    let request = Request::post("http://llm/v1/chat/completions").header("content-length", body.len());
    request.body(body.into()).unwrap()
}

fn tokens(gate: &Gate) -> (u64, u64) {
    let snapshot = gate.snapshot();
    let tenant = &snapshot.targets["llm"].tenants["default"];
    (tenant.input_tokens, tenant.output_tokens)
}

#[tokio::test(start_paused = true)]
async fn requested_usage_is_counted_and_hidden() {
    let nulls = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}],\"usage\":null}\r\n\r\n";
    let (transport, bodies) =
        streams(vec![": ping\n\n", ROLE, nulls, &USAGE[..30], &USAGE[30..], STOP, USAGE, DONE]);
    let gate = over(transport, "");
    let response = gate.client().call(post(r#"{"model": "m", "stream": true}"#)).await.unwrap();
    let shown = TOKEN.replace("\n\n", "\r\n\r\n");
    assert_eq!(read(response).await.unwrap(), [": ping\n\n", ROLE, &shown, STOP, DONE].concat());
    assert_eq!(
        bodies.lock()[..],
        [r#"{"model": "m", "stream": true,"stream_options":{"include_usage":true}}"#]
    );
    assert_eq!(tokens(&gate), (3, 1));
    assert_eq!(gate.snapshot().targets["llm"].tenants["default"].outcomes["completed"], 1);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn caller_that_sets_include_usage_gets_the_response_unchanged() {
    for body in [
        r#"{"stream": true, "stream_options": {"include_usage": true}}"#,
        r#"{"stream": true, "stream_options": {"include_usage": false}}"#,
        r#"{"model": "m"}"#,
    ] {
        let (transport, bodies) = streams(vec![TOKEN, STOP, USAGE, DONE]);
        let gate = over(transport, "");
        let answer = read(gate.client().call(post(body)).await.unwrap()).await.unwrap();
        assert_eq!(answer, [TOKEN, STOP, USAGE, DONE].concat());
        assert_eq!(bodies.lock()[..], [body]);
    }
}

#[tokio::test(start_paused = true)]
async fn signed_and_compressed_requests_are_unchanged() {
    const BODY: &str = r#"{"stream": true}"#;
    let request = |path: &str, name: &'static str, value: &'static str| {
        Request::post(format!("http://llm{path}")).header(name, value).body(BODY.into()).unwrap()
    };
    for (request, mode) in [
        (request("/v1/chat/completions", "authorization", "AWS4-HMAC-SHA256 Credential=A/b"), ""),
        (request("/v1/chat/completions", "content-encoding", "gzip"), ""),
        (request("/v1/responses", "x", "y"), ""),
        (request("/v1/messages", "x", "y"), ""),
        (request("/v1/chat/completions", "x", "y"), "mode = 'observe'"),
    ] {
        let (transport, bodies) = streams(vec![TOKEN, STOP, USAGE, DONE]);
        let gate = over(transport, mode);
        drop(gate.client().call(request).await);
        assert_eq!(bodies.lock().pop().as_deref(), Some(BODY));
    }
    let (transport, bodies) = streams(vec![TOKEN, STOP, USAGE, DONE]);
    let gate = gate(transport, |t| t);
    read(gate.client().call(post(BODY)).await.unwrap()).await.unwrap();
    assert_eq!(bodies.lock()[..], [BODY], "only where the target allows it");
}

#[tokio::test(start_paused = true)]
async fn token_is_delivered_before_the_next_arrives() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(MS, Some(ROLE)), (MS, Some(TOKEN)), (1000 * SECOND, Some(STOP))]))
    });
    let gate = over(transport, "");
    let mut body = gate.client().call(chat(true)).await.unwrap().into_body();
    let start = tokio::time::Instant::now();
    for event in [ROLE, TOKEN] {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), event);
    }
    assert!(start.elapsed() <= 2 * MS);
}

#[tokio::test(start_paused = true)]
async fn broken_stream_delivers_its_data_and_then_the_error() {
    for (last, kind) in [(None, ErrorKind::Transport), (Some(""), ErrorKind::Truncated)] {
        let (transport, _) = upstream(move |_, _, exchange| async move {
            Ok(sse(exchange, vec![(MS, Some(TOKEN)), (MS, Some("data: {\"usa")), (MS, last)]))
        });
        let gate = over(transport, "");
        let mut body = gate.client().call(chat(true)).await.unwrap().into_body();
        let mut seen = Vec::new();
        let error = loop {
            match body.frame().await.expect("an end that is told") {
                Ok(frame) => seen.extend_from_slice(&frame.into_data().unwrap()),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), String::from_utf8(seen).unwrap()), (kind, format!("{TOKEN}data: {{\"usa")));
        drop(body);
        assert_idle(&gate);
    }
}

#[tokio::test(start_paused = true)]
async fn error_event_under_status_200_is_retried() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        let shed =
            vec![(MS, Some("data: {\"error\": {\"message\": \"no\", \"code\": 503}}\n\n")), (MS, Some(DONE))];
        let good = [TOKEN, STOP, USAGE, DONE].map(|frame| (MS, Some(frame))).to_vec();
        Ok(sse(exchange, if n == 0 { shed } else { good }))
    });
    let gate = over(transport, "");
    let body = read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!((body, seen.attempts()), ([TOKEN, STOP, DONE].concat().into(), 2));
}

/// Returns a transport to the simulator of an inference server.
fn simulated() -> Transport {
    let simulator = Simulator::new(SimConfig::calibrated()).unwrap();
    Transport::new(tower::service_fn(move |request: Request<RequestBody>| {
        let simulator = simulator.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let answer = simulator.respond(Request::from_parts(parts, body)).await;
            let answer = answer.map_err(|_| Error::new(ErrorKind::Connect, "refused"))?;
            let broken = |_| Error::new(ErrorKind::Transport, "reset");
            Ok::<Response<ResponseBody>, Error>(answer.map(|body| ResponseBody::new(body.map_err(broken))))
        }
    }))
}

/// The caller receives the same response whether the client requests usage (mode `enforce`) or not
/// (mode `off`).
#[tokio::test(start_paused = true)]
async fn caller_reads_the_response_without_requested_usage() {
    for (path, prompt) in [
        ("chat/completions", "\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]"),
        ("completions", "\"prompt\": \"hi\""),
    ] {
        for stream in [true, false] {
            let body = format!(r#"{{"model": "sim", "stream": {stream}, "max_tokens": 5, {prompt}}}"#);
            let mut answers: Vec<Bytes> = Vec::new();
            for mode in [Mode::Enforce, Mode::Off] {
                let targets = "[targets.llm]\nurl = 'http://llm'\nmetrics = 'off'\nask_usage = true";
                let config = Config { mode, ..Config::from_toml(targets).unwrap() };
                let gate = Gate::over(config, simulated()).unwrap();
                let request =
                    Request::post(format!("http://llm/v1/{path}")).body(body.clone().into()).unwrap();
                answers.push(read(gate.client().call(request).await.unwrap()).await.unwrap());
                if mode == Mode::Enforce {
                    assert_eq!(tokens(&gate).1, 5, "{path}, stream: {stream}");
                }
            }
            assert_eq!(answers[0], answers[1]);
            assert_eq!(String::from_utf8_lossy(&answers[0]).contains("usage"), !stream);
        }
    }
}
