//! Tests of the shared target `others`, which serves credentials and models that are not configured
//! and for which no separate target can be created. They share its slots and its queue, but a
//! cool-down or rate header of one of them does not delay the others.

use std::time::Duration;

use http::{HeaderValue, Request, Response};
use tidegate::config::Config;
use tidegate::{Context, Error, Gate, Reason, RequestBody, ResponseBody, Transport};
use tokio::time::Instant;

use crate::support::*;

const MOST: usize = 256;

/// Returns a provider that answers each request as the request's header `x-answer` states.
fn provider() -> Transport {
    let (transport, _) = upstream(|_, request: Request<RequestBody>, exchange| async move {
        let answer = request.headers().get("x-answer").map_or("", |answer| answer.to_str().unwrap());
        Ok(match answer {
            "wait 30 s" => status(429, &[("retry-after", "30")], "{}"),
            "wait 1 h" => status(429, &[("retry-after", "3600")], "{}"),
            "wait 30 s, in a second" => {
                tokio::time::sleep(SECOND).await;
                status(429, &[("retry-after", "30")], "{}")
            }
            "wait 30 s, in three seconds" => {
                tokio::time::sleep(3 * SECOND).await;
                status(429, &[("retry-after", "30")], "{}")
            }
            "in four seconds" => {
                tokio::time::sleep(4 * SECOND).await;
                json(exchange, ANSWER)
            }
            "overloaded" => status(503, &[], "{}"),
            "nothing left" => {
                let mut response = json(exchange, ANSWER);
                for (name, value) in [("limit", "100"), ("remaining", "0"), ("reset", "60s")] {
                    let name = format!("x-ratelimit-{name}-requests");
                    response
                        .headers_mut()
                        .insert(http::HeaderName::try_from(name).unwrap(), HeaderValue::from_static(value));
                }
                response
            }
            "in half a second" => {
                tokio::time::sleep(SECOND / 2).await;
                json(exchange, ANSWER)
            }
            "in a second" => {
                tokio::time::sleep(SECOND).await;
                json(exchange, ANSWER)
            }
            _ => json(exchange, ANSWER),
        })
    });
    transport
}

