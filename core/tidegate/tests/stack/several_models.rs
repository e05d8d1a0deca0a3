//! Tests of a configured target that several models or credentials use: a `Retry-After` delays only
//! the model and credential that received it.

use std::time::Duration;

use http::{Request, Response};
use tidegate::config::Config;
use tidegate::{Error, Gate, RequestBody, ResponseBody, Transport};
use tokio::time::Instant;

use crate::support::*;

/// Returns a provider that asks calls of `big`, and calls with the key `used-up`, to wait for 30 s.
/// The model `down` gets status 503.
fn provider() -> Transport {
    let (transport, _) = upstream(|_, request: Request<RequestBody>, exchange| async move {
        let body = request.body().bytes().map(|body| String::from_utf8_lossy(body).into_owned());
        let Some(body) = body else { return Ok(status(404, &[], "")) };
        let is_used_up = request.headers().get("authorization").is_some_and(|key| key == "Bearer used-up");
        Ok(match () {
            () if is_used_up || body.contains("big") => status(429, &[("retry-after", "30")], "{}"),
            () if body.contains("down") => status(503, &[], "{}"),
            () => json(exchange, ANSWER),
        })
    });
    transport
}

fn gate(settings: &str) -> Gate {
    let config = format!(
        "[targets.llm]\nurl = \"http://far/v1\"\ncap = 4\nretry.attempts = 1\n{settings}\n\
         [targets.spare]\nurl = \"http://spare/v1\"\nmodel = \"small\"\ncap = 4\n"
    );
    Gate::over(Config::from_toml(&config).unwrap(), provider()).unwrap()
}

async fn call(gate: &Gate, key: &str, model: &str) -> Result<Response<ResponseBody>, Error> {
    let request = Request::post("http://far/v1/chat/completions")
        .header("authorization", format!("Bearer {key}"))
        .body(format!(r#"{{"model":"{model}","messages":[]}}"#).into())
        .unwrap();
    gate.client().call(request).await
}

async fn status_of(gate: &Gate, key: &str, model: &str) -> u16 {
    call(gate, key, model).await.unwrap().status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_one_model_or_key_does_not_delay_others() {
    for (key, model) in [("k", "big"), ("used-up", "small")] {
        let gate = gate("");
        assert_eq!(status_of(&gate, "k", "small").await, 200);
        assert_eq!(status_of(&gate, key, model).await, 429);
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(status_of(&gate, "k", "small").await, 200);
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "{key}, {model}");
        // The rejected ones still wait.
        assert_eq!(status_of(&gate, key, model).await, 429);
        let waited = start.elapsed();
        assert!((30 * SECOND..32 * SECOND).contains(&waited), "{key}, {model}: {waited:?}");
        assert_idle(&gate);
    }
}

/// The target does not know of several models when it is asked to wait.
#[tokio::test(start_paused = true)]
async fn first_call_of_another_model_ends_the_wait_for_itself_alone() {
    let gate = gate("");
    assert_eq!(status_of(&gate, "k", "big").await, 429);
    let start = Instant::now();
    let queued = {
        let gate = gate.clone();
        tokio::spawn(async move { status_of(&gate, "k", "big").await })
    };
    settle().await;
    assert_eq!(gate.snapshot().targets["llm"].queue_depth, 1);
    assert_eq!(status_of(&gate, "k", "small").await, 200);
    assert_eq!(start.elapsed(), Duration::ZERO);
    settle().await;
    assert!(!queued.is_finished(), "its model is asked to wait");
    assert_eq!(gate.snapshot().targets["llm"].queue_depth, 1);
    assert_eq!(queued.await.unwrap(), 429);
    assert!(start.elapsed() >= 30 * SECOND);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn outage_concerns_all_models() {
    let gate = gate("deadline = \"5s\"");
    assert_eq!(status_of(&gate, "k", "small").await, 200);
    for _ in 0..3 {
        drop(call(&gate, "k", "down").await);
    }
    assert_eq!(gate.snapshot().targets["llm"].state, "cooling");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn call_of_a_model_in_a_cool_down_falls_back_within_its_wait() {
    let gate = gate("fallback = \"spare\"\nwait = \"2s\"");
    assert_eq!(status_of(&gate, "k", "small").await, 200);
    assert_eq!(status_of(&gate, "k", "big").await, 429);
    let start = Instant::now();
    let response = call(&gate, "k", "big").await.unwrap();
    assert!(start.elapsed() <= 2 * SECOND);
    assert_eq!(response.headers()["x-tidegate-fallback"], "spare");
    drop(response);
    assert_idle(&gate);
}
