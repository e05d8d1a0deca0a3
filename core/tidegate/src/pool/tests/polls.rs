//! Tests of single polls: what each answer of a replica shows about its state.

use std::time::Duration;

use futures_util::stream;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::StreamBody;

use super::support::transport;
use crate::body::ResponseBody;
use crate::clock::now;
use crate::error::{Error, ErrorKind};
use crate::placement::{Observation, PollKind, PollRequest, ReplicaId};
use crate::pool::poller::Poller;
use crate::transport::Transport;
use crate::transport::gate_request::GateRequest;

const METRICS: &str = "vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n";
const MODELS: &str = r#"{"data": [{"id": "m", "max_model_len": 4096}]}"#;

fn poll_request(kind: PollKind) -> PollRequest {
    PollRequest { to: ReplicaId(1), url: "http://10.0.0.1:8000/base".into(), kind }
}

async fn poll(kind: PollKind, transport: Transport) -> Option<Observation> {
    Poller { transport, health: Some("/ready?deep=1".into()), key: None }.poll(&poll_request(kind)).await
}

fn answering(status: u16, body: &'static str) -> Transport {
    transport(move |_| async move {
        let mut response = Response::new(ResponseBody::full(body));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        Ok(response)
    })
}

fn failing(kind: ErrorKind) -> Transport {
    transport(move |_| async move { Err(Error::new(kind, "as scripted")) })
}

fn hanging() -> Transport {
    transport(|_| std::future::pending())
}

#[tokio::test(start_paused = true)]
async fn health_follows_from_the_status() {
    for (status, expected) in [
        (200, Observation::ProbeOk),
        (401, Observation::ProbeOk),
        (404, Observation::ProbeOk),
        (500, Observation::ProbeFailed),
        (503, Observation::ProbeFailed),
    ] {
        assert_eq!(poll(PollKind::Health, answering(status, "whatever")).await, Some(expected), "{status}");
    }
    let refused = || Error::new(ErrorKind::Connect, "as scripted").with_connect_refused();
    let ask_of =
        |error: fn() -> Error| poll(PollKind::Health, transport(move |_| async move { Err(error()) }));
    assert_eq!(
        poll(PollKind::Health, transport(move |_| async move { Err(refused()) })).await,
        Some(Observation::ConnectRefused)
    );
    let no_descriptor = || Error::new(ErrorKind::Connect, "too many open files").with_local_cause();
    assert_eq!(ask_of(no_descriptor).await, None, "it says nothing of the replica");
    for (kind, expected) in [
        (ErrorKind::Connect, Observation::ProbeTimeout),
        (ErrorKind::ConnectTimeout, Observation::ProbeTimeout),
        (ErrorKind::Transport, Observation::ProbeFailed),
        (ErrorKind::Truncated, Observation::ProbeFailed),
    ] {
        assert_eq!(poll(PollKind::Health, failing(kind)).await, Some(expected), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_replica_is_reported_after_half_a_second() {
    let began = now();
    assert_eq!(poll(PollKind::Health, hanging()).await, Some(Observation::ProbeTimeout));
    assert_eq!(now() - began, Duration::from_millis(500));
    // A response head counts, even if its body never ends.
    let stuck =
        transport(|_| async { Ok(Response::new(ResponseBody::new(StreamBody::new(stream::pending())))) });
    assert_eq!(poll(PollKind::Health, stuck).await, Some(Observation::ProbeOk));
}

#[tokio::test(start_paused = true)]
async fn unreadable_metrics_are_unknown() {
    let Some(Observation::Metrics(seen)) = poll(PollKind::Load, answering(200, METRICS)).await else {
        panic!()
    };
    assert_eq!((seen.running, seen.waiting), (2.0, 1.0));
    for transport in
        [answering(404, METRICS), answering(200, "<html>"), failing(ErrorKind::Connect), hanging()]
    {
        assert_eq!(poll(PollKind::Load, transport).await, Some(Observation::MetricsUnreadable));
    }
    let endless = transport(|_| async { Ok(Response::new(ResponseBody::full(vec![b'\n'; (4 << 20) + 1]))) });
    assert_eq!(
        poll(PollKind::Load, endless).await,
        Some(Observation::MetricsUnreadable),
        "more than 4 MiB is not read"
    );
    for (status, body) in [(401, MODELS), (404, "{}"), (200, "{}")] {
        let expected = Observation::ModelsUnreadable(status);
        assert_eq!(poll(PollKind::Models, answering(status, body)).await, Some(expected));
    }
    for transport in [failing(ErrorKind::Connect), hanging()] {
        assert_eq!(poll(PollKind::Models, transport).await, None, "what it serves is what was known");
    }
}

#[tokio::test(start_paused = true)]
async fn polls_use_the_replicas_base_url_and_the_key_only_for_models() {
    let echo = transport(|request| async move {
        let key =
            request.headers().get(AUTHORIZATION).is_some_and(|key| key == "Bearer k" && key.is_sensitive());
        let sent = request.extensions().get::<GateRequest>().map(|kind| (key, *kind));
        let expected = match request.uri().to_string().as_str() {
            "http://10.0.0.1:8000/base/ready?deep=1" => Some((false, GateRequest::HealthProbe)),
            "http://10.0.0.1:8000/base/metrics" => Some((false, GateRequest::Query)),
            "http://10.0.0.1:8000/base/v1/models" => Some((true, GateRequest::Query)),
            _ => None,
        };
        let good = expected.is_some() && sent == expected;
        let body = if request.uri().path().ends_with("models") { MODELS } else { METRICS };
        let mut response = Response::new(ResponseBody::full(body));
        *response.status_mut() = if good { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        Ok(response)
    });
    let mut key = HeaderValue::from_static("Bearer k");
    key.set_sensitive(true);
    let poller = Poller { transport: echo, health: Some("/ready?deep=1".into()), key: Some(key) };
    assert_eq!(poller.poll(&poll_request(PollKind::Health)).await, Some(Observation::ProbeOk));
    assert!(matches!(poller.poll(&poll_request(PollKind::Load)).await, Some(Observation::Metrics(_))));
    assert!(
        matches!(poller.poll(&poll_request(PollKind::Models)).await, Some(Observation::Models(models)) if models.len() == 1)
    );
}
