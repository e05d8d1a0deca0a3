//! Tests of calls to a pool whose replica rejects them or breaks the connection before the caller
//! has received anything: another replica serves them.

use futures_util::future::join_all;
use tokio::time::Instant;

use super::*;
use crate::support::*;

const OVERLOADED: &str =
    "data: {\"error\": {\"message\": \"queue full\", \"type\": \"ServiceUnavailable\", \"code\": 503}}\n\n";

/// Returns replicas of which only `d` answers calls. On each call, the others do what `act` states.
fn only_d(act: Act) -> (Transport, Arc<Log>) {
    replicas(move |at, _, _| if at == "d" { Act::Answer } else { act.clone() })
}

#[tokio::test(start_paused = true)]
async fn unstarted_call_is_tried_once_at_each_other_replica_without_charge() {
    for (what, act) in [
        ("503", Act::Status(503, &[])),
        ("503 with a delay beyond the deadline", Act::Status(503, &[("retry-after", "100000")])),
        ("503 as an event", Act::SseError(OVERLOADED)),
        ("429", Act::Status(429, &[])),
        ("refused", Act::Refuse),
        ("out of reach", Act::Lost),
    ] {
        let (transport, log) = only_d(act);
        let gate = targeted(transport, |p| p, |t| t.retry(tidegate::config::Retry::new().attempts(1)));
        let before = gate.snapshot().targets["llm"].retry_budget;
        let start = Instant::now();
        let mut hops = 0;
        for _ in 0..3 {
            let answer = read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
            assert_eq!(answer, ANSWER, "{what}");
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "{what}: at once");
        for at in ["a", "b", "c"] {
            hops += log.calls().iter().filter(|call| *call == at).count();
        }
        let target = &gate.snapshot().targets["llm"];
        assert!(target.retry_budget >= before, "{what}: not of the budget");
        assert_eq!(target.retries.get("elsewhere").copied().unwrap_or_default(), hops as u64, "{what}");
        assert!(target.cool_downs.is_empty(), "{what}: the pool is open");
        assert_all_idle(&gate, &log);
    }
}

