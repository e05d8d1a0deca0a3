//! Tests of calls to a pool that has no replica, or whose replicas all reject calls.

use super::*;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn pool_without_replicas_reports_it() {
    let (transport, log) = replicas(|_, _, _| Act::Answer);
    let gate = targeted(transport, |_| tidegate::config::Pool::dynamic(), |t| t);
    let text = gate.client().call(chat(false)).await.expect_err("there is nobody").to_string();
    assert!(text.contains("no replica was configured or found"), "{text}");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn rejection_for_another_reason_does_not_mention_replicas() {
    let (transport, log) = replicas(|_, _, _| Act::Answer);
    let gate = targeted(transport, |_| Pool::dynamic(), |t| t.max_prompt(1));
    let text = gate.client().call(chat(false)).await.expect_err("too long").to_string();
    assert!(text.contains("`max_prompt`") && !text.contains("replica"), "{text}");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn error_of_a_call_in_flight_does_not_mention_other_replicas() {
    let (transport, log) = replicas(|at, what, _| match (at, what) {
        ("b", _) => Act::Refuse,
        (_, RequestKind::Call) => Act::Hang,
        _ => Act::Answer,
    });
    let gate = pooled(transport, |p| p.health("/health"));
    let call = async || {
        let mut request = chat(false);
        let deadline = Some(tokio::time::Instant::now() + 10 * SECOND);
        request.extensions_mut().insert(tidegate::Context { deadline, ..Default::default() });
        gate.client().call(request).await.expect_err("no answer")
    };
    call().await;
    assert!(replicas_of(&gate).iter().any(|replica| replica["state"] != "in"), "{:?}", replicas_of(&gate));
    let error = call().await;
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    assert!(!error.message().contains("replica"), "{error}");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn rejection_of_a_full_pool_names_the_cap() {
    let (transport, log) = replicas(|_, _, _| Act::Hang);
    let gate = targeted(transport, |p| p.cap(1), |t| t.wait(SECOND));
    let calls = (0..5).map(|_| Box::pin(async { gate.client().call(chat(false)).await }));
    let (text, ..) = futures_util::future::select_all(calls).await;
    let text = text.expect_err("no slot").to_string();
    assert!(text.contains("raise `pool.cap`"), "{text}");
    drop(log);
}

/// All replicas reject the call with `Retry-After: 0` for 2 s. Without a pause between the rounds,
/// the call would be sent as fast as the replicas reject it.
#[tokio::test(start_paused = true)]
async fn call_rejected_by_all_replicas_waits_despite_their_retry_after() {
    let full = tokio::time::Instant::now() + 2 * SECOND;
    let (transport, log) = replicas(move |_, _, _| match tokio::time::Instant::now() < full {
        true => Act::Status(503, &[("retry-after", "0")]),
        false => Act::Answer,
    });
    let gate = pooled(transport, |p| p);
    assert_eq!(read(gate.client().call(chat(false)).await.unwrap()).await.unwrap(), ANSWER);
    let asked = log.calls().len();
    assert!((5..=4 + 2_000 / 50 + 1).contains(&asked), "{asked}");
    assert_all_idle(&gate, &log);
}
