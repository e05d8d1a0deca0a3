//! Tests of the timeout of the caller's own client while a call waits for a replica.

use http::Request;
use tidegate::config::Retry;
use tidegate::{Context, Reason, Timeouts};
use tokio::time::Instant;

use super::*;
use crate::support::*;

/// Returns a call of a client with a timeout of 5 s, as OpenAI's and Anthropic's SDKs set it.
fn impatient() -> Request<RequestBody> {
    let mut request = chat(false);
    request.extensions_mut().insert(Timeouts { read: Some(5 * SECOND), pool: Some(5 * SECOND) });
    request
}

/// Returns a gate with a pool whose replicas have answered a call, and then refuse connections
/// until `back`. The gate has found them down.
async fn refusing(back: Duration, target: impl FnOnce(Target) -> Target) -> (Gate, Arc<Log>) {
    let down = Instant::now() + SECOND;
    let (transport, log) = replicas(move |_, _, _| match Instant::now() {
        now if now >= down && now < down + back => Act::Refuse,
        _ => Act::Answer,
    });
    let gate = targeted(transport, |p| p.health("/health"), target);
    read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    assert!(replicas_of(&gate).iter().all(|replica| replica["state"] == "down"), "{:?}", replicas_of(&gate));
    (gate, log)
}

const REFUSED: &str = "no replica accepts calls (http://a: connections are refused; \
    http://b: connections are refused; http://c: connections are refused; http://d: connections are refused)";