#[tokio::test(start_paused = true)]
async fn call_waits_after_each_full_replica_was_tried_once() {
    let full = Instant::now() + 20 * SECOND;
    let (transport, log) =
        replicas(move |_, _, _| if Instant::now() < full { Act::Status(503, &[]) } else { Act::Answer });
    let gate = pooled(transport, |p| p);
    let calls = (0..100).map(|_| async { read(gate.client().call(chat(false)).await?).await });
    let answers = join_all(calls).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let calls = log.calls();
    let in_vain = calls.len() - 100;
    // At each replica, at most as many calls as it has slots retry a few times per second. The
    // other waiting calls do not.
    assert!(in_vain < 20 * 4 * 8 * 4, "{in_vain}");
    let target = &gate.snapshot().targets["llm"];
    assert!(target.gave_up.is_empty(), "{:?}", target.gave_up);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn call_that_no_replica_admits_in_time_ends_with_a_clear_error() {
    let (transport, log) = replicas(|_, _, _| Act::Status(503, &[]));
    let gate = pooled(transport, |p| p);
    let mut request = chat(false);
    request
        .extensions_mut()
        .insert(tidegate::Context { deadline: Some(Instant::now() + 5 * SECOND), ..Default::default() });
    let start = Instant::now();
    match gate.client().call(request).await {
        Ok(response) => {
            assert_eq!(
                (response.status().as_u16(), &response.headers()["x-should-retry"]),
                (503, &"false".parse().unwrap())
            );
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Refused(_) | ErrorKind::Deadline), "{error:?}");
            assert!(error.message().contains("overloaded"), "it says what the last attempt met: {error}");
        }
    }
    assert!(start.elapsed() <= 5 * SECOND);
    let mut first: Vec<_> = log.calls().into_iter().take(4).collect();
    first.sort();
    assert_eq!(first, ["a", "b", "c", "d"], "each once, before any twice");
    assert_eq!(gate.snapshot().targets["llm"].retries["elsewhere"], 3);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn full_replica_stays_eligible() {
    let (transport, log) =
        replicas(|at, _, nth| if at == "a" && nth < 2 { Act::Status(503, &[]) } else { Act::Answer });
    let gate = pooled(transport, |p| p);
    for _ in 0..400 {
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
        tokio::time::sleep(20 * MS).await;
    }
    assert!(log.calls().iter().filter(|at| *at == "a").count() > 20, "{:?}", log.calls().len());
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn call_that_may_have_run_is_retried_at_another_replica() {
    for act in [Act::Status(500, &[]), Act::Break] {
        let (transport, log) = replicas(move |_, _, nth| if nth == 0 { act.clone() } else { Act::Answer });
        let gate = pooled(transport, |p| p);
        let result = gate.client().call(chat(false)).await;
        assert!(result.is_err() || result.is_ok_and(|response| response.status() == 500), "each fails once");
        let mut calls = log.calls();
        calls.sort();
        assert_eq!(calls, ["a", "b", "c", "d"], "none twice while there are others");
        assert_eq!(gate.snapshot().targets["llm"].retries.get("elsewhere"), None);
        assert_all_idle(&gate, &log);
    }
}

#[tokio::test(start_paused = true)]
async fn stream_that_breaks_before_its_first_token_is_retried_elsewhere() {
    let broken = || Act::Stream(vec![(MS, Some(ROLE)), (MS, None)]);
    let (transport, log) = replicas(move |_, _, nth| if nth == 0 { broken() } else { Act::stream(MS) });
    let gate = targeted(transport, |p| p, |t| t.retry(tidegate::config::Retry::new().attempts(5)));
    let text = read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!(text, STREAM.concat(), "nothing of the first ones was delivered");
    assert_eq!(log.calls().len(), 5);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn stream_that_breaks_after_its_first_token_is_truncated() {
    let (transport, log) =
        replicas(|_, _, _| Act::Stream(vec![(MS, Some(ROLE)), (MS, Some(TOKEN)), (MS, None)]));
    let gate = pooled(transport, |p| p);
    let error = read(gate.client().call(chat(true)).await.unwrap()).await.unwrap_err();
    assert_eq!((error.kind(), log.calls().len()), (ErrorKind::Truncated, 1), "{error}");
    assert_eq!(gate.snapshot().targets["llm"].tenants["default"].outcomes["truncated"], 1);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn calls_wait_until_their_deadline_if_every_connection_is_refused() {
    let back = Instant::now() + 20 * SECOND;
    let (transport, log) =
        replicas(move |_, _, _| if Instant::now() < back { Act::Refuse } else { Act::Answer });
    let gate = pooled(transport, |p| p.health("/health"));
    let calls = join_all((0..20).map(|_| async { gate.client().call(chat(false)).await.map(drop) })).await;
    let served = calls.iter().filter(|call| call.is_ok()).count();
    assert_eq!(served, 20, "all wait for it: {calls:?}");
    let mut request = chat(false);
    request
        .extensions_mut()
        .insert(tidegate::Context { deadline: Some(Instant::now() + SECOND), ..Default::default() });
    read(gate.client().call(request).await.unwrap()).await.unwrap();
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn calls_go_only_to_replicas_that_serve_their_model() {
    let (transport, log) = replicas(|_, _, _| Act::Answer);
    let gate = Gate::over(
        Config::builder()
            .target(
                Target::new("llm").pool(
                    Pool::new([
                        Replica::new("http://a").model("m"),
                        Replica::new("http://b").model("other"),
                        Replica::new("http://c").model("m"),
                    ])
                    .affinity(false)
                    .health(None)
                    .poll(None),
                ),
            )
            .build()
            .unwrap(),
        transport,
    )
    .unwrap();
    for _ in 0..50 {
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    }
    let calls = log.calls();
    assert!(
        !calls.contains(&"b".to_owned())
            && calls.contains(&"a".to_owned())
            && calls.contains(&"c".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn call_is_sent_below_the_replicas_base_url() {
    let (transport, log) = replicas(|_, _, _| Act::Answer);
    let config = Config::builder()
        .target(Target::new("llama").pool(Pool::new([Replica::new("http://a:8000/one/v1")]).health(None)));
    let gate = Gate::over(config.build().unwrap(), transport).unwrap();
    let mut request = chat(false);
    *request.uri_mut() = "http://llama/v1/chat/completions?x=1".parse().unwrap();
    request.headers_mut().insert("host", "llama".parse().unwrap());
    request.headers_mut().insert("authorization", "Bearer mine".parse().unwrap());
    read(gate.client().call(request).await.unwrap()).await.unwrap();
    assert_eq!(log.uris(), ["http://a:8000/one/v1/chat/completions?x=1"]);
}

#[tokio::test(start_paused = true)]
async fn failed_lookup_keeps_all_replicas() {
    let (transport, log) = replicas(|_, what, nth| match what {
        RequestKind::Call if nth > 0 => Act::Answer,
        _ => Act::Lost,
    });
    let gate = pooled(transport, |p| p);
    let result = gate.client().call(chat(false)).await;
    assert!(result.is_ok(), "each is tried, and then it is an ordinary retry: {result:?}");
    drop(result);
    assert!(replicas_of(&gate).iter().all(|replica| replica["state"] == "in"), "{:?}", replicas_of(&gate));
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn short_client_timeout_ejects_no_replica() {
    let (transport, log) = replicas(|_, _, _| Act::stream(MS).after(5 * SECOND));
    let gate = targeted(transport, |p| p, |t| t.retry(tidegate::config::Retry::new().attempts(1)));
    for _ in 0..40 {
        let mut request = chat(true);
        request.extensions_mut().insert(tidegate::Timeouts { read: Some(SECOND), ..Default::default() });
        let error = gate.client().call(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FirstTokenTimeout, "{error}");
    }
    assert!(replicas_of(&gate).iter().all(|replica| replica["ejections"] == 0), "{:?}", replicas_of(&gate));
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn first_token_limit_of_the_target_is_evidence_against_a_replica() {
    let (transport, log) =
        replicas(|at, _, _| if at == "a" { Act::stream(5 * SECOND) } else { Act::stream(MS) });
    let gate = targeted(transport, |p| p, |t| t.first_token(SECOND));
    for _ in 0..60 {
        read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    }
    let a = replicas_of(&gate).into_iter().find(|replica| replica["url"] == "http://a").unwrap();
    assert_eq!(a["ejections"], 1, "{a}");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn records_and_errors_name_the_replica_and_hops_are_counted() {
    let (transport, log) = only_d(Act::Status(503, &[]));
    let gate = pooled(transport, |p| p);
    read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    let record = gate.calls().records().pop().unwrap();
    let at: Vec<_> = record.attempts.iter().map(|attempt| attempt.replica.as_deref().unwrap()).collect();
    let asked: Vec<_> = log.calls().iter().map(|at| format!("http://{at}")).collect();
    assert_eq!(at, asked);
    assert!(gate.calls().jsonl().contains("\"replica\":\"http://d\""));
    for at in ["a", "b", "c"] {
        let times = asked.iter().filter(|asked| **asked == format!("http://{at}")).count();
        let series =
            format!("tidegate_replica_hops_total{{replica=\"http://{at}\",target=\"llm\"}} {times}\n");
        assert!(gate.prometheus().contains(&series), "{series}");
    }

    assert!(!gate.prometheus().contains("NaN"), "what is not known has no sample");

    let (transport, log) = replicas(|_, _, _| Act::Break);
    let gate = pooled(transport, |p| p);
    let error = gate.client().call(chat(false)).await.unwrap_err();
    let last = format!("http://{}", log.calls().pop().unwrap());
    assert_eq!(error.replica(), Some(&*last));
    assert!(error.to_string().starts_with(&format!("llm at {last}: ")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn slot_reports_its_replica() {
    let (transport, log) = replicas(|_, _, _| Act::Answer);
    let gate = pooled(transport, |p| p);
    let context = tidegate::Context::default();
    let mut at = std::collections::BTreeSet::new();
    let mut slots = Vec::new();
    for _ in 0..4 {
        let slot = gate.acquire_slot("llm", &context).await.unwrap();
        at.insert(slot.replica().unwrap().to_owned());
        slots.push(slot);
    }
    assert!(at.len() >= 2 && at.iter().all(|at| at.starts_with("http://")), "{at:?}");
    while let Some(mut slot) = slots.pop() {
        let there = slot.replica().unwrap().to_owned();
        let left = |there: &str| slots.iter().filter(|slot| slot.replica() == Some(there)).count() as u64;
        assert!(slot.failed(Some(http::StatusCode::TOO_MANY_REQUESTS), None));
        drop(slot);
        let replicas = replicas_of(&gate);
        let named = replicas.iter().find(|replica| replica["url"] == *there).unwrap();
        assert_eq!(named["requests"].as_u64(), Some(left(&there)), "the slot was there: {replicas:?}");
    }
    assert_all_idle(&gate, &log);
}

/// A proxy in front of `a` answers with its login page.
#[tokio::test(start_paused = true)]
async fn call_is_tried_elsewhere_if_a_replica_answers_with_a_web_page() {
    let (transport, log) = replicas(|at, _, _| if at == "a" { Act::WebPage } else { Act::Answer });
    let gate = pooled(transport, |p| p);
    for stream in [false, true].into_iter().cycle().take(60) {
        let response = gate.client().call(chat(stream)).await.unwrap();
        assert_eq!(read(response).await.unwrap(), ANSWER);
    }
    assert_eq!(log.calls().iter().filter(|at| *at == "a").count(), 5, "{:?}", log.calls());
    assert_all_idle(&gate, &log);
}

/// The engine of `a` hangs, although its server answers health probes.
#[tokio::test(start_paused = true)]
async fn replica_that_leaves_calls_unanswered_gets_few_calls() {
    for by_deadline in [false, true] {
        let (transport, log) = replicas(|at, what, _| match (at, what) {
            ("a", RequestKind::Call) => Act::Hang,
            _ => Act::Answer,
        });
        let gate = pooled(transport, |p| p.health("/health"));
        let mut unanswered = 0;
        for _ in 0..200 {
            let mut request = chat(false);
            let deadline = by_deadline.then(|| Instant::now() + SECOND);
            let read = (!by_deadline).then_some(SECOND);
            request.extensions_mut().insert(tidegate::Timeouts { read, ..Default::default() });
            request.extensions_mut().insert(tidegate::Context { deadline, ..Default::default() });
            unanswered += usize::from(gate.client().call(request).await.is_err());
        }
        assert!(log.calls().iter().filter(|at| *at == "a").count() <= 15, "{by_deadline}: {unanswered}");
        assert_all_idle(&gate, &log);
    }
}
