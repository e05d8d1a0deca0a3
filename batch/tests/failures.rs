//! Tests runs whose server fails, in virtual time.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use support::{answer, answer_with, config, lines, max_tokens, never, numbered, options, paused, play};
use tidegate::config::{Config, Pool};
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody, Transport};
use tidegate_batch::{
    AnsweredLines, Batch, BatchEnd, BatchOptions, Ceilings, LineOutcome, Lines, RunError, Stop,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// An error that OpenRouter sends with status 200.
const ERROR_502: &str = r#"{"error":{"code":502,"message":"the model is not available"}}"#;

#[test]
fn error_with_status_200_is_a_failure() {
    paused(async {
        let (transport, requests) = numbered(|_| Ok(answer_with(200, ERROR_502)));
        let batch = Batch::over(config(|target| target), transport).unwrap();
        let result = play(&batch, options(), lines(0..1), AnsweredLines::default(), never()).await;
        assert_eq!((result.progress().good, result.progress().failed), (0, 1));
        let record = &result.records[0];
        let LineOutcome::Answered(response) = &record.outcome else { panic!("{record:?}") };
        assert_eq!((response.status, response.body.get()), (502, ERROR_502));
        assert!(!record.outcome.is_good());
        assert_eq!(requests.load(Ordering::Relaxed), 3, "such an error may pass");

        let result = play(&batch, options(), lines(0..100), AnsweredLines::default(), never()).await;
        let error = result.ran.unwrap_err();
        assert!(
            matches!(&error, RunError::TooManyFailures { count: 20, last } if last.starts_with("502 ")),
            "{error}"
        );
        assert!(result.records.is_empty());
    });
}

#[test]
fn line_is_sent_again_after_an_error_with_status_200_that_may_pass() {
    const ERROR_400: &str = r#"{"error":{"code":400,"message":"no such parameter"}}"#;
    for (error, expected) in [(ERROR_502, (1, 0, 2)), (ERROR_400, (0, 1, 1))] {
        paused(async {
            let (transport, requests) =
                numbered(move |number| Ok(if number == 0 { answer_with(200, error) } else { answer(200) }));
            let batch = Batch::over(config(|target| target), transport).unwrap();
            let result = play(&batch, options(), lines(0..1), AnsweredLines::default(), never()).await;
            let progress = result.progress();
            let requests = requests.load(Ordering::Relaxed);
            assert_eq!((progress.good, progress.failed, requests), expected, "{error}");
        });
    }
}

/// Returns a line for an endpoint in whose responses the gate finds no ends.
fn embeddings_line() -> &'static str {
    "{\"url\":\"/v1/embeddings\",\"body\":{\"model\":\"m\",\"input\":\"x\"}}\n"
}

#[test]
fn response_that_is_not_a_json_object_is_requested_again_and_is_a_failure() {
    for body in ["<html>log in</html>", "", "{\"object\":\"list\",\"data\":[{", "null", "[{}]"] {
        for (bad, expected) in [(u32::MAX, (0, 1, 3)), (2, (1, 0, 3))] {
            paused(async {
                let (transport, requests) = numbered(move |number| {
                    let mut response = answer_with(200, if number < bad { body } else { "{}" });
                    response.headers_mut().remove(http::header::CONTENT_TYPE);
                    Ok(response)
                });
                let batch = Batch::over(config(|target| target), transport).unwrap();
                let text = embeddings_line();
                let result = play(&batch, options(), text, AnsweredLines::default(), never()).await;
                let progress = result.progress();
                let requests = requests.load(Ordering::Relaxed);
                assert_eq!((progress.good, progress.failed, requests), expected, "{body}");
                if let LineOutcome::Failed(error) = &result.records[0].outcome {
                    assert_eq!(error.code, "invalid_response");
                    assert!(error.message.contains("status 200"), "{}", error.message);
                }
            });
        }
    }
    // The server and not the lines causes such failures, so they stop the run.
    paused(async {
        let (transport, _) = numbered(|_| Ok(answer_with(200, "<html>")));
        let batch = Batch::over(config(|target| target), transport).unwrap();
        let text = embeddings_line().repeat(30);
        let result = play(&batch, options(), text, AnsweredLines::default(), never()).await;
        assert!(matches!(result.ran, Err(RunError::TooManyFailures { count: 20, .. })));
    });
}