#[tokio::test(start_paused = true)]
async fn client_timeout_ends_the_wait_for_a_pool_that_is_down_and_names_the_replicas() {
    // The wait budget stands still, because no replica accepts calls.
    let (gate, log) = refusing(1000 * SECOND, |t| t.wait(SECOND)).await;
    for _ in 0..2 {
        let start = Instant::now();
        let error = gate.client().call(impatient()).await.expect_err("no replica");
        assert_eq!((error.reason(), start.elapsed()), (Some(Reason::ClientTimeout), 5 * SECOND), "{error}");
        assert_eq!(error.status(), 504);
        assert!(error.message().contains(REFUSED), "{error}");
        // The replicas are probed each second, and a probe takes less than a second.
        let retry_after = error.retry_after().expect("replicas are probed");
        assert!((SECOND..=2 * SECOND).contains(&retry_after), "{retry_after:?}");
    }
    assert!(replicas_of(&gate).iter().all(|replica| replica["problem"] == "connections are refused"));
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn outage_of_a_pool_is_logged_once() {
    let (lines, _guard) = LogLines::collect();
    let (gate, log) = refusing(30 * SECOND, |t| t).await;
    let begins = REFUSED.replace("no replica accepts", "no replica of llm accepts");
    assert_eq!(lines.take("replica"), [format!("WARN: {begins}")]);
    read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    assert_eq!(lines.take("outage"), ["INFO: the outage of the target is over"]);
    assert_all_idle(&gate, &log);
}

/// No call is made from the beginning of an outage until the pool has recovered, so that only
/// health probes show both.
#[tokio::test(start_paused = true)]
async fn each_outage_that_probes_show_is_logged_with_its_end() {
    let (lines, _guard) = LogLines::collect();
    let start = Instant::now();
    let (transport, log) = replicas(move |_, _, _| match start.elapsed().as_secs() % 100 {
        1..6 => Act::Refuse,
        _ => Act::Answer,
    });
    let gate = targeted(transport, |p| p.health("/health"), |t| t);
    let begins = REFUSED.replace("no replica accepts", "no replica of llm accepts");
    for outage in 0..2 {
        tokio::time::sleep_until(start + SECOND * 100 * outage).await;
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
        tokio::time::sleep(9 * SECOND).await;
        let mut logged = lines.take("");
        logged.retain(|line| line.contains("no replica") || line.contains("outage"));
        assert_eq!(logged, [&*format!("WARN: {begins}"), "INFO: the outage of the target is over"]);
    }
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn deadline_that_ends_the_wait_for_a_replica_names_the_replicas() {
    let (gate, log) = refusing(1000 * SECOND, |t| t).await;
    let mut request = chat(false);
    let deadline = Some(Instant::now() + 10 * SECOND);
    request.extensions_mut().insert(Context { deadline, ..Context::default() });
    let error = gate.client().call(request).await.expect_err("no replica");
    assert_eq!((error.reason(), error.status().as_u16()), (Some(Reason::Deadline), 504), "{error}");
    let text = error.message();
    assert!(text.starts_with("the deadline passed before a slot was free: the target is down"), "{text}");
    assert!(text.contains(REFUSED) && !text.contains("raise"), "{text}");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn call_completes_if_a_replica_returns_within_the_client_timeout() {
    let (gate, log) = refusing(7 * SECOND, |t| t).await;
    read(gate.client().call(impatient()).await.unwrap()).await.unwrap();
    assert!(replicas_of(&gate).iter().any(|replica| replica["problem"].is_null()));
    assert_all_idle(&gate, &log);
}

/// Each replica rejects each call at once, so the call is mostly in a pause and not in the queue.
#[tokio::test(start_paused = true)]
async fn client_timeout_limits_the_pauses_while_all_replicas_are_full() {
    let (transport, log) = replicas(|_, _, _| Act::Status(503, &[]));
    let gate = pooled(transport, |p| p);
    let start = Instant::now();
    match gate.client().call(impatient()).await {
        Ok(response) => assert_eq!(response.status(), 503),
        Err(error) => assert_eq!(error.reason(), Some(Reason::ClientTimeout), "{error}"),
    }
    // Tokio rounds the end of each pause up to a millisecond.
    let took = start.elapsed();
    assert!((4 * SECOND..=5 * SECOND + SECOND / 20).contains(&took), "{took:?}");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn replica_that_alone_serves_the_model_is_named_if_it_is_down() {
    let down = Instant::now() + SECOND;
    let (transport, log) = replicas(move |at, _, _| match at {
        "b" if Instant::now() >= down => Act::Refuse,
        _ => Act::Answer,
    });
    let members = [Replica::new("http://a").model("other"), Replica::new("http://b").model("m")];
    let gate = targeted(transport, |_| Pool::new(members).health("/health").poll(None), |t| t);
    read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    let start = Instant::now();
    let error = gate.client().call(impatient()).await.expect_err("no replica");
    assert_eq!((error.reason(), start.elapsed()), (Some(Reason::ClientTimeout), 5 * SECOND), "{error}");
    let expected = "some replicas accept no calls (http://b: connections are refused)";
    assert!(error.message().contains(expected), "{error}");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_busy_pool_is_limited_by_the_pool_timeout_and_not_by_the_read_timeout() {
    let (transport, log) = replicas(|_, _, _| Act::Answer.after(3 * SECOND));
    let gate = targeted(transport, |_| Pool::new([Replica::new("http://a")]).cap(1).poll(None), |t| t);
    let call = async |wait_for_data, wait_for_slot| {
        let mut request = chat(false);
        request.extensions_mut().insert(Timeouts { read: wait_for_data, pool: wait_for_slot });
        read(gate.client().call(request).await?).await
    };
    let (first, second, third) = tokio::join!(
        call(None, None),
        call(Some(4 * SECOND), None),
        call(Some(4 * SECOND), Some(2 * SECOND)),
    );
    first.unwrap();
    second.expect("an answer 3 s after it was sent, and 6 s after the call was made");
    let error = third.expect_err("a wait of 2 s");
    assert_eq!(error.reason(), Some(Reason::ClientTimeout), "{error}");
    drop(log);
}

/// An SDK's timeout does not include the delays of its own retries. The gate makes these retries,
/// so the timeout does not run while the gate observes a Retry-After.
#[tokio::test(start_paused = true)]
async fn client_timeout_does_not_run_while_a_provider_asks_callers_to_wait() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        Ok(if n == 0 { status(429, &[("retry-after", "20")], "{}") } else { json(exchange, ANSWER) })
    });
    let gate = gate(transport, |t| t);
    let call = async || gate.client().call(impatient()).await;
    let (one, other) = tokio::join!(call(), call());
    assert!(one.is_ok_and(|response| response.status() == 200) && other.is_ok());
}

#[tokio::test(start_paused = true)]
async fn client_timeout_ends_the_wait_for_a_target_that_is_down() {
    let up = Instant::now() + SECOND;
    let (transport, _) = upstream(move |_, _, exchange| async move {
        match Instant::now() < up {
            true => Ok(json(exchange, ANSWER)),
            false => Err(Error::new(ErrorKind::Connect, "refused").with_connect_refused()),
        }
    });
    let gate = gate(transport, |t| t.retry(Retry::new().attempts(100)));
    read(gate.client().call(impatient()).await.unwrap()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    let start = Instant::now();
    let calls = (0..5).map(|_| async { gate.client().call(impatient()).await });
    for error in futures_util::future::join_all(calls).await.into_iter().map(Result::unwrap_err) {
        assert_eq!(error.reason(), Some(Reason::ClientTimeout), "{error}");
        assert!(error.message().contains("the target is down"), "{error}");
    }
    assert!((5 * SECOND..7 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_idle(&gate);
}
