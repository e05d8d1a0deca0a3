//! Tests through the whole client of streams: response heads, first tokens, errors under status
//! 200, truncation and silence.

use std::time::Duration;

use http_body_util::BodyExt;
use tidegate::ErrorKind;
use tokio::time::Instant;

use crate::support::*;

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn bytes_pass_unchanged() {
    let frames = [
        ": ping\n\n",
        ROLE,
        "data: {\"cho",
        "ices\":[{\"index\":0,\"delta\":{\"content\":\"\u{e9}\"}}]}\r\n\r\n",
        STOP,
        DONE,
    ];
    let (transport, _) =
        upstream(
            move |_, _, exchange| async move { Ok(sse(exchange, frames.map(|f| (MS, Some(f))).to_vec())) },
        );
    let gate = gate(transport, |t| t);
    let response = gate.client().call(chat(true)).await.unwrap();
    assert_eq!(read(response).await.unwrap(), frames.concat());
    let snapshot = gate.snapshot();
    let tenant = &snapshot.targets["llm"].tenants["default"];
    assert_eq!((tenant.outcomes["completed"], tenant.ttft.count), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn error_as_first_event_fails_the_attempt() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        let shed = "data: {\"error\": {\"message\": \"overloaded\", \"code\": 503}}\n\n";
        let good = vec![(MS, Some(ROLE)), (MS, Some(TOKEN)), (MS, Some(STOP)), (MS, Some(DONE))];
        Ok(sse(exchange, if n == 0 { vec![(MS, Some(shed)), (MS, Some(DONE))] } else { good }))
    });
    let gate = gate(transport, |t| t);
    let body = read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert!(body.starts_with(ROLE.as_bytes()));
    assert_eq!(seen.attempts(), 2);
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_stream_that_begins_with_an_error_is_waited_for() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        let limited = "data: {\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"m\"}}\n\n";
        let good = vec![(MS, Some(TOKEN)), (MS, Some(STOP)), (MS, Some(DONE))];
        let mut response = sse(exchange, if n == 0 { vec![(MS, Some(limited))] } else { good });
        if n == 0 {
            response.headers_mut().insert("retry-after", http::HeaderValue::from_static("30"));
        }
        Ok(response)
    });
    let gate = gate(transport, |t| t);
    let start = Instant::now();
    let body = read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!(body, [TOKEN, STOP, DONE].concat());
    assert_eq!(seen.attempts(), 2);
    assert!(start.elapsed() >= 30 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn error_between_the_first_event_and_the_first_token_fails_the_attempt() {
    let (transport, seen) = upstream(move |n, _, exchange| async move {
        let shed = "data: {\"error\": {\"message\": \"overloaded\", \"code\": 503}}\n\n";
        let rest = if n == 0 {
            vec![(SECOND, Some(shed)), (MS, Some(DONE))]
        } else {
            vec![(MS, Some(TOKEN)), (MS, Some(STOP)), (MS, Some(DONE))]
        };
        Ok(sse(exchange, [vec![(MS, Some(ROLE))], rest].concat()))
    });
    let gate = gate(transport, |t| t);
    let body = read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!(body, [ROLE, TOKEN, STOP, DONE].concat());
    assert_eq!(seen.attempts(), 2);
}

/// The Responses API repeats long instructions and tools before the first token.
#[tokio::test(start_paused = true)]
async fn error_after_long_events_without_a_token_fails_the_attempt() {
    let role = r#""choices":[{"index":0,"delta":{"role":"assistant","content":""}}]"#;
    let padding = "x".repeat(70_000);
    let long: &'static str = Box::leak(format!("data: {{\"x\":\"{padding}\",{role}}}\n\n").into_boxed_str());
    let (transport, seen) = upstream(move |n, _, exchange| async move {
        let shed = "data: {\"error\": {\"message\": \"overloaded\", \"code\": 503}}\n\n";
        let good = vec![(MS, Some(TOKEN)), (MS, Some(STOP)), (MS, Some(DONE))];
        let failed = vec![(MS, Some(long)), (MS, Some(long)), (MS, Some(shed)), (MS, Some(DONE))];
        Ok(sse(exchange, if n == 0 { failed } else { good }))
    });
    let gate = gate(transport, |t| t);
    let body = read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!(body, [TOKEN, STOP, DONE].concat());
    assert_eq!(seen.attempts(), 2);
}

const RESPONSE_FAILED: &str = "data: {\"type\":\"response.failed\",\"response\":{\"error\":null}}\n\n";
const RESPONSE_COMPLETED: &str = "data: {\"type\":\"response.completed\",\"response\":{}}\n\n";

fn response_request() -> http::Request<tidegate::RequestBody> {
    let body = r#"{"model": "m", "stream": true, "input": "hi"}"#;
    http::Request::post("http://llm/v1/responses").body(body.into()).unwrap()
}

/// Azure reports a failure without the error, and states the error in the next event.
#[tokio::test(start_paused = true)]
async fn error_that_follows_a_failure_is_the_one_of_the_attempt() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        let limited = "data: {\"type\":\"error\",\"error\":{\"code\":\"rate_limit_exceeded\"}}\n\n";
        let failed = vec![(MS, Some(RESPONSE_FAILED)), (SECOND, Some(limited)), (1000 * SECOND, None)];
        Ok(sse(exchange, if n == 0 { failed } else { vec![(MS, Some(RESPONSE_COMPLETED))] }))
    });
    let gate = gate(transport, |t| t);
    let body = read(gate.client().call(response_request()).await.unwrap()).await.unwrap();
    assert_eq!(body, RESPONSE_COMPLETED);
    assert_eq!(seen.attempts(), 2);
    assert_eq!(gate.snapshot().targets["llm"].failed_attempts["rate_limited"], 1);
}

