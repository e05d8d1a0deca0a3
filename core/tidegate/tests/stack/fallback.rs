//! Tests of fallbacks: calls that one target rejects and another admits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::{HeaderMap, Request, Response};
use parking_lot::Mutex;
use tidegate::config::{Config, Mode};
use tidegate::{Context, Error, ErrorKind, Gate, Lane, Reason, RequestBody, ResponseBody, Transport};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use crate::support::*;

/// The name and value of an environment variable that cargo sets for every test. Used as a
/// credential.
const KEY: (&str, &str) = ("CARGO_PKG_NAME", env!("CARGO_PKG_NAME"));

/// A request that an upstream received.
struct Sent {
    url: String,
    headers: HeaderMap,
    body: String,
}

/// Returns an upstream and the list of requests that it received. The host `one` never answers, the
/// host `down` answers with status 429 and a `Retry-After` of an hour, and all others answer
/// successfully.
fn hosts() -> (Transport, Arc<Mutex<Vec<Sent>>>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = sent.clone();
    let (transport, _) = upstream(move |_, request, exchange| {
        let (url, headers) = (request.uri().clone(), request.headers().clone());
        let body = request.body().bytes().map(|body| String::from_utf8(body.to_vec()).unwrap());
        let stream = body.as_ref().is_some_and(|body| body.contains("\"stream\": true"));
        seen.lock().push(Sent { url: url.to_string(), headers, body: body.unwrap_or_default() });
        async move {
            match url.host() {
                Some("one") => std::future::pending().await,
                Some("down") => Ok(status(429, &[("retry-after", "3600")], "{}")),
                _ if stream => {
                    Ok(sse(exchange, [ROLE, TOKEN, STOP, DONE].map(|f| (SECOND, Some(f))).to_vec()))
                }
                _ => Ok(json(exchange, ANSWER)),
            }
        }
    });
    (transport, sent)
}

/// Returns an upstream that answers every request immediately, and the list of requests that it
/// received.
fn upstream_of_anything() -> (Transport, Arc<Mutex<Vec<Sent>>>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = sent.clone();
    let (transport, _) = upstream(move |_, request, exchange| {
        let (url, headers) = (request.uri().to_string(), request.headers().clone());
        seen.lock().push(Sent { url, headers, body: String::new() });
        async move { Ok(json(exchange, ANSWER)) }
    });
    (transport, sent)
}

/// Returns an upstream and what it saw. The host `one` gives the result of `fail` to each request,
/// and all others answer successfully.
fn failing_first(
    fail: impl Fn() -> Result<Response<ResponseBody>, Error> + Clone + Send + Sync + 'static,
) -> (Transport, Arc<Seen>) {
    upstream(move |_, request, exchange| {
        let failure = (request.uri().host() == Some("one")).then(&fail);
        async move { failure.unwrap_or_else(|| Ok(json(exchange, ANSWER))) }
    })
}

/// Returns a gate with `targets`. Unless they have defaults, no metrics are read, so that the
/// servers get calls only.
fn over(transport: Transport, targets: &str) -> Gate {
    let defaults = if targets.contains("[defaults]") { "" } else { NO_METRICS };
    let config = format!("{defaults}{targets}");
    Gate::over(Config::from_toml(&config).expect("a configuration"), transport).expect("a gate")
}

const NO_METRICS: &str = "[defaults]\nmetrics = \"off\"\n";

const PAIR: &str = r#"
[targets.first]
url = "http://one/v1"
cap = 1
on_full = "refuse"
fallback = "second"

[targets.second]
url = "http://two:8000/api/v1"
model = "spare"
key_env = "CARGO_PKG_NAME"
forward_headers = "X-Mine"
"#;

