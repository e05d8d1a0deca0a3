//! Tests of retries: how many attempts are made, when, and what is returned to the caller.

use std::time::Duration;

use futures_util::future::join_all;
use http::Request;
use tidegate::config::{Retry, Target};
use tidegate::{Context, Error, ErrorKind, Reason};
use tokio::time::Instant;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn failed_attempt_is_retried_and_its_success_returned() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        Ok(if n < 2 { status(500, &[], "{}") } else { json(exchange, ANSWER) })
    });
    let gate = gate(transport, |t| t);
    assert_eq!(read(gate.client().call(chat(false)).await.unwrap()).await.unwrap(), ANSWER);
    assert_eq!(seen.attempts(), 3);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn returned_failure_forbids_retries_and_is_otherwise_unchanged() {
    let body = r#"{"error": {"message": "boom", "type": "server_error"}}"#;
    let (transport, seen) =
        upstream(move |_, _, _| async move { Ok(status(503, &[("x-request-id", "r1")], body)) });
    let gate = gate(transport, |t| t);
    let response = gate.client().call(chat(false)).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["x-should-retry"], "false");
    assert_eq!(response.headers()["x-request-id"], "r1");
    assert_eq!(read(response).await.unwrap(), body);
    assert_eq!(seen.attempts(), 4);
}

#[tokio::test(start_paused = true)]
async fn rejection_by_admission_is_not_counted_as_a_failure_without_a_retry() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    let gate = gate(transport, |t| t.cap(1).wait(SECOND));
    let _held = gate.acquire_slot("llm", &Context::default()).await.unwrap();
    let error = gate.client().call(chat(false)).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::WaitBudget));
    let target = &gate.snapshot().targets["llm"];
    assert!(target.gave_up.is_empty(), "{:?}", target.gave_up);
    assert_eq!(target.tenants["default"].refused["wait_budget"], 1);
}

#[tokio::test(start_paused = true)]
async fn error_after_a_sent_attempt_does_not_claim_that_nothing_was_sent() {
    let (transport, _) = upstream(|_, _, _| async { Ok(status(500, &[], "{}")) });
    let rejecting = gate(transport, |t| t.cap(1).wait(SECOND));
    let client = rejecting.client();
    let sent = tokio::spawn(async move { client.call(chat(false)).await.map(drop) });
    tokio::task::yield_now().await;
    let _held = rejecting.acquire_slot("llm", &Context::default()).await.unwrap();
    let queued = rejecting.client().call(chat(false)).await.unwrap_err();
    assert_eq!((queued.reason(), queued.never_sent()), (Some(Reason::WaitBudget), true));
    let sent = sent.await.unwrap().unwrap_err();
    assert_eq!((sent.reason(), sent.never_sent()), (Some(Reason::WaitBudget), false), "{sent}");
    assert!(sent.message().contains("the last attempt failed: server_error"), "{sent}");

    let (transport, _) = upstream(|n, _, _| async move {
        if n == 0 { Ok(status(500, &[], "{}")) } else { Err(Error::new(ErrorKind::Connect, "refused")) }
    });
    let error = gate(transport, |t| t).client().call(chat(false)).await.unwrap_err();
    assert_eq!((error.kind(), error.never_sent()), (ErrorKind::Connect, false));
}