#[tokio::test(start_paused = true)]
async fn failure_whose_error_never_follows_fails_the_attempt_after_two_seconds() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        let failed = vec![(MS, Some(RESPONSE_FAILED)), (1000 * SECOND, None)];
        Ok(sse(exchange, if n == 0 { failed } else { vec![(MS, Some(RESPONSE_COMPLETED))] }))
    });
    let gate = gate(transport, |t| t);
    let start = Instant::now();
    let body = read(gate.client().call(response_request()).await.unwrap()).await.unwrap();
    assert_eq!(body, RESPONSE_COMPLETED);
    assert_eq!(seen.attempts(), 2);
    assert!(start.elapsed() >= 2 * SECOND, "{:?}", start.elapsed());
    assert_eq!(gate.snapshot().targets["llm"].failed_attempts["server_error"], 1);
}

#[tokio::test(start_paused = true)]
async fn stream_that_breaks_off_before_its_first_token_is_passed_on() {
    for end in [vec![], vec![(SECOND, None)]] {
        let (transport, seen) = upstream(move |_, _, exchange| {
            let frames = [vec![(MS, Some(ROLE))], end.clone()].concat();
            async move { Ok(sse(exchange, frames)) }
        });
        let gate = gate(transport, |t| t);
        let mut body = gate.client().call(chat(true)).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), ROLE);
        body.frame().await.unwrap().unwrap_err();
        assert!(body.frame().await.is_none());
        assert_eq!(seen.attempts(), 1);
        assert_idle(&gate);
    }
}

#[tokio::test(start_paused = true)]
async fn head_is_held_for_two_seconds_after_the_first_event() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        let shed = "data: {\"error\": {\"message\": \"overloaded\", \"code\": 503}}\n\n";
        Ok(sse(exchange, vec![(5 * SECOND, Some(ROLE)), (3 * SECOND, Some(shed)), (MS, Some(DONE))]))
    });
    let gate = gate(transport, |t| t);
    let start = Instant::now();
    let response = gate.client().call(chat(true)).await.unwrap();
    assert_eq!(start.elapsed(), 7 * SECOND);
    assert!(read(response).await.unwrap().starts_with(ROLE.as_bytes()));
    assert_eq!(seen.attempts(), 1, "the caller has seen the head");
}

/// Each byte takes a frame, which takes more memory than its data.
#[tokio::test(start_paused = true)]
async fn memory_of_a_held_head_is_limited_also_if_frames_are_tiny() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        let mut frames = vec![(Duration::ZERO, Some(":")); 50_000];
        frames.extend([(100 * SECOND, Some("\n\n")), (MS, Some(TOKEN)), (MS, Some(STOP)), (MS, Some(DONE))]);
        Ok(sse(exchange, frames))
    });
    let gate = gate(transport, |t| t);
    let start = Instant::now();
    let response = gate.client().call(chat(true)).await.unwrap();
    assert!(start.elapsed() < SECOND, "held for {:?}", start.elapsed());
    assert!(read(response).await.unwrap().ends_with(DONE.as_bytes()));
}

#[tokio::test(start_paused = true)]
async fn terminal_event_ends_the_wait_for_a_token() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(MS, Some(ROLE)), (MS, Some(STOP)), (MS, Some(DONE)), (1000 * SECOND, None)]))
    });
    let gate = gate(transport, |t| t.first_token(5 * SECOND));
    let start = Instant::now();
    drop(gate.client().call(chat(true)).await.unwrap());
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    assert_eq!(gate.snapshot().targets["llm"].tenants["default"].outcomes["completed"], 1);
}

