//! Tests of the advice in the errors of rejected calls, which names the limit that the call lacked.

use futures_util::future::select_all;
use http::Request;
use tidegate::config::{LaneSettings, LimitSettings, OnFull, Pool, Target};
use tidegate::{Context, Error, Gate, Lane, Reason, RequestBody, Timeouts, Transport};
use tokio::time::Instant;

use crate::pool::{Act, replicas, targeted};
use crate::support::*;

/// Returns a transport whose upstream never answers.
fn silent() -> Transport {
    upstream(|_, _, _| std::future::pending()).0
}

/// Makes `count` calls at once, and returns the error of the first one that is rejected. `request`
/// returns the request of each call, by its number.
async fn rejection(gate: &Gate, count: usize, request: impl Fn(usize) -> Request<RequestBody>) -> Error {
    let calls = (0..count).map(|n| {
        let (client, request) = (gate.client(), request(n));
        Box::pin(async move { client.call(request).await })
    });
    let (result, ..) = select_all(calls).await;
    result.expect_err("no slot")
}

/// Asserts that `error` has this reason and ends with this advice.
fn assert_advice(error: &Error, reason: Reason, advice: &str) {
    assert_eq!(error.reason(), Some(reason), "{error}");
    assert!(error.message().contains(&format!("({advice})")), "{error}");
}

const TTFT: &str = "a call without `wait` waits only as long as it can still meet the objective `ttft`";

#[tokio::test(start_paused = true)]
async fn advice_names_the_limit_that_ended_the_wait() {
    let with_deadline = |n| {
        let mut request = chat(false);
        let deadline = (n > 0).then(|| Instant::now() + SECOND);
        request.extensions_mut().insert(Context { deadline, ..Context::default() });
        request
    };
    let impatient = |n| {
        let mut request = chat(false);
        if n > 0 {
            request.extensions_mut().insert(Timeouts { read: None, pool: Some(SECOND) });
        }
        request
    };
    let cap = "raise `cap` if the provider can serve more calls";
    let rest = "if the call can wait longer, or send fewer calls";
    let interactive = LaneSettings::new().ttft(Some(20 * SECOND));
    for shape in [
        Box::new(|t: Target| t.cap(1).ttft(20 * SECOND)) as Box<dyn Fn(Target) -> Target>,
        Box::new(|t: Target| t.cap(1).lane(Lane::Interactive, interactive.clone())),
    ] {
        let error = rejection(&gate(silent(), &shape), 2, with_deadline).await;
        assert_advice(&error, Reason::Deadline, &format!("{cap}, raise the deadline {rest}"));
        let error = rejection(&gate(silent(), &shape), 2, impatient).await;
        assert_advice(&error, Reason::ClientTimeout, &format!("{cap}, raise the client's timeout {rest}"));
    }
    let error = rejection(&gate(silent(), |t| t.cap(1).ttft(2 * SECOND)), 2, |_| chat(false)).await;
    let advice = format!("{TTFT}: {cap}, set a longer `wait`, or send fewer calls");
    assert_advice(&error, Reason::WaitBudget, &advice);
    let error = rejection(&gate(silent(), |t| t.cap(1).wait(SECOND)), 2, |_| chat(false)).await;
    assert_advice(&error, Reason::WaitBudget, &format!("{cap}, raise `wait` {rest}"));
    let error = rejection(&gate(silent(), |t| t.cap(1).on_full(OnFull::Refuse)), 2, |_| chat(false)).await;
    let advice = format!("{cap}, or let calls wait: remove `on_full = \"refuse\"`");
    assert_advice(&error, Reason::NoSlot, &advice);
    let error = rejection(&gate(silent(), |t| t.cap(1).queue(1)), 3, |_| chat(false)).await;
    assert_advice(&error, Reason::QueueFull, "raise `queue` or `backlog`, or send fewer calls");
}

#[tokio::test(start_paused = true)]
async fn adaptive_limit_below_the_cap_is_named() {
    let limit = |limit: LimitSettings| move |t: Target| t.cap(64).limit(limit).wait(SECOND);
    let advice = "add capacity, raise `wait` if the call can wait longer, or send fewer calls";
    let slots = "all 2 slots of the adaptive limit (`cap` 64) are in use";
    let error = rejection(&gate(silent(), limit(LimitSettings::new().start(2))), 3, |_| chat(false)).await;
    assert_advice(&error, Reason::WaitBudget, advice);
    assert!(error.message().contains(&format!("within the wait budget: {slots}")), "{error}");

    let error = rejection(&gate(silent(), limit(LimitSettings::new().awaiting(1))), 3, |_| chat(true)).await;
    assert_eq!(error.why().map(|why| why.rule.as_str()), Some("first_tokens"), "{error}");
    assert_advice(&error, Reason::WaitBudget, advice);

    // A limit that is set replaces the adaptive one.
    let fixed = gate(silent(), limit(LimitSettings::new().start(2)));
    fixed.set_cap("llm", 1).unwrap();
    let error = rejection(&fixed, 2, |_| chat(false)).await;
    assert!(error.message().contains("(raise `cap` if"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn explanation_names_an_adaptive_limit_below_the_cap() {
    let gate = gate(silent(), |t| t.cap(64).limit(LimitSettings::new().start(2)));
    for _ in 0..3 {
        let client = gate.client();
        tokio::spawn(async move { client.call(chat(false)).await.map(drop) });
    }
    tokio::time::sleep(SECOND).await;
    let waits = gate.explain_all(1).pop().unwrap();
    let text = "waits for a slot of llm: all 2 slots of the adaptive limit (`cap` 64) are in use (for 1.0 s)";
    assert!(waits.text.starts_with(text), "{}", waits.text);
}

#[tokio::test(start_paused = true)]
async fn advice_of_a_pool_names_the_smaller_cap() {
    let full = async |pool: fn(Pool) -> Pool, target: fn(Target) -> Target| {
        let (transport, _log) = replicas(|_, _, _| Act::Hang);
        rejection(&targeted(transport, pool, target), 5, |_| chat(false)).await
    };
    let error = full(|p| p, |t| t.cap(1).wait(SECOND)).await;
    let advice = "raise the target's `cap`, which limits all replicas together, raise `wait` if the call can wait longer, or send fewer calls";
    assert_advice(&error, Reason::WaitBudget, advice);
    let error = full(|p| p.cap(1), |t| t.on_full(OnFull::Refuse)).await;
    let advice = "add a replica, raise `pool.cap` if each replica can serve more calls, or let calls wait: remove `on_full = \"refuse\"`";
    assert_advice(&error, Reason::NoSlot, advice);
}

#[tokio::test(start_paused = true)]
async fn pool_that_does_not_queue_says_so_in_an_outage() {
    let (transport, _log) = replicas(|_, _, _| Act::Answer);
    let gate = targeted(transport, |_| Pool::dynamic(), |t| t.on_full(OnFull::Refuse));
    let error = gate.client().call(chat(false)).await.expect_err("no replica");
    assert_eq!(error.reason(), Some(Reason::Outage), "{error}");
    let text = "the target is down, and does not queue calls (`on_full = \"refuse\"`)";
    assert!(error.message().contains(text), "{error}");
}
