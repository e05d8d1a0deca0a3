//! Tests of `Gate::acquire_slot`. Such slots have the same admission and the same call records as
//! requests, and their holders report the results of the calls.

use std::time::Duration;

use futures_util::FutureExt;
use http::StatusCode;
use tidegate::config::{Mode, OnFull, Target};
use tidegate::snapshot::TargetSnapshot;
use tidegate::{Context, ErrorKind, Gate, Reason};
use tokio::time::Instant;

use crate::support::*;

/// Returns a gate with the target `bedrock`, which is used through slots only, and the target
/// `llm`, which is used through requests. `shape` changes the settings of `bedrock`.
fn pair(shape: impl FnOnce(Target) -> Target) -> Gate {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    Gate::builder()
        .target(shape(Target::new("bedrock").slots_only()))
        .target(Target::new("llm").url("http://llm"))
        .build_over(transport)
        .expect("a gate")
}

fn seen(gate: &Gate) -> TargetSnapshot {
    gate.snapshot().targets["bedrock"].clone()
}

fn until(deadline: Duration) -> Context {
    Context { deadline: Some(Instant::now() + deadline), ..Context::default() }
}

#[tokio::test(start_paused = true)]
async fn slot_counts_in_the_cap_and_as_one_call() {
    let gate = pair(|t| t.cap(1));
    let context = Context { tenant: Some("acme".into()), ..Context::default() };
    let mut slot = gate.acquire_slot("bedrock", &context).await.unwrap();
    assert_eq!((seen(&gate).in_flight, gate.snapshot().active), (1, 1));
    let next = tokio::spawn({
        let gate = gate.clone();
        async move { gate.acquire_slot("bedrock", &Context::default()).await }
    });
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(seen(&gate).queue_depth, 1);
    slot.succeeded();
    drop(slot);
    drop(next.await.unwrap().unwrap());
    assert_idle(&gate);

    let calls = gate.calls().records();
    let told: Vec<_> = calls.iter().map(|call| (&*call.target, &*call.tenant, call.outcome)).collect();
    assert_eq!(told, [("bedrock", "acme", "completed"), ("bedrock", "default", "cancelled")]);
    assert_eq!((calls[0].duration, calls[0].attempts[0].released_at), (3.0, Some(3.0)));
    assert_eq!(calls[1].attempts[0].admitted_at, Some(3.0));
    assert_eq!(seen(&gate).attempts, 2);
    assert!(
        gate.prometheus()
            .contains(r#"tidegate_calls_total{outcome="cancelled",target="bedrock",tenant="default"} 1"#)
    );
}

#[tokio::test(start_paused = true)]
async fn slots_and_requests_share_their_target() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    let gate = gate(transport, |t| t.cap(1));
    let slot = gate.acquire_slot("llm", &Context::default()).await.unwrap();
    let client = gate.client();
    let mut call = std::pin::pin!(client.call(chat(false)));
    assert!(call.as_mut().now_or_never().is_none());
    drop(slot);
    read(call.await.unwrap()).await.unwrap();
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn reported_failure_cools_the_target_down() {
    let gate = pair(|t| t.cap(8));
    let mut slot = gate.acquire_slot("bedrock", &Context::default()).await.unwrap();
    assert!(slot.failed(Some(StatusCode::TOO_MANY_REQUESTS), Some(20 * SECOND)));
    assert!(!slot.failed(Some(StatusCode::BAD_REQUEST), None), "it answers, and counts no more");
    drop(slot);
    assert_eq!(seen(&gate).state, "cooling");
    let error = gate.acquire_slot("bedrock", &until(5 * SECOND)).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::CoolDown));
    assert!(error.retry_after().unwrap() >= 20 * SECOND);
    let start = Instant::now();
    let mut slot = gate.acquire_slot("bedrock", &Context::default()).await.unwrap();
    assert!(start.elapsed() >= 20 * SECOND);
    slot.succeeded();
    drop(slot);
    let seen = seen(&gate);
    let tenant = &seen.tenants["default"];
    assert_eq!(
        (tenant.outcomes["failed"], tenant.outcomes["completed"], tenant.refused["cool_down"]),
        (1, 1, 1)
    );
    assert_eq!((seen.failed_attempts["rate_limited"], seen.cool_downs["retry_after"]), (1, 1));
    assert_eq!(gate.calls().records()[0].attempts[0].status, Some(429));
}

#[tokio::test(start_paused = true)]
async fn request_error_is_no_evidence_against_the_target() {
    let gate = pair(|t| t.cap(8));
    for _ in 0..5 {
        let mut slot = gate.acquire_slot("bedrock", &Context::default()).await.unwrap();
        assert!(!slot.failed(Some(StatusCode::BAD_REQUEST), Some(60 * SECOND)));
    }
    assert_eq!((seen(&gate).state, seen(&gate).failed_attempts["bad_request"]), ("open", 5));
}

