//! Tests of the deadline of calls, which limits waits, retries and streams together.

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tidegate::config::Tenant;
use tidegate::internals::AdmissionLayer;
use tidegate::internals::DeadlineLayer;
use tidegate::policy::schedule::Rule;
use tidegate::{Context, ErrorKind, Reason, RequestBody, Transport};
use tokio::time::{Instant, timeout};
use tower::{Layer, Service, ServiceExt};

use crate::support::*;

type Admission = <AdmissionLayer as Layer<Transport>>::Service;

fn within(limit: Duration, stream: bool) -> Request<RequestBody> {
    with_deadline(chat(stream), limit)
}

fn with_deadline(mut request: Request<RequestBody>, limit: Duration) -> Request<RequestBody> {
    request.extensions_mut().insert(Context { deadline: Some(Instant::now() + limit), ..Context::default() });
    request
}

/// Returns a request that runs no model.
fn list_files() -> Request<RequestBody> {
    Request::get("http://llm/v1/files").body("".into()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_calls_in_the_queue_in_flight_and_in_the_stream() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        if n == 0 {
            std::future::pending::<()>().await;
        }
        Ok(sse(exchange, vec![(SECOND, Some(TOKEN)), (1000 * SECOND, Some(STOP))]))
    });
    let gate = gate(transport, |t| t.cap(1).idle(None));
    let start = Instant::now();
    let client = gate.client();
    let in_flight = tokio::spawn(async move { client.call(within(20 * SECOND, true)).await.map(drop) });
    tokio::task::yield_now().await;
    let queued = gate.client().call(within(10 * SECOND, true)).await.unwrap_err();
    assert_eq!((queued.reason(), start.elapsed()), (Some(Reason::Deadline), 10 * SECOND));
    assert_eq!(queued.status(), 504);
    assert_eq!(in_flight.await.unwrap().unwrap_err().kind(), ErrorKind::Deadline);
    assert_eq!(start.elapsed(), 20 * SECOND);

    let mut body = gate.client().call(within(10 * SECOND, true)).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap_err().kind(), ErrorKind::Deadline);
    assert_eq!((start.elapsed(), seen.in_flight()), (30 * SECOND, 0));
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn call_that_expires_in_the_queue_reports_its_position_and_advice() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        tokio::time::sleep(60 * SECOND).await;
        Ok(json(exchange, ANSWER))
    });
    let gate = gate(transport, |t| t.cap(8).tenant("acme", Tenant::new().cap(1)));
    let client = gate.client();
    let first = tokio::spawn(async move { read(client.call(of("acme")).await?).await });
    tokio::task::yield_now().await;
    let mut request = chat(false);
    let deadline = Some(Instant::now() + 5 * SECOND);
    let context = Context { tenant: Some("acme".into()), deadline, ..Context::default() };
    request.extensions_mut().insert(context);
    let error = gate.client().call(request).await.unwrap_err();
    assert_eq!((error.reason(), error.queue_position()), (Some(Reason::Deadline), Some(0)), "{error}");
    assert!(error.message().contains("raise the tenant's `cap`"), "{error}");
    assert!(error.retry_after().is_some(), "{error}");
    first.await.unwrap().unwrap();
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn call_made_after_its_deadline_says_so() {
    let (transport, seen) = upstream(|_, _, exchange| async move { Ok(json(exchange, "{}")) });
    let gate = gate(transport, |t| t.cap(1));
    let request = within(SECOND, false);
    tokio::time::sleep(2 * SECOND).await;
    let error = gate.client().call(request).await.unwrap_err();
    assert_eq!((error.reason(), error.status().as_u16()), (Some(Reason::Deadline), 504));
    assert_eq!((error.retry_after(), error.why()), (None, None));
    let text = "the deadline of this call's context had passed before the call was made (set a longer deadline, or start the context later)";
    assert_eq!((error.message(), seen.attempts()), (text, 0));
}