#[tokio::test(start_paused = true)]
async fn caller_sets_the_number_of_attempts() {
    for (max_attempts, expected) in [(None, 4), (Some(0), 1), (Some(1), 1), (Some(9), 9)] {
        let (transport, seen) = upstream(|_, _, _| async { Ok(status(500, &[], "{}")) });
        let mut request = chat(false);
        request.extensions_mut().insert(Context { max_attempts, ..Context::default() });
        let response = gate(transport, |t| t).client().call(request).await.unwrap();
        assert_eq!((response.status().as_u16(), seen.attempts()), (500, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn permanent_failure_is_not_retried() {
    for (code, body) in [
        (400, "{}"),
        (401, "{}"),
        (404, "{}"),
        (429, r#"{"error": {"code": "insufficient_quota"}}"#),
        (501, "{}"),
    ] {
        let (transport, seen) = upstream(move |_, _, _| async move { Ok(status(code, &[], body)) });
        let response = gate(transport, |t| t).client().call(chat(false)).await.unwrap();
        assert_eq!((response.status().as_u16(), seen.attempts()), (code, 1));
        assert_eq!(response.headers()["x-should-retry"], "false");
    }
}

#[tokio::test(start_paused = true)]
async fn post_that_may_have_run_is_retried_only_if_safe() {
    let unknown = || Request::post("http://llm/v1/charge").body("{}".into()).unwrap();
    let (transport, seen) = upstream(|_, _, _| async { Ok(status(500, &[], "{}")) });
    gate(transport, |t| t).client().call(unknown()).await.unwrap();
    assert_eq!(seen.attempts(), 1);
    // A failed connection attempt has executed nothing.
    let (transport, seen) = upstream(|_, _, _| async { Err(Error::new(ErrorKind::Connect, "refused")) });
    let error = gate(transport, |t| t).client().call(unknown()).await.unwrap_err();
    assert_eq!((error.kind(), seen.attempts()), (ErrorKind::Connect, 4));
}

#[tokio::test(start_paused = true)]
async fn retry_after_delays_all_calls_of_the_target() {
    let start = Instant::now();
    let (transport, seen) = upstream(move |_, _, exchange| async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(if start.elapsed() < 3 * SECOND {
            let left = (3 * SECOND - start.elapsed()).as_millis().to_string();
            status(429, &[("retry-after-ms", &left)], "{}")
        } else {
            json(exchange, ANSWER)
        })
    });
    let gate = gate(transport, |t| t);
    let calls = (0..100u32).map(|n| {
        let client = gate.client();
        async move {
            tokio::time::sleep(Duration::from_millis(20) * n).await;
            read(client.call(chat(false)).await?).await
        }
    });
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert!(seen.attempts() <= 100 + 5, "{} attempts", seen.attempts());
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn retry_after_beyond_the_deadline_fails_at_once() {
    let (transport, seen) = upstream(|_, _, _| async { Ok(status(429, &[("retry-after", "100")], "{}")) });
    let gate = gate(transport, |t| t);
    let with_deadline = || {
        let mut request = chat(false);
        request
            .extensions_mut()
            .insert(Context { deadline: Some(Instant::now() + 30 * SECOND), ..Context::default() });
        request
    };
    let start = Instant::now();
    let response = gate.client().call(with_deadline()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &"100".parse().unwrap())
    );
    drop(response);
    let error = gate.client().call(with_deadline()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::CoolDown));
    assert!(error.retry_after().unwrap() > 99 * SECOND);
    assert_eq!((start.elapsed(), seen.attempts()), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn retry_budget_limits_amplification() {
    // Every other call fails, so no outage is detected and each failure would be retried.
    let (transport, seen) = upstream(|n, _, exchange| async move {
        Ok(if n % 2 == 0 { status(500, &[], "{}") } else { json(exchange, ANSWER) })
    });
    let gate = gate(transport, |t| t.retry(Retry::new().ratio(0.1).reserve(0)));
    for _ in 0..1000 {
        drop(gate.client().call(chat(false)).await.unwrap());
    }
    assert!(seen.attempts() <= 1100, "{}", seen.attempts());
    assert!(gate.snapshot().targets["llm"].gave_up["budget"] > 0);
}

#[tokio::test(start_paused = true)]
async fn unreachable_host_fails_soon() {
    let (transport, seen) = upstream(|_, _, _| async { Err(Error::new(ErrorKind::Connect, "no such host")) });
    let gate = gate(transport, |t| t);
    let start = Instant::now();
    let calls = (0..10).map(|_| async { gate.client().call(chat(false)).await.map(drop) });
    for result in join_all(calls).await {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Connect);
    }
    assert!(start.elapsed() < 10 * SECOND);
    assert!(seen.attempts() <= 40);
}

#[tokio::test(start_paused = true)]
async fn calls_are_held_during_an_outage_and_succeed() {
    // With 1 seed in 400, a call fails four times before the outage is recognized, and is given up.
    fastrand::seed(1);
    let start = Instant::now();
    let down = move || (10 * SECOND..70 * SECOND).contains(&start.elapsed());
    let (transport, seen) = upstream(move |_, _, exchange| async move {
        if down() {
            return Err(Error::new(ErrorKind::Connect, "refused"));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(json(exchange, ANSWER))
    });
    let gate = gate(transport, |t| t);
    let calls = (0..1800u32).map(|n| {
        let client = gate.client();
        async move {
            tokio::time::sleep(Duration::from_millis(50) * n).await;
            let mut request = chat(false);
            request
                .extensions_mut()
                .insert(Context { deadline: Some(Instant::now() + 300 * SECOND), ..Context::default() });
            read(client.call(request).await?).await
        }
    });
    let failed = join_all(calls).await.into_iter().filter(Result::is_err).count();
    assert_eq!(failed, 0);
    assert!(seen.attempts() <= 1800 * 12 / 10, "{}", seen.attempts());
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn log_and_rejections_name_the_cause_of_an_outage() {
    // The times of the probes are random. Few are so close to the deadline that it comes first.
    fastrand::seed(1);
    let (lines, _guard) = LogLines::collect();
    let (transport, _) = upstream(|n, _, exchange| async move {
        match n {
            0 => Ok(json(exchange, ANSWER)),
            _ => Err(Error::new(ErrorKind::Connect, "refused").with_connect_refused()),
        }
    });
    let gate = gate(transport, |t| t);
    read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    for _ in 0..2 {
        let mut request = chat(false);
        let deadline = Some(Instant::now() + 30 * SECOND);
        request.extensions_mut().insert(Context { deadline, ..Context::default() });
        let error = gate.client().call(request).await.unwrap_err();
        let cause = "the last call that was sent to the target failed (connections are refused)";
        assert!(error.message().contains(cause), "{error}");
    }
    let begins = "WARN: an outage of the target begins: its last calls failed (connections are refused)";
    assert_eq!(lines.take("outage"), [begins]);
}

#[tokio::test(start_paused = true)]
async fn invalid_request_does_not_end_an_outage() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        match n {
            0 | 5 => Ok(json(exchange, ANSWER)),
            4 => Err(Error::new(ErrorKind::Request, "no such scheme")),
            _ => Err(Error::new(ErrorKind::Transport, "broke off")),
        }
    });
    let gate = gate(transport, |t| t.retry(Retry::new().attempts(1)));
    for _ in 0..4 {
        let _ = gate.client().call(chat(false)).await.map(drop);
    }
    assert_eq!(gate.snapshot().targets["llm"].state, "cooling");
    let error = gate.client().call(chat(false)).await.expect_err("the probe is malformed");
    assert_eq!(error.kind(), ErrorKind::Request);
    assert_eq!(gate.snapshot().targets["llm"].state, "probing", "the next call is the probe");
    read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    assert!(!["cooling", "probing"].contains(&gate.snapshot().targets["llm"].state));
}

#[tokio::test(start_paused = true)]
async fn slot_is_released_during_a_backoff() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        Ok(if n == 0 { status(500, &[], "{}") } else { json(exchange, ANSWER) })
    });
    let gate = gate(transport, |t: Target| t.cap(1).retry(Retry::new().base(100 * SECOND).max(100 * SECOND)));
    let client = gate.client();
    let first = tokio::spawn(async move { read(client.call(chat(false)).await?).await });
    tokio::task::yield_now().await;
    let start = Instant::now();
    read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    first.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn cancelled_retry_refunds_the_retry_budget() {
    let (transport, _) = upstream(|_, _, _| async { Ok(status(500, &[], "{}")) });
    let gate =
        gate(transport, |t| t.retry(Retry::new().base(100 * SECOND).max(100 * SECOND).ratio(0.0).reserve(3)));
    let before = || gate.snapshot().targets["llm"].retry_budget;
    let client = gate.client();
    let call = tokio::spawn(async move { client.call(chat(false)).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(before(), 2.0);
    call.abort();
    let _ = call.await;
    assert_eq!(before(), 3.0);
}

#[tokio::test(start_paused = true)]
async fn invalid_retry_after_is_ignored() {
    for value in ["-1", "NaN", "inf", "soon", "Thu, 01 Jan 1970 00:00:00 GMT", ""] {
        let (transport, seen) = upstream(move |n, _, exchange| async move {
            Ok(if n == 0 { status(429, &[("retry-after", value)], "{}") } else { json(exchange, ANSWER) })
        });
        let start = Instant::now();
        let response = gate(transport, |t| t).client().call(chat(false)).await.unwrap();
        assert_eq!((response.status().as_u16(), seen.attempts()), (200, 2), "{value:?}");
        assert!(start.elapsed() < 5 * SECOND, "{value:?} took {:?}", start.elapsed());
    }
    let (transport, seen) = upstream(|_, _, _| async { Ok(status(429, &[("retry-after", "1e9")], "{}")) });
    let response = gate(transport, |t| t).client().call(chat(false)).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), seen.attempts()),
        (429, 1),
        "a floor is never shortened: fail now"
    );
}