#[tokio::test(start_paused = true)]
async fn call_that_was_rejected_unread_is_not_charged() {
    let gate = pair(|t| t.cap(8).rpm(60));
    let level = || seen(&gate).budgets["requests"].level;
    let before = level();
    let mut slot = gate.acquire_slot("bedrock", &Context::default()).await.unwrap();
    assert_eq!(level(), before - 1);
    assert!(slot.failed(Some(StatusCode::SERVICE_UNAVAILABLE), None));
    drop(slot);
    assert_eq!(level(), before);
}

#[tokio::test(start_paused = true)]
async fn three_broken_exchanges_are_an_outage_until_a_probe_succeeds() {
    let gate = pair(|t| t.cap(8));
    gate.acquire_slot("bedrock", &Context::default()).await.unwrap().succeeded();
    for _ in 0..3 {
        assert!(gate.acquire_slot("bedrock", &Context::default()).await.unwrap().failed(None, None));
    }
    assert_eq!((seen(&gate).state, seen(&gate).cool_downs["outage"]), ("cooling", 1));
    let probe = gate.acquire_slot("bedrock", &Context::default()).await.unwrap();
    assert_eq!(seen(&gate).state, "probing");
    // The holder reports no result, so the next call is the probe.
    drop(probe);
    gate.acquire_slot("bedrock", &Context::default()).await.unwrap().succeeded();
    assert_ne!(seen(&gate).state, "cooling");
    assert_eq!(seen(&gate).failed_attempts["transport"], 3);
}

#[tokio::test(start_paused = true)]
async fn waits_for_slots_end_like_waits_of_calls() {
    let gate = pair(|t| t.cap(1).wait(2 * SECOND));
    let held = gate.acquire_slot("bedrock", &Context::default()).await.unwrap();
    let reason = |error: tidegate::Error| error.reason().unwrap();
    assert_eq!(reason(gate.acquire_slot("bedrock", &until(SECOND)).await.unwrap_err()), Reason::Deadline);
    assert_eq!(
        reason(gate.acquire_slot("bedrock", &Context::default()).await.unwrap_err()),
        Reason::WaitBudget
    );
    {
        let context = Context::default();
        let mut waiting = std::pin::pin!(gate.acquire_slot("bedrock", &context));
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    assert_eq!(seen(&gate).queue_depth, 0);
    let left = gate.drain(SECOND).await;
    assert_eq!(left, 1, "a held slot is under way");
    assert_eq!(
        reason(gate.acquire_slot("bedrock", &Context::default()).await.unwrap_err()),
        Reason::Draining
    );
    drop(held);
    assert_idle(&gate);
    let tenant = seen(&gate).tenants["default"].clone();
    assert_eq!((tenant.outcomes["refused"], tenant.outcomes["cancelled"]), (2, 2));

    let refusing = pair(|t| t.cap(1).on_full(OnFull::Refuse));
    let _held = refusing.acquire_slot("bedrock", &Context::default()).await.unwrap();
    let error = refusing.acquire_slot("bedrock", &Context::default()).await.unwrap_err();
    assert_eq!(reason(error), Reason::NoSlot);
}

#[tokio::test(start_paused = true)]
async fn unknown_target_is_rejected_with_a_suggestion() {
    for mode in [Mode::Enforce, Mode::Observe, Mode::Off] {
        let gate = Gate::builder().target(Target::new("bedrock").slots_only()).mode(mode).build().unwrap();
        let error = gate.acquire_slot("bedrok", &Context::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert!(error.message().contains("did you mean \"bedrock\""), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn slots_never_wait_in_modes_observe_and_off() {
    let shape =
        |mode| Gate::builder().target(Target::new("bedrock").slots_only().cap(1)).mode(mode).build().unwrap();
    let gate = shape(Mode::Observe);
    let two = [
        gate.acquire_slot("bedrock", &Context::default()).await.unwrap(),
        gate.acquire_slot("bedrock", &Context::default()).await.unwrap(),
    ];
    assert_eq!((seen(&gate).in_flight, seen(&gate).would["wait"]), (2, 1));
    drop(two);
    assert_idle(&gate);

    let gate = shape(Mode::Off);
    let mut slot = gate.acquire_slot("bedrock", &Context::default()).await.unwrap();
    assert!(slot.failed(Some(StatusCode::SERVICE_UNAVAILABLE), Some(SECOND)));
    assert_eq!((seen(&gate).in_flight, seen(&gate).state, gate.calls().records().len()), (0, "open", 0));
}

#[tokio::test(start_paused = true)]
async fn target_for_slots_matches_no_request() {
    let gate = pair(|t| t);
    let request = http::Request::post("http://elsewhere/v1/chat/completions").body("{}".into()).unwrap();
    read(gate.client().call(request).await.unwrap()).await.unwrap();
    assert_eq!(seen(&gate).attempts, 0);
}
