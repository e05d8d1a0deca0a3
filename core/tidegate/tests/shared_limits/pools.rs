//! Gates that share a pool, over a local broker and over Redis.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Gate;
use tidegate::config::{Pool, Share, Target};
use tidegate_test_servers::{RedisServer, free_port};
use tokio::task::JoinHandle;

use super::upstream::Upstream;
use super::{answer_of, call, share_of, start_calls, unique_name, until};

/// The URL of the pool in each gate.
const URL: &str = "http://pool.test/v1";

/// Creates a gate with a pool of these replicas, which are not polled.
fn gate(replicas: &[&Arc<Upstream>], share: Share) -> Gate {
    let pool = Pool::new(replicas.iter().map(|replica| replica.url())).poll(None).health(None);
    let target = Target::new("llm").url(URL).pool(pool);
    Gate::builder().target(target).share(share).build().unwrap()
}

/// Returns the number of calls that other clients have at the first replica, as far as the gate
/// knows.
fn others(gate: &Gate) -> Option<f64> {
    gate.snapshot().targets["llm"].replicas.iter().find_map(|replica| replica.others)
}

/// Lets both gates make calls until the second one counts a call of the first one. The first gate
/// has no replica but `replicas[0]`. Returns the counted call, which is still in flight.
async fn wait_for_exchange(first: &Gate, second: &Gate, replicas: &[&Arc<Upstream>]) -> JoinHandle<String> {
    loop {
        // Calls that begin before both gates have joined are not told.
        replicas.iter().for_each(|replica| replica.answer(2));
        assert_eq!([call(first, URL).await, call(second, URL).await], ["200", "200"]);
        replicas.iter().for_each(|replica| replica.answer_no_more());
        let call = start_calls(first, URL, 1).remove(0);
        replicas[0].until(|seen| seen.in_flight == 1).await;
        let heard = until(|| others(second) == Some(1.0));
        if tokio::time::timeout(Duration::from_millis(200), heard).await.is_ok() {
            return call;
        }
        replicas[0].answer(1);
        assert_eq!(answer_of(call).await, "200");
    }
}

/// Calls of one gate are sent to another replica than those of another gate.
pub(super) async fn check_selection(share: impl Fn() -> Share) {
    let (busy, idle) = (Upstream::start().await, Upstream::start().await);
    let (first, second) = (gate(&[&busy], share()), gate(&[&busy, &idle], share()));
    let mut calls = vec![wait_for_exchange(&first, &second, &[&busy, &idle]).await];
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
async fn calls_go_where_the_calls_of_another_gate_are_not() {
    let name = unique_name();
    check_selection(|| share_of(&name)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_redis_calls_go_where_the_calls_of_another_gate_are_not() {
    let server = RedisServer::start(&[]).unwrap();
    check_selection(|| share_of(&server.url())).await;
    let keys = server.command(&["keys", "*"]).unwrap();
    assert!(keys.trim().is_empty(), "the server keeps nothing of a pool: {keys}");
}

/// A call of another gate that is cancelled is forgotten.
async fn check_forgetting(share: &str) {
    let replica = Upstream::start().await;
    let (first, second) = (gate(&[&replica], share_of(share)), gate(&[&replica], share_of(share)));
    wait_for_exchange(&first, &second, &[&replica]).await.abort();
    until(|| others(&second).is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_call_of_another_gate_is_forgotten() {
    check_forgetting(&unique_name()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_redis_cancelled_call_of_another_gate_is_forgotten() {
    let server = RedisServer::start(&[]).unwrap();
    check_forgetting(&server.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_exchanged_again_after_the_server_has_started_again() {
    let port = free_port().unwrap();
    let (server, replica) = (RedisServer::start_on(port, &[]).unwrap(), Upstream::start().await);
    let store = server.url();
    let (first, second) = (gate(&[&replica], share_of(&store)), gate(&[&replica], share_of(&store)));
    let in_flight = wait_for_exchange(&first, &second, &[&replica]).await;
    drop(server);
    until(|| others(&second).is_none()).await;
    replica.answer(1);
    assert_eq!(answer_of(in_flight).await, "200");
    let _server = RedisServer::start_on(port, &[]).unwrap();
    wait_for_exchange(&first, &second, &[&replica]).await.abort();
}