#[tokio::test(start_paused = true)]
async fn stream_that_is_closed_after_its_error_event_has_failed() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        let error = "data: {\"error\": {\"message\": \"x\", \"code\": 500}}\n\n";
        Ok(sse(exchange, vec![(MS, Some(TOKEN)), (MS, Some(error)), (1000 * SECOND, Some(DONE))]))
    });
    let gate = gate(transport, |t| t);
    let mut body = gate.client().call(chat(true)).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(gate.snapshot().targets["llm"].tenants["default"].outcomes["failed"], 1);
    assert_idle(&gate);
}

/// Returns a stream of events that arrives whole with its head.
fn whole(events: &[&str]) -> http::Response<tidegate::ResponseBody> {
    let body = tidegate::ResponseBody::full(events.concat());
    http::Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn stream_that_arrived_whole_is_complete_before_it_is_read() {
    let events = [ROLE, TOKEN, STOP, DONE];
    let (transport, _) = upstream(move |_, _, _| async move { Ok(whole(&events)) });
    let gate = gate(transport, |t| t.cap(1));
    let response = gate.client().call(chat(true)).await.unwrap();
    assert_idle(&gate);
    let snapshot = gate.snapshot();
    let tenant = &snapshot.targets["llm"].tenants["default"];
    assert_eq!((tenant.outcomes["completed"], tenant.ttft.count), (1, 1));
    assert_eq!(read(response).await.unwrap(), events.concat());
}

#[tokio::test(start_paused = true)]
async fn truncated_stream_that_arrived_whole_fails_after_its_last_byte() {
    let (transport, seen) = upstream(|_, _, _| async { Ok(whole(&[ROLE, TOKEN])) });
    let gate = gate(transport, |t| t);
    let mut body = gate.client().call(chat(true)).await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), [ROLE, TOKEN].concat());
    assert_eq!(body.frame().await.unwrap().unwrap_err().kind(), ErrorKind::Truncated);
    assert_eq!(seen.attempts(), 1);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn error_after_the_first_token_is_not_retried() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        Ok(sse(
            exchange,
            vec![
                (MS, Some(TOKEN)),
                (MS, Some("data: {\"error\": {\"message\": \"x\", \"code\": 500}}\n\n")),
                (MS, Some(DONE)),
            ],
        ))
    });
    let gate = gate(transport, |t| t);
    read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!(seen.attempts(), 1);
    assert_eq!(gate.snapshot().targets["llm"].tenants["default"].outcomes["failed"], 1);
}

#[tokio::test(start_paused = true)]
async fn stream_without_terminal_event_is_an_error() {
    let (transport, _) =
        upstream(
            |_, _, exchange| async move { Ok(sse(exchange, vec![(MS, Some(ROLE)), (MS, Some(TOKEN))])) },
        );
    let gate = gate(transport, |t| t);
    let error = read(gate.client().call(chat(true)).await.unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    assert_eq!(gate.snapshot().targets["llm"].tenants["default"].outcomes["truncated"], 1);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn stream_that_ends_before_its_first_event_is_retried() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        Ok(sse(
            exchange,
            if n == 0 { vec![] } else { vec![(MS, Some(TOKEN)), (MS, Some(STOP)), (MS, Some(DONE))] },
        ))
    });
    read(gate(transport, |t| t).client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!(seen.attempts(), 2);
}