fn request(key: &str, answer: &str) -> Request<RequestBody> {
    Request::post("http://far/v1/chat/completions")
        .header("authorization", format!("Bearer {key}"))
        .header("x-answer", answer)
        .body(r#"{"model":"m","messages":[]}"#.into())
        .unwrap()
}

fn within(mut request: Request<RequestBody>, time: Duration) -> Request<RequestBody> {
    let context = Context { deadline: Some(Instant::now() + time), ..Context::default() };
    request.extensions_mut().insert(context);
    request
}

/// Returns a gate that has created the maximum number of targets, all of them used recently.
/// Requests with further keys use the shared target `others`. `defaults` are additional default
/// settings.
async fn full(defaults: &str) -> Gate {
    let config = format!("[defaults]\nretry.attempts = 1\n{defaults}\n");
    let gate = Gate::over(Config::from_toml(&config).unwrap(), provider()).unwrap();
    for n in 0..MOST {
        read(gate.client().call(request(&format!("k{n}"), "")).await.unwrap()).await.unwrap();
    }
    assert_eq!(gate.snapshot().targets.len(), MOST);
    gate
}

async fn answered(gate: &Gate, request: Request<RequestBody>) -> u16 {
    let response = gate.client().call(request).await.unwrap();
    let status = response.status().as_u16();
    read(response).await.unwrap();
    status
}

fn start(
    gate: &Gate,
    request: Request<RequestBody>,
) -> tokio::task::JoinHandle<(Result<Response<ResponseBody>, Error>, Instant)> {
    let client = gate.client();
    tokio::spawn(async move {
        let result = client.call(request).await;
        (result, Instant::now())
    })
}

fn is_about_30_s(time: Duration) -> bool {
    // The jitter adds a tenth of `Retry-After`, at most 1 s.
    (30 * SECOND..Duration::from_millis(31_100)).contains(&time)
}

#[tokio::test(start_paused = true)]
async fn retry_after_holds_only_its_own_key() {
    let gate = full("").await;
    let began = Instant::now();
    assert_eq!(answered(&gate, request("a", "wait 30 s")).await, 429);
    assert_eq!(answered(&gate, request("b", "")).await, 200);
    assert_eq!(began.elapsed(), Duration::ZERO, "another key is not held");

    let error = gate.client().call(within(request("a", ""), 10 * SECOND)).await.unwrap_err();
    assert_eq!((error.reason(), error.target()), (Some(Reason::CoolDown), Some("others")));
    assert!(is_about_30_s(error.retry_after().unwrap()), "{error}");
    assert_eq!(began.elapsed(), Duration::ZERO, "told at once");

    assert_eq!(answered(&gate, request("a", "")).await, 200);
    assert!(is_about_30_s(began.elapsed()), "{:?}", began.elapsed());
    assert_eq!(answered(&gate, request("a", "")).await, 200);
    assert!(is_about_30_s(began.elapsed()), "open again");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn calls_of_other_keys_pass_a_held_call() {
    let gate = full("cap = 1").await;
    let began = Instant::now();
    let first = start(&gate, request("a", "wait 30 s, in a second"));
    settle().await;
    let [held, short, other] = [
        start(&gate, request("a", "")),
        start(&gate, within(request("a", ""), 20 * SECOND)),
        start(&gate, request("b", "in a second")),
    ];
    settle().await;
    assert_eq!(gate.snapshot().targets["others"].queue_depth, 3);
    assert_eq!(first.await.unwrap().0.unwrap().status(), 429);

    let (refused, at) = short.await.unwrap();
    let refused = refused.unwrap_err();
    assert_eq!((refused.reason(), at - began), (Some(Reason::CoolDown), SECOND), "told when it is known");
    let (response, at) = other.await.unwrap();
    read(response.unwrap()).await.unwrap();
    assert_eq!(at - began, 2 * SECOND, "it had the slot as soon as it was free");
    assert_eq!(gate.snapshot().targets["others"].queue_depth, 1);
    let (response, at) = held.await.unwrap();
    read(response.unwrap()).await.unwrap();
    assert!(is_about_30_s(at - began - SECOND), "{:?}", at - began);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn one_probe_per_key_after_a_cool_down() {
    let gate = full("").await;
    assert_eq!(answered(&gate, request("a", "wait 30 s")).await, 429);
    let began = Instant::now();
    let calls: Vec<_> = (0..3).map(|_| start(&gate, request("a", "in half a second"))).collect();
    let mut times = Vec::new();
    for call in calls {
        let (response, at) = call.await.unwrap();
        read(response.unwrap()).await.unwrap();
        times.push(at - began);
    }
    times.sort();
    assert!(is_about_30_s(times[0] - SECOND / 2), "{times:?}");
    assert_eq!(times[1], times[0] + SECOND / 2, "the others go when the first is answered");
    assert_eq!(times[2], times[1]);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn rejected_probe_holds_its_key_again() {
    let gate = full("").await;
    assert_eq!(answered(&gate, request("a", "wait 30 s")).await, 429);
    let began = Instant::now();
    let calls = [start(&gate, request("a", "wait 30 s")), start(&gate, request("a", ""))];
    let mut ends = Vec::new();
    for call in calls {
        let (response, at) = call.await.unwrap();
        assert!([200, 429].contains(&response.unwrap().status().as_u16()));
        ends.push(at);
    }
    assert!(is_about_30_s(ends[0] - began), "the first goes first: {ends:?}");
    assert!(is_about_30_s(ends[1] - ends[0]), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_without_a_retry_after_hold_no_key() {
    let gate = full("").await;
    let began = Instant::now();
    for _ in 0..9 {
        assert_eq!(answered(&gate, request("a", "overloaded")).await, 503);
    }
    for key in ["a", "b"] {
        assert_eq!(answered(&gate, request(key, "")).await, 200);
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn rate_headers_of_one_key_do_not_limit_others() {
    let gate = full("").await;
    let began = Instant::now();
    assert_eq!(answered(&gate, request("a", "nothing left")).await, 200);
    assert_eq!(answered(&gate, request("b", "")).await, 200);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn new_target_of_a_key_keeps_its_cool_down() {
    let gate = full("").await;
    let began = Instant::now();
    assert_eq!(answered(&gate, request("a", "wait 1 h")).await, 429);
    // By now the other targets are idle, so one of them can be replaced.
    tokio::time::sleep(70 * SECOND).await;
    let error = gate.client().call(within(request("a", ""), SECOND)).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::CoolDown), "{error}");
    assert!(error.target().unwrap().starts_with("far/m"), "{error}");
    assert!(error.retry_after().unwrap() >= Duration::from_secs(3600) - began.elapsed(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn new_target_of_a_key_still_holds_earlier_calls() {
    let gate = full("deadline = \"3h\"").await;
    let began = Instant::now();
    assert_eq!(answered(&gate, request("a", "wait 1 h")).await, 429);
    let waiting = [start(&gate, request("a", "")), start(&gate, request("a", ""))];
    tokio::time::sleep(70 * SECOND).await;
    let error = gate.client().call(within(request("a", ""), SECOND)).await.unwrap_err();
    assert!(error.target().unwrap().starts_with("far/m"), "{error}");
    for call in waiting {
        let (response, at) = call.await.unwrap();
        read(response.unwrap()).await.unwrap();
        assert!(at - began >= Duration::from_secs(3600), "{:?}", at - began);
    }
}

#[tokio::test(start_paused = true)]
async fn held_calls_are_rejected_if_the_target_does_not_queue() {
    let gate = full("on_full = \"refuse\"").await;
    assert_eq!(answered(&gate, request("a", "wait 30 s")).await, 429);
    let began = Instant::now();
    let error = gate.client().call(request("a", "")).await.unwrap_err();
    assert_eq!((error.reason(), began.elapsed()), (Some(Reason::CoolDown), Duration::ZERO));
    assert_eq!(answered(&gate, request("b", "")).await, 200);
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_returned_slot_uses_the_wait_budget() {
    let gate = full("cap = 1\nwait = \"4s\"").await;
    let began = Instant::now();
    let first = start(&gate, request("a", "wait 30 s, in three seconds"));
    settle().await;
    // The call queues for 3 s, is held for 30 to 31 s, and then queues for 3 to 4 s behind another
    // key.
    let held = start(&gate, request("a", ""));
    assert_eq!(first.await.unwrap().0.unwrap().status(), 429);
    tokio::time::sleep_until(began + Duration::from_millis(32_950)).await;
    let busy = tokio::spawn({
        let gate = gate.clone();
        async move { answered(&gate, request("b", "in four seconds")).await }
    });
    assert_eq!(held.await.unwrap().0.unwrap_err().reason(), Some(Reason::WaitBudget));
    assert_eq!(busy.await.unwrap(), 200);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn held_call_can_be_cancelled_and_drained() {
    let gate = full("deadline = \"3h\"").await;
    assert_eq!(answered(&gate, request("a", "wait 1 h")).await, 429);
    let [cancelled, waiting] = [
        start(&gate, within(request("a", ""), Duration::from_secs(7200))),
        start(&gate, within(request("a", ""), Duration::from_secs(7200))),
    ];
    settle().await;
    let others = gate.snapshot().targets["others"].clone();
    let depths =
        [others.queue_depth, others.lanes["standard"].queue_depth, others.tenants["default"].queue_depth];
    assert_eq!(depths, [2; 3]);
    let metrics = gate.prometheus();
    assert!(metrics.contains(r#"tidegate_queue_depth{target="others",tenant="default"} 2"#), "{metrics}");
    let cool_for = format!(r#"tidegate_cooling_seconds{{target="others"}} {}"#, others.cool_for.unwrap());
    assert!(metrics.contains(&cool_for) && others.cool_for >= Some(3600.0), "{metrics}");
    cancelled.abort();
    settle().await;
    assert_eq!(gate.snapshot().targets["others"].queue_depth, 1);
    gate.drain(SECOND).await;
    assert_eq!(waiting.await.unwrap().0.unwrap_err().reason(), Some(Reason::Draining));
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn held_calls_do_not_fill_the_queue() {
    let gate = full("cap = 1\nbacklog = 2\ndeadline = \"3h\"").await;
    assert_eq!(answered(&gate, request("a", "wait 1 h")).await, 429);
    let held = [start(&gate, request("a", "")), start(&gate, request("a", ""))];
    settle().await;
    let full = gate.client().call(request("a", "")).await.unwrap_err();
    assert_eq!(full.reason(), Some(Reason::QueueFull), "as many as may wait in all");
    let began = Instant::now();
    let others: Vec<_> = ["b", "c", "d"].map(|key| start(&gate, request(key, "in a second"))).into();
    settle().await;
    for other in others {
        read(other.await.unwrap().0.unwrap()).await.unwrap();
    }
    assert_eq!(began.elapsed(), 3 * SECOND);
    for call in held {
        read(call.await.unwrap().0.unwrap()).await.unwrap();
    }
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn held_call_is_explained_and_keeps_its_wait_budget() {
    let gate = full("wait = \"2s\"").await;
    assert_eq!(answered(&gate, request("a", "wait 30 s")).await, 429);
    let began = Instant::now();
    let mut call = request("a", "");
    call.extensions_mut().insert(Context { call: Some("job-17".into()), ..Context::default() });
    let call = start(&gate, call);
    settle().await;
    let told = gate.explain("job-17").unwrap();
    assert_eq!(told.rule, Some("cool_down"), "{told:?}");
    assert_eq!(call.await.unwrap().0.unwrap().status(), 200);
    assert!(is_about_30_s(began.elapsed()), "{:?}", began.elapsed());
}