/// A slot is released after the wait for it was polled and before the deadline is checked. In a
/// real program, another thread may release a slot at this moment.
#[tokio::test(start_paused = true)]
async fn call_that_expires_in_the_queue_reports_the_rule() {
    let (transport, seen) = upstream(|_, _, exchange| async move { Ok(json(exchange, "{}")) });
    let gate = gate(transport.clone(), |t| t.cap(1));
    let limit = Duration::from_millis(20);
    let mut request = within(limit, false);
    gate.identify(&mut request).unwrap();
    let held = gate.acquire_slot("llm", &Context::default()).await.unwrap();
    let (held, until) = (Arc::new(Mutex::new(Some(held))), Instant::now() + limit);
    let stack = tower::ServiceBuilder::new()
        .layer(DeadlineLayer::default())
        .map_future(move |answer: <Admission as Service<_>>::Future| {
            let (held, mut answer) = (held.clone(), answer);
            std::future::poll_fn(move |cx| {
                let answered = answer.as_mut().poll(cx);
                if answered.is_pending() && until <= Instant::now() {
                    drop(held.lock().take());
                }
                answered
            })
        })
        .layer(AdmissionLayer)
        .service(transport);
    let error = stack.oneshot(request).await.unwrap_err();
    assert_eq!((error.reason(), error.status().as_u16()), (Some(Reason::Deadline), 504));
    assert_eq!(error.why().map(|why| (why.rule, why.waited)), Some((Rule::Turn, limit)));
    assert_eq!(seen.attempts(), 0);
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_a_stream_that_is_not_read() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(SECOND, Some(TOKEN)), (1000 * SECOND, Some(STOP))]))
    });
    let gate = gate(transport, |t| t.stall(None));
    let response = gate.client().call(within(10 * SECOND, true)).await.unwrap();
    tokio::time::sleep(12 * SECOND).await;
    assert_eq!(seen.in_flight(), 0);
    assert_eq!(read(response).await.unwrap_err().kind(), ErrorKind::Deadline);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn own_deadline_ends_requests_that_run_no_model() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        if n == 0 {
            std::future::pending::<()>().await;
        }
        let mut response = sse(exchange, vec![(SECOND, Some("[")), (1000 * SECOND, Some("]"))]);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        Ok(response)
    });
    let gate = gate(transport, |t| t.idle(None));
    let client = gate.client();
    let start = Instant::now();
    let call = || timeout(60 * SECOND, client.call(with_deadline(list_files(), 10 * SECOND)));
    let error = call().await.expect("without a response").unwrap_err();
    assert_eq!((error.kind(), start.elapsed()), (ErrorKind::Deadline, 10 * SECOND));

    let mut body = call().await.unwrap().unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    let error = timeout(60 * SECOND, body.frame()).await.expect("the body breaks").unwrap().unwrap_err();
    assert_eq!((error.kind(), start.elapsed()), (ErrorKind::Deadline, 20 * SECOND));

    let unread = call().await.unwrap().unwrap();
    tokio::time::sleep(12 * SECOND).await;
    assert_eq!(seen.in_flight(), 0);
    assert_eq!(read(unread).await.unwrap_err().kind(), ErrorKind::Deadline);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn default_deadline_does_not_end_requests_that_run_no_model() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        tokio::time::sleep(1000 * SECOND).await;
        Ok(json(exchange, "{}"))
    });
    let gate = gate(transport, |t| t);
    read(gate.client().call(list_files()).await.unwrap()).await.unwrap();
    read(gate.client().call(with_deadline(list_files(), 2000 * SECOND)).await.unwrap()).await.unwrap();
}

