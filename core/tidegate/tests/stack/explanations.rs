//! Tests of `Gate::explain`: what it states about calls and tool requests that wait.

use std::time::Duration;

use futures_util::FutureExt;
use tidegate::config::Target;
use tidegate::{CallStatus, Context, Gate, RequestBody};
use tokio::time::sleep;

use crate::support::*;

fn named(call: &str) -> http::Request<RequestBody> {
    let mut request = chat(false);
    request.extensions_mut().insert(Context { call: Some(call.into()), ..Context::default() });
    request
}

/// Returns a gate with one slot of `llm`, whose responses take 60 s, and one slot of the tool `db`.
fn slow() -> Gate {
    let (transport, _) = upstream(|_, _, exchange| async move {
        sleep(60 * SECOND).await;
        Ok(json(exchange, ANSWER))
    });
    Gate::builder()
        .target(Target::new("llm").url("http://llm").cap(1))
        .tool("db", 1)
        .build_over(transport)
        .unwrap()
}

fn start(gate: &Gate, call: &str) -> tokio::task::JoinHandle<Result<bytes::Bytes, tidegate::Error>> {
    let (client, request) = (gate.client(), named(call));
    tokio::spawn(async move { read(client.call(request).await?).await })
}

#[tokio::test(start_paused = true)]
async fn call_is_explained_until_it_ends() {
    let gate = slow();
    let first = start(&gate, "first");
    sleep(SECOND).await;
    let second = start(&gate, "second");
    sleep(4 * SECOND).await;
    let told = gate.explain("first").unwrap();
    assert_eq!(
        (told.state, told.rule, told.waited, told.target.as_deref()),
        (CallStatus::InFlight, None, 5.0, Some("llm"))
    );
    assert!(told.text.contains("llm") && told.text.contains("5.0 s"), "{}", told.text);
    let told = gate.explain("second").unwrap();
    assert_eq!(
        (told.state, told.rule, told.waited, told.ahead),
        (CallStatus::Waiting, Some("slots"), 4.0, Some(0))
    );
    assert_eq!((&*told.tenant, told.lane, told.label.as_deref()), ("default", "standard", Some("second")));
    assert!(told.text.contains("a slot of llm") && told.text.contains("4.0 s"), "{}", told.text);
    assert_eq!(gate.explain(told.call).unwrap().label.as_deref(), Some("second"));
    assert!(gate.explain("third").is_none() && gate.explain(u64::MAX).is_none());
    let all: Vec<_> = gate.explain_all(10).into_iter().map(|told| told.label.unwrap()).collect();
    assert_eq!(all.iter().map(|label| &**label).collect::<Vec<_>>(), ["second", "first"]);
    assert_eq!(gate.explain_all(1).len(), 1);
    first.await.unwrap().unwrap();
    assert!(gate.explain("first").is_none());
    second.await.unwrap().unwrap();
    assert!(gate.explain_all(10).is_empty());
    let log: Vec<_> = gate.calls().records().iter().map(|call| call.label.clone().unwrap()).collect();
    assert_eq!(log.iter().map(|label| &**label).collect::<Vec<_>>(), ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn shared_label_refers_to_the_call_that_waits_longest() {
    let gate = slow();
    let calls: Vec<_> = (0..3).map(|n| (n, start(&gate, "job"))).collect();
    sleep(SECOND).await;
    let told = gate.explain("job").unwrap();
    assert_eq!((told.state, told.ahead), (CallStatus::Waiting, Some(0)));
    calls.into_iter().for_each(|(_, call)| call.abort());
}

#[tokio::test(start_paused = true)]
async fn explanation_of_a_backoff_names_failure_and_delay() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        if n == 0 { Ok(status(500, &[], "{}")) } else { Ok(json(exchange, ANSWER)) }
    });
    let gate = gate(transport, |t| t);
    let call = start(&gate, "job");
    let told = loop {
        match gate.explain("job") {
            Some(told) if told.state == CallStatus::BackingOff => break told,
            _ => tokio::task::yield_now().await,
        }
    };
    assert!(told.text.contains("server_error") && told.text.contains("llm"), "{}", told.text);
    assert!(told.expected.is_some_and(|left| left <= 0.5));
    call.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn explanation_names_a_cool_down() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        if n == 0 { Ok(status(429, &[("retry-after", "30")], "{}")) } else { Ok(json(exchange, ANSWER)) }
    });
    let gate = gate(transport, |t| t);
    let call = start(&gate, "job");
    sleep(5 * SECOND).await;
    let told = gate.explain("job").unwrap();
    assert_eq!((told.state, told.rule), (CallStatus::Waiting, Some("cool_down")));
    call.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_tool_is_explained() {
    let gate = slow();
    let busy = gate.acquire_tool("db", &Context::default()).await.unwrap();
    let context = Context { call: Some("x".repeat(1_000_000).into()), ..Context::default() };
    let label = "x".repeat(200);
    {
        let mut waits = std::pin::pin!(gate.acquire_tool("db", &context));
        assert!(waits.as_mut().now_or_never().is_none());
        sleep(Duration::from_millis(1500)).await;
        let told = gate.explain(&*label).unwrap();
        assert_eq!(
            (told.state, told.tool.as_deref(), told.rule),
            (CallStatus::Waiting, Some("db"), Some("slots"))
        );
        assert_eq!((told.waited, told.target), (1.5, None));
        assert!(told.text.contains("the tool db"), "{}", told.text);
        assert!(gate.explain(told.call).is_some());
    }
    assert!(gate.explain(&*label).is_none());
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn error_contains_the_number_of_its_call() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    let gate = gate(transport, |t| t.cap(1).wait(SECOND));
    let _slot = gate.acquire_slot("llm", &Context::default()).await.unwrap();
    let error = gate.client().call(chat(false)).await.unwrap_err();
    assert_eq!(error.call(), Some(gate.calls().records()[0].id));
    assert_eq!(
        gate.acquire_slot("llm", &Context::default()).await.unwrap_err().call(),
        Some(gate.calls().records()[1].id)
    );
}

#[tokio::test(start_paused = true)]
async fn request_without_inference_is_not_explained_as_waiting() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        sleep(SECOND).await;
        Ok(json(exchange, "{}"))
    });
    let gate = gate(transport, |t| t);
    let request = http::Request::get("http://llm/v1/models").body(RequestBody::default()).unwrap();
    let client = gate.client();
    let call = tokio::spawn(async move { read(client.call(request).await?).await });
    sleep(SECOND / 2).await;
    let told = gate.explain_all(1).pop().unwrap();
    assert_eq!(told.state, CallStatus::InFlight);
    assert!(told.text.contains("without a slot"), "{}", told.text);
    call.await.unwrap().unwrap();
}
