//! Tests through the whole client of limits on prompts, rates, tokens and memory, of shared
//! budgets, of borrowed slots and of wait budgets.

use std::time::Duration;

use futures_util::future::join_all;
use tidegate::config::{Budget, Counting, Target, Tenant};
use tidegate::{Gate, Lane, Reason};
use tokio::time::Instant;

use crate::support::*;

fn answers(after: Duration) -> (tidegate::Transport, std::sync::Arc<Seen>) {
    upstream(move |_, _, exchange| async move {
        tokio::time::sleep(after).await;
        Ok(json(exchange, ANSWER))
    })
}

#[tokio::test(start_paused = true)]
async fn prompt_above_max_prompt_is_rejected_with_advice() {
    let (transport, seen) = answers(SECOND);
    let gate = gate(transport, |t| t.max_prompt(1_000));
    let body = format!(
        r#"{{"model": "m", "messages": [{{"role": "user", "content": "{}"}}]}}"#,
        "word ".repeat(4_000)
    );
    let mut request = chat(false);
    *request.body_mut() = body.into_bytes().into();
    let error = gate.client().call(request).await.unwrap_err();
    assert_eq!((error.reason(), error.status().as_u16()), (Some(Reason::TooLarge), 413));
    assert!(
        error.message().contains("`max_prompt` of 1000") && error.message().contains("shorten"),
        "{error}"
    );
    assert!(!error.retryable());
    assert_eq!(seen.attempts(), 0);
    assert_idle(&gate);
}

/// The first estimate of a prompt may be a third too high, and nobody knows how many pages a
/// document has.
#[tokio::test(start_paused = true)]
async fn prompt_that_may_be_shorter_than_max_prompt_is_sent() {
    let (transport, seen) = answers(SECOND);
    let gate = gate(transport, |t| t.max_prompt(5_000));
    let file = format!("data:application/pdf;base64,{}", "A".repeat(3_000_000));
    let parts = format!(r#"[{{"type": "file", "file": {{"filename": "a.pdf", "file_data": "{file}"}}}}]"#);
    for content in [format!("\"{}\"", "word ".repeat(4_000)), parts] {
        let mut request = chat(false);
        let body = format!(r#"{{"model": "m", "messages": [{{"role": "user", "content": {content}}}]}}"#);
        *request.body_mut() = body.into_bytes().into();
        assert_eq!(gate.client().call(request).await.unwrap().status().as_u16(), 200);
    }
    assert_eq!(seen.attempts(), 2);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn call_larger_than_any_budget_is_rejected_at_once() {
    let (transport, seen) = answers(SECOND);
    let gate = gate(transport, |t| t.kv_tokens(2_000));
    let mut request = chat(false);
    let body = format!(
        r#"{{"model": "m", "messages": [{{"role": "user", "content": "{}"}}]}}"#,
        "word ".repeat(4_000)
    );
    *request.body_mut() = body.into_bytes().into();
    let error = gate.client().call(request).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::TooLarge));
    assert!(error.message().contains("kv_tokens") && error.message().contains("2000"), "{error}");
    assert_eq!(seen.attempts(), 0);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn requests_per_minute_are_paced() {
    let (transport, seen) = answers(Duration::from_millis(10));
    let gate = gate(transport, |t| t.rpm(60).burst(SECOND));
    let start = Instant::now();
    let calls = (0..31).map(|_| async { read(gate.client().call(chat(false)).await?).await });
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    let took = start.elapsed();
    assert!((29 * SECOND..33 * SECOND).contains(&took), "{took:?}");
    assert_eq!(seen.attempts(), 31);
    assert_idle(&gate);
}

/// Two targets share one budget of 60 requests per minute with a burst of 1 s. Their 20 calls
/// together are admitted at this rate.
#[tokio::test(start_paused = true)]
async fn two_targets_share_one_budget() {
    let (transport, _) = answers(Duration::from_millis(10));
    let target = |name: &str, model: &str| Target::new(name).url("http://llm").model(model).budget("key");
    let gate = Gate::builder()
        .budget("key", Budget::new().rpm(60).burst(SECOND))
        .target(target("a", "m"))
        .target(target("b", "n"))
        .build_over(transport)
        .unwrap();
    let start = Instant::now();
    let ask = |model: &'static str| {
        let body = format!(r#"{{"model": "{model}", "messages": []}}"#);
        let mut request = chat(false);
        *request.body_mut() = body.into_bytes().into();
        let client = gate.client();
        async move { read(client.call(request).await?).await }
    };
    let calls = (0..20).map(|k| ask(if k % 2 == 0 { "m" } else { "n" }));
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    let took = start.elapsed();
    assert!((18 * SECOND..23 * SECOND).contains(&took), "twenty of both, at one pace: {took:?}");
    assert_idle(&gate);
}

/// Providers announce limits for each model, and a common budget is that of several models.
#[tokio::test(start_paused = true)]
async fn headers_do_not_change_a_common_budget() {
    let (transport, _) = upstream(|number, _, exchange| async move {
        let mut response = json(exchange, ANSWER);
        let limit = if number % 2 == 0 { "60" } else { "30000" };
        for name in ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests"] {
            response.headers_mut().insert(name, limit.parse().unwrap());
        }
        Ok(response)
    });
    for (targets, limit, source) in [(2, 5_000, "configured"), (1, 60, "headers")] {
        let mut builder = Gate::builder().budget("key", Budget::new().rpm(5_000));
        for (name, model) in [("a", "m"), ("b", "n")].into_iter().take(targets) {
            builder = builder.target(Target::new(name).url("http://llm").model(model).budget("key"));
        }
        let gate = builder.build_over(transport.clone()).unwrap();
        for model in ["m", if targets == 2 { "n" } else { "m" }, "m"] {
            let body = format!(r#"{{"model": "{model}", "messages": []}}"#);
            let mut request = chat(false);
            *request.body_mut() = body.into_bytes().into();
            read(gate.client().call(request).await.unwrap()).await.unwrap();
        }
        let budget = &gate.snapshot().targets["a"].budgets["requests"];
        assert_eq!((budget.limit, budget.source), (limit, source), "{targets} targets");
        assert_idle(&gate);
    }
}

/// Each call reserves far more tokens than it uses. The unused tokens return to the budget when the
/// call ends, so that the next call can use them immediately.
#[tokio::test(start_paused = true)]
async fn unused_reservation_is_returned_to_the_budget() {
    let (transport, _) = answers(Duration::from_millis(10));
    let gate = gate(transport, |t| t.tpm(60_000).burst(6 * SECOND).counting(Counting::Actual));
    let ask = || {
        let mut request = chat(false);
        let body = br#"{"model": "m", "max_tokens": 5000, "messages": [{"role": "user", "content": "hi"}]}"#;
        *request.body_mut() = body.to_vec().into();
        request
    };
    let start = Instant::now();
    for _ in 0..20 {
        read(gate.client().call(ask()).await.unwrap()).await.unwrap();
    }
    assert!(start.elapsed() < 2 * SECOND, "{:?}", start.elapsed());
    let tokens = &gate.snapshot().targets["llm"].budgets["tokens"];
    assert_eq!((tokens.limit, tokens.debt, tokens.source), (60_000, 0, "configured"));
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn borrowed_slot_without_a_response_is_reclaimed() {
    let (transport, seen) = answers(60 * SECOND);
    let gate = gate(transport, |t| t.cap(2).reclaim(true).tenant("owner", Tenant::new().floor(0.5)));
    let start = Instant::now();
    let call = |tenant: &'static str| {
        let client = gate.client();
        tokio::spawn(async move { read(client.call(of(tenant)).await?).await })
    };
    let borrowers = [call("borrower"), call("borrower")];
    tokio::time::sleep(10 * SECOND).await;
    let owner = call("owner");
    owner.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), 70 * SECOND, "it went at once");
    for borrower in borrowers {
        borrower.await.unwrap().unwrap();
    }
    assert_eq!(seen.attempts(), 4, "one of the borrower's was made twice");
    let snapshot = &gate.snapshot().targets["llm"];
    assert_eq!(snapshot.retries["preempted"], 1);
    assert_eq!(snapshot.failed_attempts.len(), 0);
    assert_idle(&gate);
}

