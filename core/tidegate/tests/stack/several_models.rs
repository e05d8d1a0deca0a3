//! Tests of a configured target that several models or credentials use: a `Retry-After` delays only
//! the model and credential that received it.

use std::time::Duration;

use http::{Request, Response};
use tidegate::config::Config;
use tidegate::{Error, Gate, Reason, RequestBody, ResponseBody, Timeouts, Transport};
use tokio::time::Instant;

use crate::support::*;

/// Returns a provider that asks calls of `big`, and calls with the key `used-up`, to wait for 30 s.
/// The first call of `soon` is asked to wait for 1 s. The model `down` gets status 503, and the
/// responses of `empty` announce that no request is left for a minute.
fn provider() -> Transport {
    let (transport, _) = upstream(|number, request: Request<RequestBody>, exchange| async move {
        let body = request.body().bytes().map(|body| String::from_utf8_lossy(body).into_owned());
        let Some(body) = body else { return Ok(status(404, &[], "")) };
        let is_used_up = request.headers().get("authorization").is_some_and(|key| key == "Bearer used-up");
        Ok(match () {
            () if is_used_up || body.contains("big") => status(429, &[("retry-after", "30")], "{}"),
            () if body.contains("soon") && number == 1 => status(429, &[("retry-after", "1")], "{}"),
            () if body.contains("down") => status(503, &[], "{}"),
            () if body.contains("empty") => {
                let mut response = json(exchange, ANSWER);
                for (name, value) in [("limit", "100"), ("remaining", "0"), ("reset", "60s")] {
                    let name = http::HeaderName::try_from(format!("x-ratelimit-{name}-requests")).unwrap();
                    response.headers_mut().insert(name, value.parse().unwrap());
                }
                response
            }
            () => json(exchange, ANSWER),
        })
    });
    transport
}

fn gate(settings: &str) -> Gate {
    let config = format!(
        "[defaults]\nretry.attempts = 1\n[targets.llm]\nurl = \"http://far/v1\"\ncap = 4\n{settings}\n\
         [targets.spare]\nurl = \"http://spare/v1\"\nmodel = \"small\"\ncap = 4\n"
    );
    Gate::over(Config::from_toml(&config).unwrap(), provider()).unwrap()
}

fn request(key: &str, model: &str) -> Request<RequestBody> {
    Request::post("http://far/v1/chat/completions")
        .header("authorization", format!("Bearer {key}"))
        .body(format!(r#"{{"model":"{model}","messages":[]}}"#).into())
        .unwrap()
}

async fn call(gate: &Gate, key: &str, model: &str) -> Result<Response<ResponseBody>, Error> {
    gate.client().call(request(key, model)).await
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
    let start = Instant::now();
    assert_eq!(status_of(&gate, "k", "small").await, 200);
    assert!(start.elapsed() > Duration::ZERO, "it waits for a probe");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn announced_rate_of_one_model_does_not_delay_others() {
    let gate = gate("");
    assert_eq!(status_of(&gate, "k", "empty").await, 200);
    assert_eq!(gate.snapshot().targets["llm"].budgets["requests"].level, 0);
    let start = Instant::now();
    for model in ["small", "empty", "small", "empty"] {
        assert_eq!(status_of(&gate, "k", model).await, 200);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(gate.snapshot().targets["llm"].budgets.is_empty());
    assert_idle(&gate);
}

/// As in a cool-down of the whole target, a retry waits although the target queues no calls, and
/// the client's timeout for a connection does not end the wait.
#[tokio::test(start_paused = true)]
async fn wait_for_one_model_follows_the_rules_of_the_target() {
    let gate = gate("on_full = \"refuse\"\nretry.attempts = 2");
    assert_eq!(status_of(&gate, "k", "small").await, 200);
    let start = Instant::now();
    assert_eq!(status_of(&gate, "k", "soon").await, 200);
    assert!((SECOND..SECOND * 12 / 10).contains(&start.elapsed()));
    assert_eq!(status_of(&gate, "k", "big").await, 429);
    let refused = call(&gate, "k", "big").await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::CoolDown));
    assert_idle(&gate);

    let gate = self::gate("");
    assert_eq!(status_of(&gate, "k", "small").await, 200);
    assert_eq!(status_of(&gate, "k", "big").await, 429);
    let mut patient = request("k", "big");
    patient.extensions_mut().insert(Timeouts { pool: Some(SECOND), ..Timeouts::default() });
    let start = Instant::now();
    assert_eq!(gate.client().call(patient).await.unwrap().status().as_u16(), 429);
    assert!(start.elapsed() >= 30 * SECOND);
    assert_idle(&gate);
}

/// As many calls may wait for one model as may be queued. Those that were accepted are not rejected
/// after the wait.
#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_one_model_are_bounded_as_queued_calls_are() {
    for setting in ["queue", "backlog", "lanes.standard.queue", "default_tenant.queue"] {
        let gate = gate(&format!("{setting} = 5"));
        assert_eq!(status_of(&gate, "k", "small").await, 200);
        assert_eq!(status_of(&gate, "k", "soon").await, 429);
        let start = Instant::now();
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let gate = gate.clone();
            calls.spawn(async move { status_of(&gate, "k", "soon").await });
        }
        settle().await;
        let rejected = call(&gate, "k", "soon").await.unwrap_err();
        assert_eq!(rejected.reason(), Some(Reason::QueueFull), "{setting}");
        assert_eq!(start.elapsed(), Duration::ZERO, "{setting}");
        assert_eq!(calls.join_all().await, [200; 5], "{setting}");
        assert!(start.elapsed() >= SECOND, "{setting}");
        assert_idle(&gate);
    }
}