#[test]
fn error_with_status_200_is_found_in_all_its_forms() {
    const OLD_VLLM: &str = r#"{"object":"error","message":"too long","code":400}"#;
    const ERROR: &str = r#"{"error":{"message":"too long","code":400}}"#;
    const CHOICE: &str = r#"{"choices":[{"message":{"content":""},"finish_reason":"error","error":{"message":"too long","code":400}}]}"#;
    for (content_type, body) in [
        ("application/json", OLD_VLLM),
        ("text/plain", OLD_VLLM),
        ("text/plain", ERROR),
        ("application/json", CHOICE),
    ] {
        paused(async {
            let (transport, requests) = numbered(move |_| {
                let mut response = answer_with(200, body);
                let content_type = http::HeaderValue::from_static(content_type);
                response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
                Ok(response)
            });
            let batch = Batch::over(config(|target| target), transport).unwrap();
            let result = play(&batch, options(), lines(0..1), AnsweredLines::default(), never()).await;
            let record = &result.records[0];
            let LineOutcome::Answered(response) = &record.outcome else { panic!("{record:?}") };
            assert_eq!((response.status, response.body.get()), (400, body), "{content_type}");
            assert_eq!((result.progress().failed, requests.load(Ordering::Relaxed)), (1, 1));
        });
    }
}

#[test]
fn streams_that_begin_with_an_overload_do_not_count_towards_the_ceilings() {
    const OVERLOADED: &str = "data: {\"error\":{\"code\":503,\"message\":\"overloaded\"}}\n\n";
    const ANSWER: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let text = lines(0..1);
    let one = max_tokens(&text);
    paused(async {
        let (transport, requests) = numbered(|number| {
            let mut response = answer_with(200, if number < 5 { OVERLOADED } else { ANSWER });
            let content_type = http::HeaderValue::from_static("text/event-stream");
            response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
            Ok(response)
        });
        let objective = config(|target| target.ttft(Duration::from_secs(2)));
        let batch = Batch::over(objective, transport).unwrap();
        let options = BatchOptions { ceilings: Ceilings { money: None, tokens: Some(one) }, ..options() };
        let result = play(&batch, options, text.clone(), AnsweredLines::default(), never()).await;
        let progress = result.progress();
        assert_eq!((progress.ended, progress.good), (Some(BatchEnd::Complete), 1));
        assert_eq!(requests.load(Ordering::Relaxed), 6);
    });
}

#[test]
fn retries_of_the_gate_count_towards_the_ceilings() {
    let text = lines(0..1);
    let one = max_tokens(&text);
    for (tokens, expected) in [(one, 1), (2 * one, 2), (3 * one - 1, 2)] {
        paused(async {
            let (transport, requests) = numbered(|_| Err(Error::new(ErrorKind::Transport, "reset")));
            let batch = Batch::over(config(|target| target), transport).unwrap();
            let options =
                BatchOptions { ceilings: Ceilings { money: None, tokens: Some(tokens) }, ..options() };
            let result = play(&batch, options, text.clone(), AnsweredLines::default(), never()).await;
            let (progress, requests) = (result.progress(), requests.load(Ordering::Relaxed));
            assert_eq!((progress.ended, result.records.len()), (Some(BatchEnd::Ceiling), 0));
            assert_eq!(requests, expected, "{tokens} tokens");
            assert_eq!(progress.spend.input + progress.spend.output, u64::from(requests) * one);
        });
    }
}

#[test]
fn requests_that_were_not_executed_do_not_count_towards_the_ceilings() {
    let text = lines(0..1);
    let one = max_tokens(&text);
    paused(async {
        let (transport, requests) = numbered(|number| match number {
            0 => Err(Error::new(ErrorKind::Connect, "refused")),
            1 => Ok(answer(503)),
            2 => Ok(answer(429)),
            3 => Ok(answer(500)),
            _ => Ok(answer(200)),
        });
        let batch = Batch::over(config(|target| target), transport).unwrap();
        let options = BatchOptions { ceilings: Ceilings { money: None, tokens: Some(one) }, ..options() };
        let result = play(&batch, options, text.clone(), AnsweredLines::default(), never()).await;
        let progress = result.progress();
        assert_eq!((progress.ended, progress.good), (Some(BatchEnd::Complete), 1));
        assert_eq!(requests.load(Ordering::Relaxed), 5);
        assert_eq!(progress.spend.input + progress.spend.output, one);
    });
}

type ServerResult = Result<http::Response<ResponseBody>, Error>;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

fn refused() -> ServerResult {
    Err(Error::new(ErrorKind::Connect, "connection refused").with_connect_refused())
}

fn unavailable() -> ServerResult {
    Ok(answer(503))
}

/// Returns a transport that answers 30 requests, then fails as `fail` says for the time `outage`,
/// and then answers again.
fn failing_for(outage: Duration, fail: fn() -> ServerResult) -> Transport {
    let until = Arc::new(OnceLock::new());
    let (transport, _) = numbered(move |number| {
        let is_down = number >= 30 && Instant::now() < *until.get_or_init(|| Instant::now() + outage);
        if is_down { fail() } else { Ok(answer(200)) }
    });
    transport
}

