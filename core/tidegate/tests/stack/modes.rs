//! Tests of the modes `observe` and `off`, and of requests that bypass the queue. Each test uses a
//! whole client over a scripted upstream.

use std::time::Duration;

use futures_util::future::join_all;
use http::Request;
use tidegate::config::Mode;
use tidegate::{Config, Gate};
use tokio::time::Instant;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn observe_mode_changes_nothing_and_counts_its_decisions() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        tokio::time::sleep(SECOND).await;
        Ok(if n == 0 { status(500, &[], "{}") } else { sse(exchange, vec![(SECOND, Some(TOKEN))]) })
    });
    let config =
        Config::from_toml("mode = 'observe'\n[targets.llm]\nurl = 'http://llm'\ncap = 2\nqueue = 3").unwrap();
    let gate = Gate::over(config, transport).unwrap();
    let start = Instant::now();
    let results = join_all((0..10).map(|_| async { gate.client().call(chat(true)).await })).await;
    assert_eq!((start.elapsed(), seen.peak()), (SECOND, 10), "nobody waits");
    let mut responses = results.into_iter().map(Result::unwrap);
    let failed = responses.next().unwrap();
    assert_eq!(failed.status(), 500);
    assert!(!failed.headers().contains_key("x-should-retry"));
    drop(failed);
    for response in responses {
        read(response).await.expect("a truncated stream passes as it is");
    }
    assert_eq!(seen.attempts(), 10, "nothing is retried");
    let target = &gate.snapshot().targets["llm"];
    assert_eq!(target.would["wait"], 8);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn mode_off_passes_everything_to_the_transport() {
    let (transport, seen) = upstream(|_, _, _| async { Ok(status(500, &[], "{}")) });
    let gate = Gate::over(Config { mode: Mode::Off, ..Config::default() }, transport).unwrap();
    let response = gate.client().call(chat(false)).await.unwrap();
    assert!(!response.headers().contains_key("x-should-retry"));
    assert_eq!(seen.attempts(), 1);
    assert!(gate.snapshot().targets.is_empty());
}

#[tokio::test(start_paused = true)]
async fn requests_without_inference_bypass_the_queue() {
    let (transport, _) = upstream(|_, request, exchange| async move {
        if request.uri().path().ends_with("chat/completions") {
            tokio::time::sleep(100 * SECOND).await;
        }
        Ok(json(exchange, ANSWER))
    });
    let gate = gate(transport, |t| t.cap(1));
    let client = gate.client();
    let held = tokio::spawn(async move { read(client.call(chat(false)).await?).await });
    tokio::task::yield_now().await;
    let start = Instant::now();
    let models = Request::get("http://llm/v1/models").body(Default::default()).unwrap();
    let file = Request::post("http://llm/v1/files").body("x".into()).unwrap();
    for request in [models, file] {
        read(gate.client().call(request).await.unwrap()).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    held.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_unconfigured_model_and_key_is_its_own_target() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    let gate = Gate::over(Config::default(), transport).unwrap();
    for (model, key) in [("a", "sk-1"), ("b", "sk-1"), ("a", "sk-2"), ("a", "sk-1")] {
        let body = format!(r#"{{"model": "{model}"}}"#);
        let request = Request::post("https://api.openai.com/v1/chat/completions")
            .header("authorization", format!("Bearer {key}"))
            .body(body.into_bytes().into())
            .unwrap();
        read(gate.client().call(request).await.unwrap()).await.unwrap();
    }
    let names: Vec<_> = gate.snapshot().targets.into_keys().map(|name| name.to_string()).collect();
    assert_eq!(names, ["api.openai.com/a", "api.openai.com/a#2", "api.openai.com/b"]);
    let shown = format!("{:?} {} {}", gate.snapshot(), gate.prometheus(), gate.calls().jsonl());
    assert!(!shown.contains("sk-"), "no credential is ever shown");
}

#[tokio::test(start_paused = true)]
async fn client_read_timeout_applies_in_observe_mode() {
    let (transport, _) = upstream(|_, _, _| async { std::future::pending().await });
    let gate = Gate::over(Config { mode: Mode::Observe, ..Config::default() }, transport).unwrap();
    let mut request = chat(false);
    request.extensions_mut().insert(tidegate::Timeouts { read: Some(SECOND), pool: None });
    let error = gate.client().call(request).await.unwrap_err();
    assert_eq!(error.kind(), tidegate::ErrorKind::FirstTokenTimeout);
}

#[tokio::test(start_paused = true)]
async fn requests_without_inference_are_not_goodput() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, "{}")) });
    let gate = gate(transport, |t| t.ttft(SECOND));
    let models = Request::get("http://llm/v1/models").body(Default::default()).unwrap();
    read(gate.client().call(models).await.unwrap()).await.unwrap();
    let tenant = &gate.snapshot().targets["llm"].tenants["default"];
    assert_eq!((tenant.objective_met, tenant.duration.count), (0, 0));
}