/// The cap is lowered while four calls are in flight, so that at first no slot can be reclaimed.
#[tokio::test(start_paused = true)]
async fn borrowed_slot_is_reclaimed_once_a_release_makes_it_possible() {
    let (transport, _) = answers(60 * SECOND);
    let gate = gate(transport, |t| t.cap(4).reclaim(true).tenant("owner", Tenant::new().floor(0.5)));
    let start = Instant::now();
    let call = |tenant: &'static str| {
        let client = gate.client();
        tokio::spawn(async move { read(client.call(of(tenant)).await?).await })
    };
    let borrowers = [(); 4].map(|()| call("borrower"));
    tokio::time::sleep(10 * SECOND).await;
    gate.set_cap("llm", 2).unwrap();
    let owner = call("owner");
    tokio::time::sleep(SECOND).await;
    assert_eq!(gate.snapshot().targets["llm"].retries.get("preempted"), None);
    borrowers[..2].iter().for_each(tokio::task::JoinHandle::abort);
    owner.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), 71 * SECOND, "a slot was reclaimed when the two ended");
    assert_eq!(gate.snapshot().targets["llm"].retries["preempted"], 1);
    for borrower in borrowers.into_iter().skip(2) {
        borrower.await.unwrap().unwrap();
    }
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn lane_has_its_own_wait_budget() {
    let (transport, _) = answers(60 * SECOND);
    let urgent = tidegate::config::LaneSettings::new().wait(SECOND);
    let gate = gate(transport, |t| t.cap(1).lane(Lane::Interactive, urgent));
    let held = tokio::spawn({
        let client = gate.client();
        async move { read(client.call(of("a")).await?).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut request = of("b");
    request.extensions_mut().insert(tidegate::Context { lane: Lane::Interactive, ..Default::default() });
    let start = Instant::now();
    let error = gate.client().call(request).await.unwrap_err();
    assert_eq!((error.reason(), start.elapsed()), (Some(Reason::WaitBudget), SECOND));
    held.await.unwrap().unwrap();
    assert_idle(&gate);
}