/// Asserts that a run over `transport` ends because of an outage of 30 minutes, after `answered`
/// lines.
async fn assert_ends_in_outage(config: Config, transport: Transport, answered: usize) {
    let batch = Batch::over(config, transport).unwrap();
    let run = play(&batch, options(), lines(0..200), AnsweredLines::default(), never());
    let result = tokio::time::timeout(DAY, run).await.unwrap();
    let error = result.ran.unwrap_err();
    assert!(matches!(error, RunError::ServerDown { .. }), "{error}");
    assert!(error.to_string().contains("down for 30 minutes"), "{error}");
    assert!((1_800.0..1_900.0).contains(&result.seconds), "{} s", result.seconds);
    assert_eq!(result.records.len(), answered);
    assert!(result.records.iter().all(|record| record.outcome.is_good()));
}

#[test]
fn run_ends_when_the_server_has_been_down_for_30_minutes() {
    let failures: [fn() -> ServerResult; 2] = [refused, unavailable];
    for fail in failures {
        paused(assert_ends_in_outage(config(|target| target), failing_for(7 * DAY, fail), 30));
    }
}

#[test]
fn run_ends_when_all_replicas_have_been_down_for_30_minutes() {
    paused(async {
        let pool = Pool::new(["http://10.0.0.1:8000", "http://10.0.0.2:8000"]);
        let (transport, _) = numbered(|_| refused());
        assert_ends_in_outage(config(|target| target.pool(pool)), transport, 0).await;
    });
}

#[test]
fn run_waits_for_a_server_that_returns() {
    for (minutes, max_consecutive_failures) in [(10u32, 20), (45, 0)] {
        paused(async {
            let transport = failing_for(minutes * MINUTE, refused);
            let batch = Batch::over(config(|target| target), transport).unwrap();
            let options = BatchOptions { max_consecutive_failures, ..options() };
            let result = play(&batch, options, lines(0..200), AnsweredLines::default(), never()).await;
            assert_eq!((result.progress().good, result.progress().failed), (200, 0));
            let shown = result.longest_outage - 60.0 * f64::from(minutes);
            assert!((-2.0..10.0).contains(&shown), "{} s", result.longest_outage);
        });
    }
}

/// Returns a transport that allows `limit` requests per minute, and rejects the others until the
/// minute ends.
fn limited_per_minute(limit: u32) -> Transport {
    let start = OnceLock::new();
    let counts = Arc::new(Mutex::new((start, 0, 0)));
    let (transport, _) = numbered(move |_| {
        let (start, minute, count) = &mut *counts.lock();
        let now = start.get_or_init(Instant::now).elapsed().as_secs() / 60;
        if now > *minute {
            (*minute, *count) = (now, 0);
        }
        *count += 1;
        Ok(answer(if *count > limit { 429 } else { 200 }))
    });
    transport
}

#[test]
fn last_lines_wait_for_a_rate_limit() {
    for (count, minutes) in [(1, 0.0), (21, 1.0), (22, 1.0), (41, 2.0)] {
        paused(async move {
            let batch = Batch::over(config(|target| target), limited_per_minute(20)).unwrap();
            let result = play(&batch, options(), lines(0..count), AnsweredLines::default(), never()).await;
            assert_eq!((result.progress().good, result.progress().failed), (count, 0));
            let limits = 60.0 * minutes..60.0 * minutes + 45.0;
            assert!(limits.contains(&result.seconds), "{count} lines: {} s", result.seconds);
        });
    }
}

#[test]
fn rejection_that_waiting_does_not_help_is_recorded() {
    const NO_CREDIT: &str = r#"{"error":{"code":"insufficient_quota","message":"no credit"}}"#;
    paused(async {
        let (transport, requests) = numbered(|_| Ok(answer_with(429, NO_CREDIT)));
        let batch = Batch::over(config(|target| target), transport).unwrap();
        let result = play(&batch, options(), lines(0..1), AnsweredLines::default(), never()).await;
        assert_eq!((result.progress().failed, requests.load(Ordering::Relaxed)), (1, 1));

        for (header, value) in [("x-should-retry", "false"), ("retry-after", "9999999")] {
            let (transport, requests) = numbered(move |_| {
                let mut response = answer(429);
                response.headers_mut().insert(header, http::HeaderValue::from_static(value));
                Ok(response)
            });
            let batch = Batch::over(config(|target| target), transport).unwrap();
            let result = play(&batch, options(), lines(0..1), AnsweredLines::default(), never()).await;
            assert_eq!((result.progress().failed, requests.load(Ordering::Relaxed)), (1, 1), "{header}");
        }
    });
}