#[tokio::test(start_paused = true)]
async fn silence_is_limited_while_the_reader_waits() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(MS, Some(TOKEN)), (MS, Some(TOKEN)), (1000 * SECOND, Some(STOP))]))
    });
    let gate = gate(transport, |t| t.idle(10 * SECOND));
    let mut body = gate.client().call(chat(true)).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    // A reader that takes a minute per chunk does not count as silence of the upstream.
    tokio::time::sleep(60 * SECOND).await;
    body.frame().await.unwrap().unwrap();
    let start = Instant::now();
    let error = body.frame().await.unwrap().unwrap_err();
    assert_eq!((error.kind(), start.elapsed()), (ErrorKind::IdleTimeout, 10 * SECOND));
    assert_eq!(seen.in_flight(), 0, "the exchange ended with it");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn silence_within_an_error_response_is_limited() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        let body = sse(exchange, vec![(MS, Some("{\"error\": ")), (1000 * SECOND, Some("{}}"))]).into_body();
        Ok(status(400, &[], "").map(|_| body))
    });
    let gate = gate(transport, |t| t.idle(10 * SECOND));
    let start = Instant::now();
    let error = read(gate.client().call(chat(false)).await.unwrap()).await.unwrap_err();
    // The head was held for 1 s, and the silence counts from when the body is read again.
    assert_eq!(error.kind(), ErrorKind::IdleTimeout);
    assert!(start.elapsed() < 12 * SECOND, "{:?}", start.elapsed());
    assert_eq!(seen.in_flight(), 0, "the exchange ended with it");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn error_response_that_breaks_off_is_not_returned_as_complete() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        let body = sse(exchange, vec![(MS, Some("{\"error\": ")), (MS, None)]).into_body();
        Ok(status(400, &[], "").map(|_| body))
    });
    let gate = gate(transport, |t| t);
    let response = gate.client().call(chat(false)).await.unwrap();
    assert_eq!((response.status().as_u16(), seen.attempts()), (400, 1));
    let mut body = response.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "{\"error\": ");
    assert_eq!(body.frame().await.unwrap().unwrap_err().kind(), ErrorKind::Transport);
    drop(body);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn first_token_limit_includes_the_time_after_the_head() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        Ok(sse(
            exchange,
            vec![(MS, Some(ROLE)), (30 * SECOND, Some(TOKEN)), (MS, Some(STOP)), (MS, Some(DONE))],
        ))
    });
    let gate = gate(transport, |t| t.first_token(5 * SECOND));
    let error = read(gate.client().call(chat(true)).await.unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FirstTokenTimeout);
}

#[tokio::test(start_paused = true)]
async fn stalled_reader_loses_its_slot_and_gets_an_error() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(MS, Some(TOKEN)), (MS, Some(TOKEN)), (MS, Some(STOP)), (MS, Some(DONE))]))
    });
    let gate = gate(transport, |t| t.cap(1).stall(20 * SECOND));
    let mut body = gate.client().call(chat(true)).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    tokio::time::sleep(22 * SECOND).await;
    assert_eq!(seen.in_flight(), 0);
    assert_eq!(body.frame().await.unwrap().unwrap_err().kind(), ErrorKind::ReaderStalled);
    assert!(body.frame().await.is_none());
    drop(body);
    assert_idle(&gate);
}

/// A caller waits for the next chunk with a timeout of its own, and keeps the stream after it.
#[tokio::test(start_paused = true)]
async fn reader_that_gives_up_while_it_waits_is_stalled_from_the_next_chunk_on() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(MS, Some(TOKEN)), (60 * SECOND, Some(TOKEN)), (1000 * SECOND, Some(STOP))]))
    });
    let gate = gate(transport, |t| t.cap(1).stall(20 * SECOND));
    let mut body = gate.client().call(chat(true)).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert!(tokio::time::timeout(5 * SECOND, body.frame()).await.is_err());
    tokio::time::sleep(70 * SECOND).await;
    assert_eq!(seen.in_flight(), 1, "the chunk has been unread for 15 s");
    tokio::time::sleep(7 * SECOND).await;
    assert_eq!(seen.in_flight(), 0);
    assert_eq!(body.frame().await.unwrap().unwrap_err().kind(), ErrorKind::ReaderStalled);
    drop(body);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn line_of_ten_megabytes_passes_in_bounded_memory() {
    let long: &'static str = Box::leak(format!("data: {}\n\n", "x".repeat(10 << 20)).into_boxed_str());
    let (transport, _) = upstream(move |_, _, exchange| async move {
        Ok(sse(exchange, vec![(MS, Some(TOKEN)), (MS, Some(long)), (MS, Some(STOP)), (MS, Some(DONE))]))
    });
    let body = read(gate(transport, |t| t).client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!(body.len(), TOKEN.len() + long.len() + STOP.len() + DONE.len());
}

#[tokio::test(start_paused = true)]
async fn body_that_is_not_json_passes() {
    let (transport, seen) = upstream(|_, _, _| async { Ok(status(400, &[], "not json either \u{fffd}")) });
    let request =
        http::Request::post("http://llm/v1/chat/completions").body(vec![0xff, 0xfe, b'{'].into()).unwrap();
    let response = gate(transport, |t| t).client().call(request).await.unwrap();
    assert_eq!((response.status().as_u16(), seen.attempts()), (400, 1));
}

#[tokio::test(start_paused = true)]
async fn fully_read_response_is_never_late() {
    let (transport, _) = upstream(|_, _, _| async move {
        // Not in memory for the layers, and its end is known with its last byte.
        let body = http_body_util::Full::new(bytes::Bytes::from(ANSWER)).map_err(|never| match never {});
        Ok(status(200, &[], "").map(|_| tidegate::ResponseBody::new(body)))
    });
    let gate = gate(transport, |t| t.stall(20 * SECOND).deadline(30 * SECOND));
    let mut body = gate.client().call(chat(false)).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), ANSWER);
    assert_idle(&gate);
    tokio::time::sleep(60 * SECOND).await;
    assert!(body.frame().await.is_none());
}