fn ask(stream: bool) -> Request<RequestBody> {
    let body = format!(r#"{{ "n": 1.0, "model": "large", "stream": {stream}, "messages": [] }}"#);
    Request::post("http://one/v1/chat/completions?api-version=1&x=1")
        .header("authorization", "Bearer sk-first")
        .header("content-length", body.len())
        .header("host", "one")
        .header("x-mine", "kept")
        .extension(Context { tenant: Some("acme".into()), lane: Lane::Batch, ..Context::default() })
        .body(body.into_bytes().into())
        .unwrap()
}

/// Starts a call that holds the only slot of the target `first` until the returned task is aborted.
async fn hold(gate: &Gate) -> tokio::task::JoinHandle<Result<Response<ResponseBody>, Error>> {
    let client = gate.client();
    let held = tokio::spawn(async move { client.call(ask(false)).await });
    tokio::task::yield_now().await;
    held
}

fn refusal(result: Result<Response<ResponseBody>, Error>) -> Error {
    let error = result.expect_err("refused");
    assert!(error.reason().is_some(), "{error}");
    error
}

#[tokio::test(start_paused = true)]
async fn rejected_call_completes_at_the_fallback() {
    for stream in [false, true] {
        let (transport, sent) = hosts();
        let gate = over(transport, PAIR);
        let before = gate.prometheus();
        assert!(
            before.contains(r#"tidegate_fallbacks_total{reason="no_slot",target="first"} 0"#),
            "{before}"
        );
        let held = hold(&gate).await;
        let response = gate.client().call(ask(stream)).await.unwrap();
        assert_eq!(response.headers()["x-tidegate-fallback"], "second");
        let body = read(response).await.unwrap();
        assert_eq!(body, if stream { [ROLE, TOKEN, STOP, DONE].concat() } else { ANSWER.to_owned() });

        let arrived = sent.lock().pop().unwrap();
        assert_eq!(arrived.url, "http://two:8000/api/v1/chat/completions?api-version=1");
        let expected = format!(r#"{{ "n": 1.0, "model": "spare", "stream": {stream}, "messages": [] }}"#);
        assert_eq!(arrived.body, expected, "nothing but the model is written anew");
        let header = |name: &str| arrived.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("authorization"), Some(format!("Bearer {}", KEY.1)));
        assert_eq!(header("content-length"), Some(expected.len().to_string()));
        assert_eq!((header("host"), header("x-mine")), (None, Some("kept".to_owned())));

        let snapshot = gate.snapshot();
        let (first, second) = (&snapshot.targets["first"], &snapshot.targets["second"]);
        assert_eq!((first.fallbacks["no_slot"], first.attempts, second.attempts), (1, 1, 1));
        assert!(second.fallbacks.is_empty());
        let (refused, completed) = (gate.calls().records().remove(0), gate.calls().records().remove(1));
        assert_eq!((&*refused.target, refused.outcome, refused.fallback_from), ("first", "refused", None));
        assert_eq!((&*completed.target, completed.outcome), ("second", "completed"));
        assert_eq!((completed.fallback_from.as_deref(), completed.id), (Some("first"), refused.id));
        assert_eq!(
            (&*completed.tenant, completed.lane, completed.model.as_deref()),
            ("acme", "batch", Some("spare"))
        );

        held.abort();
        let _ = held.await;
        assert_idle(&gate);
        let after = gate.prometheus();
        let later = added(&before, &after);
        assert!(later.iter().all(|name| is_by_lane(name)), "no other series appears later: {later:?}");
        let shown = format!("{snapshot:?} {after} {}", gate.calls().jsonl());
        assert!(!shown.contains("Bearer") && !shown.contains("sk-first"));
    }
}

#[tokio::test(start_paused = true)]
async fn fallback_keeps_age_and_deadline_of_the_call() {
    let (transport, _) = hosts();
    let targets = r#"
        [targets.first]
        url = "http://one/v1"
        cap = 1
        wait = "3s"
        fallback = "second"
        predict = "off"
        [targets.second]
        url = "http://one/v2"
        cap = 1
        model = "spare"
        predict = "off"
    "#;
    let gate = over(transport, targets);
    let held = hold(&gate).await;
    let there = gate.acquire_slot("second", &Context::default()).await.unwrap();
    let start = Instant::now();
    let mut request = ask(false);
    request.extensions_mut().insert(Context { deadline: Some(start + 10 * SECOND), ..Context::default() });
    let error = refusal(gate.client().call(request).await);
    assert_eq!((error.reason(), start.elapsed()), (Some(Reason::Deadline), 10 * SECOND));
    assert_eq!(error.target(), Some("second"));
    assert!(error.message().contains("because first rejected it (wait_budget)"), "{error}");
    let records = gate.calls().records();
    assert_eq!(records.iter().map(|record| record.duration).collect::<Vec<_>>(), [3.0, 10.0]);
    assert_eq!(records[1].attempts[0].queued_at, 3.0, "since the user asked");

    // A client with a pool timeout of 2 s waits for a slot once, not once per target.
    let start = Instant::now();
    let mut request = ask(false);
    request.extensions_mut().insert(tidegate::Timeouts { read: None, pool: Some(2 * SECOND) });
    let error = refusal(gate.client().call(request).await);
    assert_eq!((error.reason(), start.elapsed()), (Some(Reason::ClientTimeout), 2 * SECOND));
    drop(there);
    held.abort();
    let _ = held.await;
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn time_in_flight_does_not_use_the_pool_timeout_of_the_fallback() {
    let (transport, _) = upstream(|_, _, _exchange| async move {
        tokio::time::sleep(5 * SECOND).await;
        Ok(status(500, &[], "{}"))
    });
    let targets = r#"
        [targets.first]
        url = "http://one/v1"
        cap = 1
        wait = "1s"
        fallback = "second"
        predict = "off"
        [targets.second]
        url = "http://one/v2"
        cap = 1
        model = "spare"
        predict = "off"
    "#;
    let gate = over(transport, targets);
    let there = gate.acquire_slot("second", &Context::default()).await.unwrap();
    let mut request = ask(false);
    request.extensions_mut().insert(tidegate::Timeouts { read: None, pool: Some(3 * SECOND) });
    let client = gate.client();
    let call = tokio::spawn(async move { client.call(request).await });
    // The slot goes to another caller while the call backs off. The retry waits 1 s for it.
    tokio::time::sleep(9 * SECOND / 2).await;
    let taken = gate.acquire_slot("first", &Context::default()).await.unwrap();
    let error = refusal(call.await.unwrap());
    assert_eq!((error.reason(), error.target()), (Some(Reason::ClientTimeout), Some("second")));
    let record = gate.calls().records().remove(1);
    let waited = record.duration - record.attempts[0].queued_at;
    assert!((waited - 2.0).abs() < 0.01, "{waited} s of the 2 s that are left");
    drop((there, taken));
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn fallback_chain_ends_and_sends_no_key_to_another_target() {
    let (transport, sent) = hosts();
    let targets = r#"
        [defaults]
        cap = 1
        on_full = "refuse"
        fallback = "third"
        [targets.first]
        url = "http://one/v1"
        fallback = "second"
        [targets.second]
        url = "http://two/v1"
        model = "b"
        key_env = "CARGO_PKG_NAME"
        [targets.third]
        url = "http://three"
        model = "c"
    "#;
    let gate = over(transport, targets);
    let held = hold(&gate).await;
    let second = gate.acquire_slot("second", &Context::default()).await.unwrap();
    let response = gate.client().call(ask(false)).await.unwrap();
    assert_eq!(response.headers()["x-tidegate-fallback"], "third");
    let arrived = sent.lock().pop().unwrap();
    assert_eq!(
        (&*arrived.url, arrived.headers.get("authorization")),
        ("http://three/v1/chat/completions?api-version=1", None)
    );
    let snapshot = gate.snapshot();
    assert_eq!(
        (snapshot.targets["first"].fallbacks["no_slot"], snapshot.targets["second"].fallbacks["no_slot"]),
        (1, 1)
    );
    // The last target has no fallback: its slot is held, so it rejects the next call.
    let error = refusal(gate.client().call(ask(false)).await);
    assert_eq!((error.target(), error.reason()), (Some("third"), Some(Reason::NoSlot)));
    assert!(error.message().contains("because first rejected it (no_slot)"), "{error}");
    // A target that is not configured falls back as well.
    drop((response, second));
    let other = || Request::post("http://other/v1/chat/completions").body("{}".into()).unwrap();
    let own = gate.client().call(other()).await.unwrap();
    assert!(!own.headers().contains_key("x-tidegate-fallback"));
    let response = gate.client().call(other()).await.unwrap();
    assert_eq!(response.headers()["x-tidegate-fallback"], "third");
    assert_eq!(sent.lock().pop().unwrap().body, r#"{"model":"c"}"#);
    drop((own, response));
    held.abort();
    let _ = held.await;
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn callers_key_is_sent_only_to_its_own_server() {
    const KEYS: [&str; 10] = [
        "authorization",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "ocp-apim-subscription-key",
        "cf-aig-authorization",
        "helicone-auth",
        "x-portkey-api-key",
        "proxy-authorization",
        "cookie",
    ];
    let azure = "/openai/deployments/d/chat/completions?api-version=1";
    let chat = "/v1/chat/completions";
    let google = "/v1beta/models/m:generateContent?alt=sse";
    for (path, spare, key_env, expected) in [
        (chat, "http://one:80/other", "", None),
        (chat, "http://one:8000", "", Some(vec![])),
        (chat, "https://one", "", Some(vec![])),
        (chat, "http://two", "", Some(vec![])),
        (chat, "http://two", KEY.0, Some(vec![("authorization", "Bearer tidegate")])),
        // Between Azure and other providers: the key is sent in the header that each expects.
        (azure, "http://two", KEY.0, Some(vec![("api-key", "tidegate")])),
        (chat, "http://two.openai.azure.com", KEY.0, Some(vec![("api-key", "tidegate")])),
        ("/v1/messages", "http://two", KEY.0, Some(vec![("x-api-key", "tidegate")])),
        (google, "http://two", KEY.0, Some(vec![("x-goog-api-key", "tidegate")])),
        (chat, "http://one/other", KEY.0, Some(vec![("authorization", "Bearer tidegate")])),
    ] {
        let (transport, sent) = upstream_of_anything();
        let key = if key_env.is_empty() { String::new() } else { format!("key_env = \"{key_env}\"") };
        let targets = format!(
            "[targets.first]\nurl = \"http://one\"\ncap = 1\n\
             on_full = \"refuse\"\nfallback = \"second\"\n[targets.second]\nurl = \"{spare}\"\nmodel = \"m\"\n{key}\n"
        );
        let gate = over(transport, &targets);
        let held = gate.acquire_slot("first", &Context::default()).await.unwrap();
        let with = if path.contains('?') { '&' } else { '?' };
        let secrets = "key=sk-mine&subscription-key=sk-mine&beta=1";
        let mut request = Request::post(format!("http://one{path}{with}{secrets}"));
        for name in KEYS {
            request = request.header(name, "sk-mine");
        }
        let response = gate.client().call(request.body(r#"{"model":"a"}"#.into()).unwrap()).await.unwrap();
        assert_eq!(response.headers()["x-tidegate-fallback"], "second");
        read(response).await.unwrap();
        let arrived = sent.lock().pop().unwrap();
        let keys: Vec<_> = KEYS
            .iter()
            .filter_map(|name| Some((*name, arrived.headers.get(*name)?.to_str().unwrap())))
            .collect();
        match expected {
            Some(expected) => {
                assert_eq!(keys, expected, "{path} at {spare}");
                assert!(
                    !arrived.url.contains("sk-mine") && arrived.url.ends_with("beta=1"),
                    "{}",
                    arrived.url
                );
            }
            None => {
                assert_eq!(keys, KEYS.map(|name| (name, "sk-mine")), "{path} at {spare}");
                assert!(arrived.url.ends_with(secrets), "{}", arrived.url);
            }
        }
        drop(held);
    }
}

#[tokio::test(start_paused = true)]
async fn cool_down_sends_other_calls_to_the_fallback() {
    let (transport, sent) = hosts();
    let targets =
        PAIR.replace("http://one/v1", "http://down/v1").replace("on_full = \"refuse\"", "deadline = \"60s\"");
    let gate = over(transport, &targets);
    let ask = || {
        let (mut parts, body) = ask(false).into_parts();
        parts.uri = "http://down/v1/chat/completions".parse().unwrap();
        Request::from_parts(parts, body)
    };
    // A response of the provider is returned to the caller. Only rejections of the gate fall back.
    let response = gate.client().call(ask()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.headers().contains_key("x-tidegate-fallback")),
        (429, false)
    );
    drop(response);
    let response = gate.client().call(ask()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-tidegate-fallback"]),
        (200, &"second".parse().unwrap())
    );
    assert_eq!(sent.lock().len(), 2, "the first is left alone");
    assert_eq!(gate.snapshot().targets["first"].fallbacks["cool_down"], 1);
}

/// The first target is not reachable, or asks callers to wait for 30 s.
#[tokio::test(start_paused = true)]
async fn call_falls_back_from_a_closed_target_within_its_wait() {
    for (is_down, reason) in [(true, "outage"), (false, "cool_down")] {
        for (setting, wait) in [("wait = \"1s\"", SECOND), ("on_full = \"refuse\"", Duration::ZERO)] {
            let (transport, _) = failing_first(move || match is_down {
                true => Err(Error::new(ErrorKind::Connect, "refused")),
                false => Ok(status(429, &[("retry-after", "30")], "{}")),
            });
            let settings = format!("{setting}\ndeadline = \"60s\"");
            let targets = PAIR.replace("on_full = \"refuse\"", &settings).replace("cap = 1", "cap = 8");
            let gate = over(transport, &targets);
            // The retries of the first calls are rejected, after a backoff of at most 0.5 s.
            let start = Instant::now();
            let calls = (0..3).map(|_| async { gate.client().call(ask(false)).await.unwrap() });
            for response in join_all(calls).await {
                assert_eq!(response.headers()["x-tidegate-fallback"], "second");
            }
            let took = start.elapsed();
            assert!(took <= wait + SECOND * 6 / 10, "{reason}, {setting}: {took:?}");
            let start = Instant::now();
            let response = gate.client().call(ask(false)).await.unwrap();
            assert_eq!(response.headers()["x-tidegate-fallback"], "second");
            let took = start.elapsed();
            assert!(took <= wait + SECOND / 10, "{reason}, {setting}: {took:?}");
            drop(response);
            assert_eq!(gate.snapshot().targets["first"].fallbacks[reason], 4);
            assert_idle(&gate);
        }
    }
}

/// The first target asks callers to wait, so that it has not run the call, and then rejects the
/// retry. The path is unknown, so that the request must not be repeated if it may have run.
#[tokio::test(start_paused = true)]
async fn call_that_must_not_be_repeated_falls_back_if_it_has_not_run() {
    let (transport, seen) = failing_first(|| Ok(status(429, &[("retry-after", "2")], "{}")));
    let gate = over(transport, PAIR);
    let (mut parts, body) = ask(false).into_parts();
    parts.uri = "http://one/v1/custom".parse().unwrap();
    let response = gate.client().call(Request::from_parts(parts, body)).await.unwrap();
    assert_eq!(response.headers()["x-tidegate-fallback"], "second");
    drop(response);
    assert_eq!((seen.attempts(), gate.snapshot().targets["first"].fallbacks["cool_down"]), (2, 1));
    assert_idle(&gate);
}

/// The target has never worked, so no outage is detected.
#[tokio::test(start_paused = true)]
async fn call_without_a_connection_falls_back() {
    let (transport, seen) = failing_first(|| Err(Error::new(ErrorKind::Connect, "refused")));
    let gate = over(transport, PAIR);
    let response = gate.client().call(ask(false)).await.unwrap();
    assert_eq!(response.headers()["x-tidegate-fallback"], "second");
    drop(response);
    assert!(seen.attempts() > 2, "its retries come first");
    assert_eq!(gate.snapshot().targets["first"].fallbacks["outage"], 1);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn fallback_model_replaces_the_model_in_the_path() {
    for (url, path, body, expected, body_there) in [
        (
            "http://one",
            "/openai/deployments/large/chat/completions?api-version=1",
            r#"{"messages":[]}"#,
            "http://two/openai/deployments/sp%2Fare/chat/completions?api-version=1",
            r#"{"messages":[]}"#,
        ),
        (
            "http://one",
            "/openai/deployments/large/chat/completions?api-version=1",
            r#"{"model":"large","messages":[]}"#,
            "http://two/openai/deployments/sp%2Fare/chat/completions?api-version=1",
            r#"{"model":"sp/are","messages":[]}"#,
        ),
        (
            "http://one",
            "/v1beta/models/large:generateContent?alt=sse&key=sk-first",
            r#"{"contents":[]}"#,
            "http://two/v1beta/models/sp%2Fare:generateContent?alt=sse",
            r#"{"contents":[]}"#,
        ),
        (
            "http://one/v1",
            "/v1/messages",
            r#"{"model":"a","model":"b"}"#,
            "http://two/v1/messages",
            r#"{"model":"sp/are","model":"sp/are"}"#,
        ),
    ] {
        let (transport, sent) = hosts();
        let targets = PAIR.replace("http://one/v1", url).replace("http://two:8000/api/v1", "http://two");
        let gate = over(transport, &targets.replace("\"spare\"", "\"sp/are\""));
        let held = gate.acquire_slot("first", &Context::default()).await.unwrap();
        let request = Request::post(format!("http://one{path}")).body(body.into()).unwrap();
        read(gate.client().call(request).await.unwrap()).await.unwrap();
        let arrived = sent.lock().pop().unwrap();
        assert_eq!((&*arrived.url, &*arrived.body), (expected, body_there));
        drop(held);
    }
}

#[tokio::test(start_paused = true)]
async fn request_that_cannot_be_redirected_is_rejected_with_the_reason() {
    let (transport, sent) = hosts();
    let gate = over(transport, PAIR);
    let held = gate.acquire_slot("first", &Context::default()).await.unwrap();
    let upload = RequestBody::stream(http_body_util::StreamBody::new(futures_util::stream::empty()));
    let post = |name: &'static str, value: &'static str, body: RequestBody| {
        Request::post("http://one/v1/chat/completions").header(name, value).body(body).unwrap()
    };
    for (request, why) in [
        (post("x", "y", upload), "upload"),
        (post("authorization", "AWS4-HMAC-SHA256 Credential=A/b", "{}".into()), "signed"),
        (post("content-encoding", "gzip", "\u{1}".into()), "compressed"),
        (post("content-type", "multipart/form-data", "--x".into()), "not a JSON object"),
    ] {
        let error = refusal(gate.client().call(request).await);
        assert_eq!((error.reason(), error.target()), (Some(Reason::NoSlot), Some("first")));
        assert!(
            error.message().contains("the fallback second cannot be used") && error.message().contains(why),
            "{error}"
        );
    }
    assert!(sent.lock().is_empty());
    drop(held);
    assert_eq!(gate.snapshot().targets["first"].fallbacks.len(), 0);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn no_fallback_while_draining_or_in_observe_mode() {
    let (transport, sent) = hosts();
    let gate = over(transport, &PAIR.replace("on_full = \"refuse\"", ""));
    let held = hold(&gate).await;
    let waiting = hold(&gate).await;
    gate.drain(SECOND).await;
    let error = refusal(waiting.await.unwrap());
    assert_eq!((error.reason(), error.target()), (Some(Reason::Draining), Some("first")));
    held.abort();
    assert_eq!(sent.lock().len(), 1);

    let (transport, _) = hosts();
    let config = Config { mode: Mode::Observe, ..Config::from_toml(PAIR).unwrap() };
    let gate = Gate::over(config, transport).unwrap();
    let (held, also) = (hold(&gate).await, hold(&gate).await);
    assert_eq!(gate.snapshot().targets["first"].in_flight, 2);
    held.abort();
    also.abort();
}

#[tokio::test(start_paused = true)]
async fn call_cancelled_in_the_fallback_queue_releases_everything() {
    let (transport, _) = hosts();
    let gate = over(transport, &PAIR.replace("[targets.second]", "[targets.second]\ncap = 1"));
    let held = hold(&gate).await;
    let there = gate.acquire_slot("second", &Context::default()).await.unwrap();
    let left = hold(&gate).await;
    assert_eq!(gate.snapshot().targets["second"].queue_depth, 1);
    left.abort();
    let _ = left.await;
    assert_eq!((gate.snapshot().targets["second"].queue_depth, gate.snapshot().active), (0, 2));
    drop(there);
    held.abort();
    let _ = held.await;
    assert_idle(&gate);
}

#[test]
fn missing_key_is_an_error_when_the_gate_is_created() {
    let (transport, _) = hosts();
    let config = Config::from_toml(&PAIR.replace(KEY.0, "NO_SUCH_VARIABLE_IS_SET")).unwrap();
    let error = Gate::over(config.clone(), transport.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error
            .message()
            .contains("targets.second.key_env: NO_SUCH_VARIABLE_IS_SET is not set in the environment"),
        "{error}"
    );
    Gate::over(Config { mode: Mode::Observe, ..config }, transport).expect("a gate that never needs it");
}

#[tokio::test(start_paused = true)]
async fn password_in_the_url_is_sent_only_to_its_own_server() {
    for (spare, key_env, expected) in [
        ("http://one/v1\"\nmodels = \"b", "", "http://user:secret@one/v1/chat/completions"),
        ("http://one/v1\"\nmodels = \"b", "key_env = \"CARGO_PKG_NAME\"", "http://one/v1/chat/completions"),
        ("http://two/v1", "", "http://two/v1/chat/completions"),
    ] {
        let (transport, sent) = upstream_of_anything();
        let targets = format!(
            "[targets.first]\nurl = \"http://one\"\nmodels = \"a\"\ncap = 1\non_full = \"refuse\"\nfallback = \"second\"\n\
             [targets.second]\nurl = \"{spare}\"\nmodel = \"b\"\n{key_env}\n"
        );
        let gate = over(transport, &targets);
        let held = gate.acquire_slot("first", &Context::default()).await.unwrap();
        let request = Request::post("http://user:secret@one/v1/chat/completions");
        let body = r#"{"model":"a"}"#;
        read(gate.client().call(request.body(body.into()).unwrap()).await.unwrap()).await.unwrap();
        assert_eq!(sent.lock().pop().unwrap().url, expected);
        drop(held);
    }
}

/// The shared test case of `tests/vectors/fallback.json`: names of headers and query parameters,
/// and those that a fallback may send to another server. Python and Node use it too.
struct Vectors {
    headers: Vec<String>,
    query: Vec<String>,
    kept_headers: Vec<String>,
    kept_query: Vec<String>,
}

impl Vectors {
    fn read() -> Self {
        let file: serde_json::Value =
            serde_json::from_str(include_str!("../../../../tests/vectors/fallback.json")).unwrap();
        let case = &file["cases"][0];
        let list = |key: &str| -> Vec<String> {
            let names = case[key].as_array().unwrap().iter();
            names.map(|row| row["name"].as_str().or(row.as_str()).unwrap().to_owned()).collect()
        };
        Self {
            headers: list("headers"),
            query: list("query"),
            kept_headers: list("kept_headers"),
            kept_query: list("kept_query"),
        }
    }
}

fn secret(name: &str) -> String {
    format!("secret-of-{}", name.to_lowercase())
}

fn harmless(name: &str) -> String {
    format!("value-of-{name}")
}

/// Sends a request with all headers and query parameters of `vectors` over real sockets while the
/// only slot of its target is held. Returns the request that the fallback server received, in lower
/// case.
///
/// `spare_target` is added to the configuration of the fallback target. If `same_server` is `true`,
/// both targets are on one server.
async fn fallback_receives(vectors: &Vectors, spare_target: &str, same_server: bool) -> String {
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let answer = move |mut socket: tokio::net::TcpStream, request: Vec<u8>| {
        let sender = sender.clone();
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            let text = format!("{head}content-length: {}\r\n\r\n{ANSWER}", ANSWER.len());
            socket.write_all(text.as_bytes()).await.unwrap();
            sender.send(String::from_utf8(request).unwrap()).unwrap();
        }
    };
    let first = crate::sockets::serve(answer.clone()).await;
    let spare = if same_server { first } else { crate::sockets::serve(answer).await };
    let config = format!(
        "{NO_METRICS}[transport]\nproxy_from_env = false\n[targets.first]\nurl = \"http://{first}/v1\"\ncap = 1\non_full = \"refuse\"\n\
         fallback = \"spare\"\n[targets.spare]\nurl = \"http://{spare}/other/v1\"\nmodel = \"small\"\n{spare_target}\n"
    );
    let gate = Gate::new(Config::from_toml(&config).unwrap()).unwrap();
    let held = gate.acquire_slot("first", &Context::default()).await.unwrap();
    let pairs = |names: &[String], value: fn(&str) -> String| -> Vec<String> {
        names.iter().map(|name| format!("{name}={}", value(name))).collect()
    };
    let query = [pairs(&vectors.kept_query, harmless), pairs(&vectors.query, secret)].concat().join("&");
    let mut request = Request::post(format!("http://{first}/v1/chat/completions?{query}"));
    for name in &vectors.kept_headers {
        request = request.header(name, harmless(name));
    }
    for name in &vectors.headers {
        request = request.header(name, secret(name));
    }
    let response = gate.client().call(request.body(r#"{"model":"large"}"#.into()).unwrap()).await.unwrap();
    assert_eq!(response.headers()["x-tidegate-fallback"], "spare");
    read(response).await.unwrap();
    drop(held);
    received.recv().await.unwrap().to_lowercase()
}

#[tokio::test]
async fn no_gateway_credential_is_sent_to_another_server() {
    let vectors = Vectors::read();
    assert!(vectors.headers.len() >= 60 && vectors.query.len() >= 20);
    for target in ["", "key_env = \"CARGO_PKG_NAME\""] {
        let request = fallback_receives(&vectors, target, false).await;
        let seen: Vec<_> = vectors.headers.iter().chain(&vectors.query).collect();
        let leaked: Vec<_> = seen.into_iter().filter(|name| request.contains(&secret(name))).collect();
        assert!(leaked.is_empty(), "{} reach it: {leaked:?}", leaked.len());
        assert!(!request.contains("secret"), "{request}");
        for name in &vectors.kept_headers {
            assert!(request.contains(&format!("{name}: {}\r\n", harmless(name))), "{name}: {request}");
        }
        for name in &vectors.kept_query {
            assert!(request.contains(&format!("{name}={}", harmless(name))), "{name}: {request}");
        }
    }
}

#[tokio::test]
async fn header_in_forward_headers_is_sent_to_another_server() {
    let vectors = Vectors::read();
    let named = format!("forward_headers = {:?}", vectors.headers);
    let request = fallback_receives(&vectors, &named, false).await;
    for name in &vectors.headers {
        assert!(request.contains(&format!("{name}: {}\r\n", secret(name))), "{name}: {request}");
    }
    for name in &vectors.query {
        assert!(!request.contains(&format!("{}=", name.to_lowercase())), "{name}: {request}");
    }
    // The credential of the target replaces a header that `forward_headers` names.
    let own = fallback_receives(&vectors, &format!("key_env = \"CARGO_PKG_NAME\"\n{named}"), false).await;
    assert!(own.contains("authorization: bearer tidegate\r\n"), "{own}");
    assert!(!own.contains(&secret("authorization")), "{own}");
    assert!(own.contains(&secret("x-litellm-api-key")), "{own}");
}

#[tokio::test(start_paused = true)]
async fn fallback_to_a_pool_sends_no_credential_to_its_replicas() {
    for spare in [
        "url = \"http://one/v1\"\npool = { replicas = [\"http://two/v1\"] }",
        "pool = { replicas = [\"http://one/v1\", \"http://two/v1\"] }",
    ] {
        let (transport, sent) = upstream_of_anything();
        let gate = over(
            transport,
            &format!(
                "[targets.first]\nurl = \"http://one/v1\"\nmodels = \"large\"\ncap = 1\non_full = \"refuse\"\n\
                 fallback = \"spare\"\n[targets.spare]\nmodels = \"small\"\nmodel = \"small\"\n{spare}\n"
            ),
        );
        let held = gate.acquire_slot("first", &Context::default()).await.unwrap();
        for _ in 0..8 {
            let response = gate.client().call(ask(false)).await.unwrap();
            assert_eq!(response.headers()["x-tidegate-fallback"], "spare");
            read(response).await.unwrap();
        }
        drop(held);
        for Sent { url, headers, .. } in sent.lock().iter() {
            let shown = format!("{url} {headers:?}");
            assert!(!shown.contains("sk-first") && !headers.contains_key("authorization"), "{shown}");
        }
    }
}

#[tokio::test]
async fn fallback_on_the_same_server_keeps_the_request() {
    let vectors = Vectors::read();
    let request = fallback_receives(&vectors, "", true).await;
    for name in vectors.headers.iter().chain(&vectors.query) {
        assert!(request.contains(&secret(name)), "{name}: {request}");
    }
    // Another credential belongs to another account, so the caller's own headers are not sent.
    let request = fallback_receives(&vectors, "key_env = \"CARGO_PKG_NAME\"", true).await;
    assert!(!request.contains("secret"), "{request}");
}