#[test]
fn run_waits_for_a_rate_limit_and_says_so() {
    const SLOW_DOWN: &str = r#"{"error":{"message":"slow down"}}"#;
    for (count, give_up_after) in [(1, 20), (30, 20), (1, 0)] {
        paused(async move {
            let (transport, _) = numbered(|_| Ok(answer_with(429, SLOW_DOWN)));
            let batch = Batch::over(config(|target| target), transport).unwrap();
            let (stop, stopped) = watch::channel(Stop::No);
            tokio::spawn(async move {
                tokio::time::sleep(40 * MINUTE).await;
                let _ = stop.send(Stop::Finish);
                std::future::pending::<()>().await
            });
            let options = BatchOptions { max_consecutive_failures: give_up_after, ..options() };
            let result = play(&batch, options, lines(0..count), AnsweredLines::default(), stopped).await;
            let progress = result.progress();
            assert_eq!((progress.ended, result.records.len()), (Some(BatchEnd::Stopped), 0));
            assert!(progress.rate_limited_seconds.unwrap() > 2_300.0, "{progress:?}");
            assert_eq!(progress.rate_limit.as_deref(), Some(&*format!("429 {SLOW_DOWN}")));
        });
    }
}

#[test]
fn single_line_waits_for_a_server_that_is_down() {
    let failures: [fn() -> ServerResult; 2] = [refused, unavailable];
    for fail in failures {
        for (minutes, give_up_after, expected) in [(10, 20, true), (45, 20, false), (45, 0, true)] {
            paused(async move {
                let until = Arc::new(OnceLock::new());
                let (transport, _) = numbered(move |_| {
                    let until = *until.get_or_init(|| Instant::now() + minutes * MINUTE);
                    if Instant::now() < until { fail() } else { Ok(answer(200)) }
                });
                let batch = Batch::over(config(|target| target), transport).unwrap();
                let options = BatchOptions { max_consecutive_failures: give_up_after, ..options() };
                let result = play(&batch, options, lines(0..1), AnsweredLines::default(), never()).await;
                match result.ran {
                    Ok(progress) => assert_eq!((progress.good, progress.failed, expected), (1, 0, true)),
                    Err(error) => {
                        assert!(matches!(error, RunError::ServerDown { .. }) && !expected, "{error}");
                        assert!((1_800.0..1_900.0).contains(&result.seconds), "{} s", result.seconds);
                    }
                }
            });
        }
    }
}

#[test]
fn cancelled_calls_count_with_the_most_that_they_can_cost() {
    let text = lines(0..3);
    let most = max_tokens(&text);
    paused(async {
        let transport = Transport::new(tower::service_fn(|_: http::Request<RequestBody>| {
            std::future::pending::<Result<http::Response<ResponseBody>, Error>>()
        }));
        let batch = Batch::over(config(|target| target), transport).unwrap();
        let (stop, stopped) = watch::channel(Stop::No);
        tokio::spawn(async move {
            tokio::time::sleep(MINUTE).await;
            let _ = stop.send(Stop::Cancel);
            std::future::pending::<()>().await
        });
        let result = play(&batch, options(), text.clone(), AnsweredLines::default(), stopped).await;
        let progress = result.progress();
        assert_eq!(progress.ended, Some(BatchEnd::Cancelled));
        assert_eq!(progress.spend.input + progress.spend.output, most);
    });
}

#[test]
fn calls_of_a_run_that_fails_count_with_the_most_that_they_can_cost() {
    let text = lines(0..2);
    let most = max_tokens(&text);
    paused(async {
        let transport = Transport::new(tower::service_fn(|_: http::Request<RequestBody>| {
            std::future::pending::<Result<http::Response<ResponseBody>, Error>>()
        }));
        let batch = Batch::over(config(|target| target), transport).unwrap();
        let (send, lines) = mpsc::channel(4);
        let mut input = Lines::new(std::io::Cursor::new(text.into_bytes()), 1 << 20);
        while let Some(line) = input.next_line().transpose() {
            send.send(line).await.unwrap();
        }
        tokio::spawn(async move {
            tokio::time::sleep(MINUTE).await;
            let _ = send.send(Err(std::io::Error::other("read failed"))).await;
        });
        let (records, _jobs) = mpsc::channel(64);
        let mut spent = 0;
        let ran = batch.run(options(), AnsweredLines::default(), lines, records, never(), |progress| {
            spent = progress.spend.input + progress.spend.output;
        });
        assert!(matches!(ran.await, Err(RunError::Input(_))));
        assert_eq!(spent, most);
    });
}