const GEMINI_TOKEN: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}]}\r\n\r\n";
const GEMINI_STOP: &str = "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":3,\"candidatesTokenCount\":2}}\r\n\r\n";

fn gemini() -> http::Request<tidegate::RequestBody> {
    http::Request::post("http://llm/v1beta/models/m:streamGenerateContent?alt=sse").body("{}".into()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn gemini_streams_are_observed() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        // Google's error format: JSON over several lines, without an event, up to the end of the
        // body.
        let shed = "{\n  \"error\": {\n    \"code\": 503,\n    \"status\": \"UNAVAILABLE\"\n  }\n}\n";
        let frames = match n {
            0 => vec![(MS, Some(shed))],
            1 => vec![(MS, Some(GEMINI_TOKEN)), (MS, Some(GEMINI_STOP))],
            _ => vec![(MS, Some(GEMINI_TOKEN))],
        };
        Ok(sse(exchange, frames))
    });
    let gate = gate(transport, |t| t);
    let body = read(gate.client().call(gemini()).await.unwrap()).await.unwrap();
    assert_eq!(body, [GEMINI_TOKEN, GEMINI_STOP].concat());
    assert_eq!(
        seen.attempts(),
        2,
        "an error as first event is a failed attempt, though no empty line ends it"
    );
    let error = read(gate.client().call(gemini()).await.unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    let snapshot = gate.snapshot();
    let tenant = &snapshot.targets["llm"].tenants["default"];
    assert_eq!((tenant.input_tokens, tenant.output_tokens, tenant.ttft.count), (3, 2, 2));
    assert_eq!((tenant.outcomes["completed"], tenant.outcomes["truncated"]), (1, 1));
}

/// A redirect contains no provider stream that could be incomplete. It is returned to the caller,
/// whose SDK follows it.
#[tokio::test(start_paused = true)]
async fn redirect_is_not_truncated() {
    for stream in [false, true] {
        let (transport, seen) =
            upstream(|_, _, _exchange| async move { Ok(status(307, &[("location", "/v2")], "")) });
        let gate = gate(transport, |t| t);
        let response = gate.client().call(chat(stream)).await.unwrap();
        assert_eq!(response.status(), 307);
        assert_eq!(read(response).await.unwrap(), "");
        assert_eq!(seen.attempts(), 1);
        assert_eq!(gate.snapshot().targets["llm"].tenants["default"].outcomes["completed"], 1);
    }
}

/// Some readers do not poll a body that announces length 0. The call is recorded as failed without
/// such a poll.
#[tokio::test(start_paused = true)]
async fn empty_error_response_is_a_failure() {
    let (transport, _) = upstream(|_, _, _exchange| async move { Ok(status(400, &[], "")) });
    let gate = gate(transport, |t| t);
    drop(gate.client().call(chat(false)).await.unwrap());
    assert_eq!(gate.snapshot().targets["llm"].tenants["default"].outcomes["failed"], 1);
    assert_eq!(gate.calls().records()[0].outcome, "failed");
}

#[tokio::test(start_paused = true)]
async fn unfinished_responses_raise_the_length_estimate() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        let frames = if n < 10 {
            vec![(MS, Some(TOKEN)), (MS, Some(TOKEN)), (MS, Some(STOP)), (MS, Some(DONE))]
        } else {
            let mut frames = vec![(MS, Some(TOKEN)); 200];
            frames.push((1_000_000 * MS, Some(DONE)));
            frames
        };
        Ok(sse(exchange, frames))
    });
    let gate = gate(transport, |t| t);
    for _ in 0..10 {
        read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    }
    // Makes a call, drops its response, and returns its estimated output tokens.
    let expected = async || {
        let call = async { read(gate.client().call(chat(true)).await?).await };
        assert!(tokio::time::timeout(MS, call).await.is_err());
        gate.calls().records().pop().unwrap().estimated_output_tokens.unwrap()
    };
    assert_eq!(expected().await, 2);
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let client = gate.client();
        readers.spawn(async move { read(client.call(chat(true)).await?).await });
    }
    tokio::time::sleep(500 * MS).await;
    let in_flight = expected().await;
    assert!(in_flight > 100, "{in_flight}");
    readers.shutdown().await;
    let cancelled = expected().await;
    assert!(cancelled > 100, "{cancelled}");
    assert_idle(&gate);
}
