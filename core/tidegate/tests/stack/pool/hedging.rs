//! Tests of hedging: if the first token of a stream is late, a second attempt is made at another
//! replica.

use tokio::time::Instant;

use super::*;
use crate::support::*;

fn hedges(gate: &Gate, what: &str) -> u64 {
    gate.snapshot().targets["llm"].hedges.get(what).copied().unwrap_or_default()
}

/// Returns replicas whose streams have a delay before each frame: 10 s at the replica that is
/// called first, and 10 ms at the others.
fn first_is_late() -> (Transport, Arc<Log>) {
    let asked = Arc::new(Mutex::new(None::<String>));
    replicas(move |at, what, _| {
        if what != RequestKind::Call {
            return Act::Answer;
        }
        let mut first = asked.lock();
        let first = first.get_or_insert_with(|| at.to_owned());
        if first == at { Act::stream(10 * SECOND) } else { Act::stream(10 * MS) }
    })
}

#[tokio::test(start_paused = true)]
async fn hedge_wins_if_the_first_attempt_is_late() {
    let (transport, log) = first_is_late();
    let gate = pooled(transport, |p| p.hedge(SECOND));
    let start = Instant::now();
    let text = read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!(text, STREAM.concat());
    assert_eq!(start.elapsed(), SECOND + 40 * MS);
    let calls = log.calls();
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0], calls[1]);
    assert_eq!((hedges(&gate, "sent"), hedges(&gate, "won")), (1, 1));
    let target = &gate.snapshot().targets["llm"];
    assert_eq!(
        (target.attempts, target.tenants["default"].outcomes["completed"]),
        (2, 1),
        "one call, two attempts"
    );
    assert_eq!(target.upstream_ttft.count, 1, "the loser is no sample");
    let record = gate.calls().records().pop().unwrap();
    assert_eq!(record.attempts.len(), 2);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn first_attempt_wins_if_the_hedge_is_later() {
    let (transport, log) = replicas(|_, _, _| Act::stream(2 * SECOND));
    let gate = pooled(transport, |p| p.hedge(SECOND));
    let start = Instant::now();
    read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!(start.elapsed(), 8 * SECOND);
    assert_eq!((hedges(&gate, "sent"), hedges(&gate, "won"), log.calls().len()), (1, 0, 2));
    assert_eq!(gate.calls().records().pop().unwrap().attempts.len(), 2);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn hedges_stay_inside_the_retry_budget() {
    let (transport, log) = replicas(|_, _, _| Act::stream(2 * SECOND));
    let retry = tidegate::config::Retry::new().ratio(0.0).reserve(2);
    let gate = targeted(transport, |p| p.hedge(SECOND), |t| t.retry(retry));
    let calls = (0..6).map(|_| async { read(gate.client().call(chat(true)).await?).await });
    assert!(futures_util::future::join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!((hedges(&gate, "sent"), hedges(&gate, "no_budget")), (2, 4));
    assert_eq!(log.calls().len(), 8);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn hedge_without_a_free_slot_is_not_sent_or_charged() {
    let (transport, log) = replicas(|_, _, _| Act::stream(2 * SECOND));
    let gate = pooled(transport, |p| p.cap(1).hedge(SECOND));
    let before = gate.snapshot().targets["llm"].retry_budget;
    let calls = (0..4).map(|_| async { read(gate.client().call(chat(true)).await?).await });
    assert!(futures_util::future::join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!((hedges(&gate, "sent"), hedges(&gate, "no_slot"), log.calls().len()), (0, 4, 4));
    assert!(gate.snapshot().targets["llm"].retry_budget >= before);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn only_streams_in_flight_are_hedged() {
    let (transport, log) = replicas(|_, _, _| Act::Answer.after(5 * SECOND));
    let gate = pooled(transport, |p| p.hedge(SECOND));
    read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    assert_eq!(log.calls().len(), 1);
    let (transport, log) = replicas(|_, _, _| Act::stream(100 * MS));
    let gate = pooled(transport, |p| p.cap(1).hedge(SECOND));
    let calls = (0..80).map(|_| async { read(gate.client().call(chat(true)).await?).await });
    assert!(futures_util::future::join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(log.calls().len(), 80);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn failure_of_one_attempt_leaves_the_other() {
    // The replica that is called first is late and then fails. The second answers later.
    let asked = Arc::new(Mutex::new(None::<String>));
    let (transport, log) = replicas(move |at, what, _| {
        if what != RequestKind::Call {
            return Act::Answer;
        }
        let mut first = asked.lock();
        let first = first.get_or_insert_with(|| at.to_owned());
        if first == at { Act::Status(500, &[]).after(2 * SECOND) } else { Act::stream(2 * SECOND) }
    });
    let gate = pooled(transport, |p| p.hedge(SECOND));
    let start = Instant::now();
    read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_eq!(start.elapsed(), 9 * SECOND);
    assert_eq!((hedges(&gate, "won"), log.calls().len()), (1, 2));
    let failures = &gate.snapshot().targets["llm"].failed_attempts;
    assert_eq!(failures.get("server_error"), Some(&1), "{failures:?}");
    assert_all_idle(&gate, &log);
}

/// Returns replicas of which the one that gets the first call does what `first` states, and the
/// others do what `others` states.
fn first_and_others(first: Act, others: Act) -> (Transport, Arc<Log>) {
    let asked = Arc::new(Mutex::new(None::<String>));
    replicas(move |at, what, _| {
        if what != RequestKind::Call {
            return Act::Answer;
        }
        let mut seen = asked.lock();
        if seen.get_or_insert_with(|| at.to_owned()) == at { first.clone() } else { others.clone() }
    })
}

#[tokio::test(start_paused = true)]
async fn final_failure_is_returned_before_the_hedge_ends() {
    let (transport, log) =
        first_and_others(Act::Status(400, &[]).after(2 * SECOND), Act::stream(60 * SECOND));
    let gate = pooled(transport, |p| p.hedge(SECOND));
    let start = Instant::now();
    let response = gate.client().call(chat(true)).await.unwrap();
    assert_eq!((response.status().as_u16(), start.elapsed()), (400, 2 * SECOND));
    drop(response);
    assert_eq!(log.calls().len(), 2);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn failed_first_attempt_releases_its_slot_at_once() {
    let (transport, log) =
        first_and_others(Act::Status(500, &[]).after(2 * SECOND), Act::stream(10 * SECOND));
    let gate = pooled(transport, |p| p.hedge(SECOND));
    let client = gate.client();
    let call = tokio::spawn(async move { read(client.call(chat(true)).await?).await });
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(gate.snapshot().targets["llm"].in_flight, 1, "the second's alone");
    assert_eq!(call.await.unwrap().unwrap(), STREAM.concat());
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn unfinished_body_of_the_failed_first_attempt_does_not_delay_the_hedge() {
    // The head of the failure is held until 3 s, and its body could be read until 4 s.
    let failure = Act::FailedStream(vec![(60 * SECOND, Some("{}"))]);
    let (transport, log) = first_and_others(failure.after(2 * SECOND), Act::stream(SECOND));
    let gate = pooled(transport, |p| p.hedge(1500 * MS));
    let start = Instant::now();
    let response = gate.client().call(chat(true)).await.unwrap();
    assert_eq!((start.elapsed(), hedges(&gate, "won")), (3500 * MS, 1));
    assert_eq!(gate.snapshot().targets["llm"].in_flight, 1, "the hedge's alone");
    assert_eq!(read(response).await.unwrap(), STREAM.concat());
    assert_all_idle(&gate, &log);
}

/// Both attempts fail with a body that never ends. The head of the first failure is held until 3 s,
/// and its body is read until 4 s. The head of the second failure is held until 3.5 s.
#[tokio::test(start_paused = true)]
async fn failed_hedge_releases_its_slot_before_the_first_failure_is_read() {
    let asked = Arc::new(Mutex::new(0));
    let (transport, log) = replicas(move |_, what, _| {
        if what != RequestKind::Call {
            return Act::Answer;
        }
        let mut asked = asked.lock();
        *asked += 1;
        let failure = Act::FailedStream(vec![(60 * SECOND, Some("{}"))]);
        match *asked {
            1 => failure.after(2 * SECOND),
            2 => failure.after(SECOND),
            _ => Act::stream(MS),
        }
    });
    let gate = pooled(transport, |p| p.hedge(1500 * MS));
    let client = gate.client();
    let call = tokio::spawn(async move { read(client.call(chat(true)).await?).await });
    tokio::time::sleep(3750 * MS).await;
    assert_eq!(gate.snapshot().targets["llm"].in_flight, 1, "the first attempt's alone");
    assert_eq!(call.await.unwrap().unwrap(), STREAM.concat());
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn deadline_while_only_the_hedge_is_in_flight_is_no_rejection() {
    let (transport, log) =
        first_and_others(Act::Status(500, &[]).after(2 * SECOND), Act::stream(60 * SECOND));
    let gate = pooled(transport, |p| p.hedge(SECOND));
    let mut request = chat(true);
    let deadline = Some(Instant::now() + 10 * SECOND);
    request.extensions_mut().insert(tidegate::Context { deadline, ..Default::default() });
    let error = gate.client().call(request).await.unwrap_err();
    assert_eq!((error.kind(), log.calls().len()), (ErrorKind::Deadline, 2));
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn call_whose_hedge_has_won_keeps_the_failure_of_its_own_attempt() {
    let (transport, log) =
        first_and_others(Act::Status(500, &[]).after(2 * SECOND), Act::stream(10 * SECOND));
    let gate = pooled(transport, |p| p.hedge(SECOND));
    let mut request = chat(true);
    let deadline = Some(Instant::now() + 35 * SECOND);
    request.extensions_mut().insert(tidegate::Context { deadline, ..Default::default() });
    let response = gate.client().call(request).await.unwrap();
    assert_eq!(hedges(&gate, "won"), 1);
    let error = read(response).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline);
    assert!(error.message().contains("the last attempt failed: server_error"), "{error}");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn hedge_whose_connection_is_refused_was_not_sent() {
    let is_later = Arc::new(Mutex::new(false));
    let (transport, log) = replicas(move |_, what, _| match what {
        RequestKind::Call if std::mem::replace(&mut *is_later.lock(), true) => Act::Refuse,
        RequestKind::Call => Act::Refuse.after(2 * SECOND),
        _ => Act::Answer,
    });
    let gate = pooled(transport, |p| p.hedge(SECOND));
    let mut request = chat(true);
    let deadline = Some(Instant::now() + 10 * SECOND);
    request.extensions_mut().insert(tidegate::Context { deadline, ..Default::default() });
    let error = gate.client().call(request).await.unwrap_err();
    assert_eq!((error.never_sent(), hedges(&gate, "sent")), (true, 1), "{error}");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn failure_of_both_attempts_is_counted_and_avoids_both_replicas() {
    let asked = Arc::new(Mutex::new(0));
    let (transport, log) = replicas(move |_, what, _| {
        if what != RequestKind::Call {
            return Act::Answer;
        }
        let mut asked = asked.lock();
        *asked += 1;
        match *asked {
            1 => Act::Status(500, &[]).after(2 * SECOND),
            2 => Act::Status(500, &[]).after(SECOND / 2),
            _ => Act::stream(MS),
        }
    });
    let gate = pooled(transport, |p| p.hedge(SECOND));
    read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    let calls = log.calls();
    assert_eq!(calls.len(), 3);
    assert!(calls[2] != calls[0] && calls[2] != calls[1], "{calls:?}");
    let failures = "tidegate_failed_attempts_total{class=\"server_error\",target=\"llm\"} 2\n";
    assert!(gate.prometheus().contains(failures), "the second's too: {}", gate.prometheus());
    assert_eq!(gate.calls().records().pop().unwrap().attempts.len(), 3);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn cancelled_hedged_call_records_both_attempts() {
    let (transport, log) = replicas(|_, _, _| Act::stream(60 * SECOND));
    let gate = pooled(transport, |p| p.hedge(SECOND));
    let call = gate.client();
    assert!(tokio::time::timeout(3 * SECOND, call.call(chat(true))).await.is_err());
    assert_eq!(log.calls().len(), 2);
    let record = gate.calls().records().pop().unwrap();
    assert_eq!((record.outcome, record.attempts.len()), ("cancelled", 2));
    assert!(record.attempts.iter().all(|attempt| attempt.released_at.is_some()), "{record:?}");
    assert_all_idle(&gate, &log);
}