#[tokio::test(start_paused = true)]
async fn key_that_is_not_used_for_an_hour_no_longer_counts() {
    let gate = gate("");
    for model in ["small", "other", "empty"] {
        assert_eq!(status_of(&gate, "k", model).await, 200);
    }
    assert!(gate.snapshot().targets["llm"].budgets.is_empty(), "headers of several models are ignored");
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(status_of(&gate, "k", "empty").await, 200);
    assert!(!gate.snapshot().targets["llm"].budgets.is_empty());
    assert_idle(&gate);
}

/// Of several keys, the one that was used last counts.
#[tokio::test(start_paused = true)]
async fn key_counts_for_an_hour_after_its_last_use() {
    let gate = gate("");
    let has_budgets = || !gate.snapshot().targets["llm"].budgets.is_empty();
    assert_eq!(status_of(&gate, "k", "small").await, 200);
    tokio::time::advance(1_800 * SECOND).await;
    assert_eq!(status_of(&gate, "k", "other").await, 200);
    tokio::time::advance(1_900 * SECOND).await;
    assert_eq!(status_of(&gate, "k", "empty").await, 200);
    assert!(!has_budgets(), "another model was used within the last hour");
    tokio::time::advance(1_800 * SECOND).await;
    assert_eq!(status_of(&gate, "k", "empty").await, 200);
    assert!(has_budgets(), "the only model for an hour");
    assert_eq!(status_of(&gate, "k", "small").await, 200);
    assert!(!has_budgets(), "two models again");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn cool_down_of_a_key_continues_when_the_other_keys_are_no_longer_used() {
    let gate = gate("");
    assert_eq!(status_of(&gate, "k", "small").await, 200);
    tokio::time::advance(3_590 * SECOND).await;
    assert_eq!(status_of(&gate, "k", "big").await, 429);
    let start = Instant::now();
    tokio::time::advance(11 * SECOND).await;
    let queued = {
        let gate = gate.clone();
        tokio::spawn(async move { status_of(&gate, "k", "big").await })
    };
    settle().await;
    assert!(!queued.is_finished(), "its model is asked to wait");
    // The wait is that of one model again when another one is used.
    assert_eq!(status_of(&gate, "k", "small").await, 200);
    assert_eq!(start.elapsed(), 11 * SECOND);
    assert_eq!(queued.await.unwrap(), 429);
    assert!((30 * SECOND..32 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn call_of_a_model_in_a_cool_down_falls_back_within_its_wait() {
    for (wait, falls_back) in [("2s", true), ("40s", false)] {
        let gate = gate(&format!("fallback = \"spare\"\nwait = \"{wait}\""));
        assert_eq!(status_of(&gate, "k", "small").await, 200);
        assert_eq!(status_of(&gate, "k", "big").await, 429);
        let start = Instant::now();
        let response = call(&gate, "k", "big").await.unwrap();
        assert_eq!(response.headers().contains_key("x-tidegate-fallback"), falls_back, "{wait}");
        assert_eq!(start.elapsed() <= 2 * SECOND, falls_back, "{wait}");
        drop(response);
        assert_idle(&gate);
    }
}