/// The first runtime keeps a body open, and is not driven any more.
#[test]
fn deadline_ends_a_stream_that_is_not_read_although_another_runtime_rests() {
    let paused = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let (first, second) = (paused().unwrap(), paused().unwrap());
    let (transport, seen) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(SECOND, Some(TOKEN)), (1000 * SECOND, Some(STOP))]))
    });
    let gate = gate(transport, |t| t.stall(None));
    let kept = first.block_on(gate.client().call(chat(true))).unwrap();
    second.block_on(async {
        tokio::time::sleep(10 * SECOND).await;
        let response = gate.client().call(within(10 * SECOND, true)).await.unwrap();
        tokio::time::sleep(12 * SECOND).await;
        assert_eq!(seen.in_flight(), 1, "the first runtime's");
        assert_eq!(read(response).await.unwrap_err().kind(), ErrorKind::Deadline);
    });
    drop(kept);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_a_backoff() {
    let (transport, _) = upstream(|_, _, _| async { Ok(status(500, &[], "{}")) });
    let gate = gate(transport, |t| t);
    let response = gate.client().call(within(Duration::from_millis(100), false)).await;
    // Either the backoff did not fit and the failure was returned, or the deadline came first.
    match response {
        Ok(response) => assert_eq!(response.status(), 500),
        Err(error) => assert!(error.message().contains("server_error"), "{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn first_token_limit_does_not_apply_without_streaming() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        tokio::time::sleep(60 * SECOND).await;
        Ok(json(exchange, ANSWER))
    });
    let gate = gate(transport, |t| t.first_token(5 * SECOND));
    read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    assert_eq!(seen.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn long_client_timeout_extends_the_default_deadline() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        tokio::time::sleep(1000 * SECOND).await;
        Ok(json(exchange, ANSWER))
    });
    let gate = gate(transport, |t| t);
    let mut request = chat(false);
    request.extensions_mut().insert(tidegate::Timeouts { read: Some(1800 * SECOND), pool: None });
    read(gate.client().call(request).await.unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn timeout_starts_after_the_upload() {
    use http_body_util::BodyExt as _;
    let (transport, _) = upstream(|_, request, exchange| async move {
        request.into_body().collect().await?;
        Ok(json(exchange, "{}"))
    });
    let gate = gate(transport, |t| t);
    // Each frame takes longer than the limit.
    let slow = futures_util::stream::unfold(0, |n| async move {
        tokio::time::sleep(3 * SECOND).await;
        (n < 10).then(|| (Ok(http_body::Frame::data(bytes::Bytes::from_static(b"x"))), n + 1))
    });
    let body = tidegate::RequestBody::stream(http_body_util::StreamBody::new(slow));
    let mut request = Request::post("http://llm/v1/files").body(body).unwrap();
    request.extensions_mut().insert(tidegate::Timeouts { read: Some(2 * SECOND), pool: None });
    read(gate.client().call(request).await.unwrap()).await.unwrap();
}

/// The transport takes parts of one large frame, each within the limit, and then none any more.
#[tokio::test(start_paused = true)]
async fn upload_that_the_transport_stops_reading_times_out_and_releases_its_slot() {
    use http_body_util::BodyExt as _;
    let (transport, seen) = upstream(|_, request, exchange| async move {
        let mut body = request.into_body();
        for _ in 0..3 {
            body.frame().await.unwrap()?;
            tokio::time::sleep(SECOND).await;
        }
        body.frame().await.unwrap()?;
        std::future::pending::<()>().await;
        Ok(json(exchange, "{}"))
    });
    let gate = gate(transport, |t| t.cap(1));
    let large = bytes::Bytes::from(vec![b'x'; 1024 * 1024]);
    let frames = futures_util::stream::iter([Ok(http_body::Frame::data(large))]);
    let body = tidegate::RequestBody::stream(http_body_util::StreamBody::new(frames));
    let mut request = Request::post("http://llm/v1/chat/completions").body(body).unwrap();
    request.extensions_mut().insert(tidegate::Timeouts { read: Some(2 * SECOND), pool: None });
    let start = Instant::now();
    let error = gate.client().call(request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FirstTokenTimeout, "{error}");
    assert!(error.to_string().contains("took no more of the request body for 2.0 s"), "{error}");
    assert_eq!((start.elapsed(), seen.in_flight()), (5 * SECOND, 0));
    assert_idle(&gate);
}
