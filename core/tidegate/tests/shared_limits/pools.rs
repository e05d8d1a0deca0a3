//! Gates that share a pool.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Gate;
use tidegate::config::{Pool, Target};
use tokio::task::JoinHandle;

use super::upstream::Upstream;
use super::{answer_of, call, share_of, start_calls, unique_name, until};

/// The URL of the pool in each gate.
const URL: &str = "http://pool.test/v1";

/// Creates a gate with a pool of these replicas, which are not polled.
fn gate(replicas: &[&Arc<Upstream>], share: &str) -> Gate {
    let pool = Pool::new(replicas.iter().map(|replica| replica.url())).poll(None).health(None);
    let target = Target::new("llm").url(URL).pool(pool);
    Gate::builder().target(target).share(share_of(share)).build().unwrap()
}

/// Returns the number of calls that other clients have at the first replica, as far as the gate knows.
fn others(gate: &Gate) -> Option<f64> {
    gate.snapshot().targets["llm"].replicas.iter().find_map(|replica| replica.others)
}

/// Makes calls by the first gate, whose only replica is `replica`, until the second gate counts one of them.
/// Returns that call, which is still in flight.
async fn wait_for_exchange(first: &Gate, second: &Gate, replica: &Upstream) -> JoinHandle<String> {
    loop {
        let call = start_calls(first, URL, 1).remove(0);
        replica.until(|seen| seen.in_flight == 1).await;
        // Calls that begin before both gates have joined are not told.
        let heard = until(|| others(second) == Some(1.0));
        if tokio::time::timeout(Duration::from_millis(200), heard).await.is_ok() {
            return call;
        }
        replica.answer(1);
        assert_eq!(answer_of(call).await, "200");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_where_the_calls_of_another_gate_are_not() {
    let (busy, idle) = (Upstream::start().await, Upstream::start().await);
    let name = unique_name();
    let (first, second) = (gate(&[&busy], &name), gate(&[&busy, &idle], &name));
    [&busy, &idle].iter().for_each(|replica| replica.answer(1));
    assert_eq!(call(&second, URL).await, "200");
    [&busy, &idle].iter().for_each(|replica| replica.answer_no_more());
    let mut calls = vec![wait_for_exchange(&first, &second, &busy).await];
    calls.extend(start_calls(&first, URL, 3));
    until(|| others(&second) == Some(4.0)).await;
    calls.extend(start_calls(&second, URL, 4));
    idle.until(|seen| seen.in_flight == 4).await;
    assert_eq!(busy.seen().in_flight, 4);
    [&busy, &idle].iter().for_each(|replica| replica.answer(100));
    for call in calls {
        assert_eq!(answer_of(call).await, "200");
    }
    until(|| others(&second).is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_call_of_another_gate_is_forgotten() {
    let replica = Upstream::start().await;
    let name = unique_name();
    let (first, second) = (gate(&[&replica], &name), gate(&[&replica], &name));
    replica.answer(1);
    assert_eq!(call(&second, URL).await, "200");
    wait_for_exchange(&first, &second, &replica).await.abort();
    until(|| others(&second).is_none()).await;
}