/// Makes one call that succeeds, and then six concurrent calls. The upstream processes these and
/// answers with the status `code`. Returns the number of attempts of the six calls, their statuses,
/// and the time that they took.
async fn calls_that_ran_and_failed(code: u16) -> (usize, Vec<u16>, std::time::Duration) {
    let (transport, seen) = upstream(move |n, _, exchange| async move {
        Ok(if n == 0 { json(exchange, ANSWER) } else { status(code, &[], "{}") })
    });
    let gate = gate(transport, |t| t.retry(Retry::new().attempts(2)));
    read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    let start = Instant::now();
    let calls = (0..6).map(|_| async { gate.client().call(chat(false)).await.unwrap().status().as_u16() });
    let codes = join_all(calls).await;
    (seen.attempts() - 1, codes, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn call_that_may_have_run_is_not_repeated_endlessly_in_an_outage() {
    let (attempts, codes, took) = calls_that_ran_and_failed(500).await;
    assert!(attempts <= 12, "{attempts}");
    assert_eq!(codes, [500; 6], "and the provider's own answer is handed up");
    assert!(took < 60 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn cancelled_retry_that_was_sent_is_charged() {
    let (transport, _) = upstream(|n, _, _| async move {
        if n > 0 {
            std::future::pending::<()>().await;
        }
        Ok(status(500, &[], "{}"))
    });
    let gate = gate(transport, |t| t.retry(Retry::new().ratio(0.0).reserve(3)));
    let client = gate.client();
    let _ = tokio::time::timeout(5 * SECOND, client.call(chat(false))).await;
    assert_eq!(gate.snapshot().targets["llm"].retry_budget, 2.0);
}

#[tokio::test(start_paused = true)]
async fn calls_with_a_deadline_are_held_although_the_target_never_worked() {
    let start = Instant::now();
    let (transport, seen) = upstream(move |_, _, exchange| async move {
        if start.elapsed() < 60 * SECOND {
            return Err(Error::new(ErrorKind::Connect, "refused"));
        }
        Ok(json(exchange, ANSWER))
    });
    let gate = gate(transport, |t| t);
    let calls = (0..300u32).map(|n| {
        let client = gate.client();
        async move {
            tokio::time::sleep(Duration::from_millis(200) * n).await;
            let mut request = chat(false);
            request
                .extensions_mut()
                .insert(Context { deadline: Some(Instant::now() + 300 * SECOND), ..Context::default() });
            read(client.call(request).await?).await
        }
    });
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert!(seen.attempts() <= 360, "{}", seen.attempts());
}

#[tokio::test(start_paused = true)]
async fn all_waits_of_a_call_share_one_budget() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        Ok(if n == 1 {
            status(500, &[], "{}")
        } else {
            sse(exchange, vec![(SECOND * 6 * (1 + n as u32), None)])
        })
    });
    let gate = gate(transport, |t| t.cap(1).wait(10 * SECOND).retry(Retry::new().attempts(2)));
    let call = || {
        let gate = gate.clone();
        tokio::spawn(async move {
            let start = Instant::now();
            let result = gate.client().call(chat(true)).await;
            (start.elapsed(), result.map(|_| ()).map_err(|error| error.reason()))
        })
    };
    // The first call has the slot for 6 s, the second then fails in it at once, and the third has
    // it from then on.
    let (_first, second, third) = (call(), call(), call());
    let (took, result) = second.await.unwrap();
    assert_eq!(result, Err(Some(Reason::WaitBudget)));
    assert!(
        took >= 10 * SECOND && took < 11 * SECOND,
        "6 s, a backoff, and the 4 s that were left: {took:?}"
    );
    third.abort();
}

/// The error status is returned within 2 s, even if the body of the error never ends.
#[tokio::test(start_paused = true)]
async fn endless_error_body_does_not_delay_its_status() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        let mut response =
            sse(exchange, vec![(Duration::ZERO, Some("no key")), (3600 * SECOND, Some("; sorry"))]);
        *response.status_mut() = http::StatusCode::UNAUTHORIZED;
        Ok(response)
    });
    let gate = gate(transport, |t| t);
    let start = Instant::now();
    let response = gate.client().call(chat(false)).await.unwrap();
    assert_eq!((response.status().as_u16(), start.elapsed() < 2 * SECOND), (401, true));
    drop(response);
    assert_idle(&gate);
}

/// An error with a local cause, such as an exhausted connection pool of the caller, does not start
/// a cool-down of the target. The call is retried, because nothing was sent.
#[tokio::test(start_paused = true)]
async fn local_failure_is_retried_and_is_no_evidence() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        if n == 0 || n > 8 {
            return Ok(json(exchange, ANSWER));
        }
        Err(Error::new(ErrorKind::ConnectTimeout, "no connection is free").with_local_cause())
    });
    let gate = gate(transport, |t| t.retry(Retry::new().attempts(2)));
    gate.client().call(chat(false)).await.unwrap();
    for _ in 0..4 {
        let error = gate.client().call(chat(false)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectTimeout);
    }
    assert_eq!(seen.attempts(), 9, "each was tried twice, and none held back");
    let snapshot = gate.snapshot();
    assert!(snapshot.targets["llm"].state == "open" && snapshot.targets["llm"].cool_downs.is_empty());
    gate.client().call(chat(false)).await.unwrap();
}
