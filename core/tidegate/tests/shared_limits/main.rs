//! Several gates and several processes share limits, over a local broker and over Redis.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod over_redis;
mod pools;
mod processes;
mod upstream;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use processes::Process;
use tidegate::Gate;
use tidegate::config::{OnFull, Pool, Share, Target};
use tokio::task::JoinHandle;
use upstream::{GIVE_UP_AFTER, Upstream};

/// Returns a name for a share that no other test uses.
fn unique_name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Creates a gate whose target `llm` shares its limit. `share` is the name of the share at the
/// local broker, or the URL of a Redis server.
fn gate(url: &str, share: &str, cap: usize) -> Gate {
    gate_of(url, share_of(share), cap)
}

fn share_of(share: &str) -> Share {
    if share.contains("://") { Share::redis(share) } else { Share::local().name(share) }
}

/// Stands for an adaptive limit, instead of a cap.
const ADAPTIVE: usize = 0;

/// Creates a gate whose target `llm` shares its limit.
fn gate_of(url: &str, share: Share, cap: usize) -> Gate {
    let target = Target::new("llm").url(url);
    let target = if cap == ADAPTIVE { target } else { target.cap(cap) };
    Gate::builder().target(target).share(share).build().unwrap()
}

/// Makes a call, and returns its status or its error.
async fn call(gate: &Gate, url: &str) -> String {
    call_with(gate, url, r#"{"model": "m", "messages": []}"#).await
}

async fn call_with(gate: &Gate, url: &str, body: &'static str) -> String {
    let request = Request::post(format!("{url}/chat/completions"))
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap();
    match gate.client().call(request).await {
        Ok(response) => {
            let status = response.status();
            match response.into_body().collect().await {
                Ok(_) => status.as_u16().to_string(),
                Err(error) => error.to_string(),
            }
        }
        Err(error) => error.to_string(),
    }
}

/// Starts `calls` calls.
fn start_calls(gate: &Gate, url: &str, calls: usize) -> Vec<JoinHandle<String>> {
    let start = |_| {
        let (gate, url) = (gate.clone(), url.to_owned());
        tokio::spawn(async move { call(&gate, &url).await })
    };
    (0..calls).map(start).collect()
}

/// Returns the answer of a call, which must come in time.
async fn answer_of(call: JoinHandle<String>) -> String {
    tokio::time::timeout(GIVE_UP_AFTER, call).await.expect("an answer in time").unwrap()
}

/// Waits until `condition` holds, which no event announces.
async fn until(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(GIVE_UP_AFTER, holds).await.expect("the condition holds in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gates_share_a_cap() {
    let upstream = Upstream::start().await;
    let (url, name) = (upstream.url(), unique_name());
    let (first, second) = (gate(&url, &name, 4), gate(&url, &name, 4));
    let mut calls = start_calls(&first, &url, 10);
    upstream.until(|seen| seen.in_flight == 4).await;
    calls.extend(start_calls(&second, &url, 10));
    for answered in 1..=20 {
        upstream.answer(1);
        upstream.until(|seen| seen.answered == answered && seen.in_flight == 4.min(20 - answered)).await;
    }
    for call in calls {
        assert_eq!(call.await.unwrap(), "200");
    }
    assert_eq!(upstream.seen().peak, 4);
}

/// The broker runs in the gate of a process that has more gates, such as one for each worker
/// thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cap_holds_when_the_gate_with_the_broker_is_dropped() {
    let upstream = Upstream::start().await;
    let (url, name) = (upstream.url(), unique_name());
    let broker = gate(&url, &name, 8);
    upstream.answer(1);
    assert_eq!(call(&broker, &url).await, "200");
    let others = [(); 2].map(|()| gate(&url, &name, 8));
    let calls: Vec<_> = others.iter().flat_map(|other| start_calls(other, &url, 10)).collect();
    let share = |gate: &Gate| gate.snapshot().targets["llm"].share.unwrap();
    upstream.until(|seen| seen.in_flight == 8).await;
    until(|| others.iter().all(|other| share(other).processes == 3)).await;
    drop(broker);
    until(|| others.iter().all(|other| share(other).processes == 2)).await;
    for answered in 2..=21 {
        upstream.answer(1);
        upstream.until(|seen| seen.answered == answered && seen.in_flight == 8.min(21 - answered)).await;
    }
    for call in calls {
        assert_eq!(answer_of(call).await, "200");
    }
    assert_eq!(upstream.seen().peak, 8);
}

/// The adaptive limit of two gates grows with the calls of both, and holds for both.
async fn check_adaptive_limit(share_name: &str) {
    let upstream = Upstream::start().await;
    let url = upstream.url();
    let gates = [(); 2].map(|()| gate(&url, share_name, ADAPTIVE));
    let [first, second] = &gates;
    let share = |gate: &Gate| gate.snapshot().targets["llm"].share.unwrap();
    let mut calls = start_calls(first, &url, 40);
    until(|| upstream.seen().in_flight > 0 && upstream.seen().in_flight == share(first).cap).await;
    let start = share(first).cap;
    calls.extend(start_calls(second, &url, 40));
    until(|| share(second).processes == 2).await;
    // The limit grows with each of the first answers.
    for answered in 1..=30 {
        upstream.answer(1);
        upstream.until(|seen| seen.answered == answered).await;
    }
    let is_full = |limit| share(second).cap == limit && upstream.seen().in_flight == limit;
    until(|| share(first).cap > start && is_full(share(first).cap)).await;
    assert!(upstream.seen().peak <= share(first).cap);
    assert!(gates.iter().all(|gate| gate.snapshot().targets["llm"].in_flight > 0));
    upstream.answer(80);
    for call in calls {
        assert_eq!(answer_of(call).await, "200");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gates_share_an_adaptive_limit() {
    check_adaptive_limit(&unique_name()).await;
}

/// The gate that leads an adaptive limit counts the calls of another gate, until they end or that
/// gate is dropped.
async fn check_counted_calls(share: &str) {
    let upstream = Upstream::start().await;
    let url = upstream.url();
    let (leader, other) = (gate(&url, share, ADAPTIVE), gate(&url, share, ADAPTIVE));
    let stream = |gate: &Gate| {
        let (gate, url) = (gate.clone(), url.clone());
        tokio::spawn(async move { call_with(&gate, &url, r#"{"model": "m", "stream": true}"#).await })
    };
    let target = |gate: &Gate| gate.snapshot().targets["llm"].clone();
    let awaiting = |gate: &Gate| target(gate).adaptive.unwrap().awaiting;
    let first = stream(&leader);
    until(|| upstream.seen().in_flight == 1).await;
    let calls = [stream(&other), stream(&other)];
    until(|| awaiting(&leader) == 3).await;
    upstream.answer(1);
    until(|| awaiting(&leader) == 2).await;
    calls.iter().for_each(JoinHandle::abort);
    first.abort();
    until(|| awaiting(&leader) == 0 && upstream.seen().in_flight == 0).await;
    let call = stream(&other);
    until(|| awaiting(&leader) == 1).await;
    call.abort();
    drop(other);
    until(|| target(&leader).share.is_some_and(|share| share.processes == 1)).await;
    until(|| awaiting(&leader) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_counts_the_calls_of_other_gates() {
    check_counted_calls(&unique_name()).await;
}

/// A process that leads an adaptive limit is killed, and then another one reduces the limit.
async fn check_killed_leader(share_name: &str) {
    let upstream = Upstream::start().await;
    let url = upstream.url();
    let leader = Process::start(&url, share_name, ADAPTIVE, 40);
    upstream.until(|seen| seen.in_flight > 0).await;
    let gate = gate(&url, share_name, ADAPTIVE);
    let calls = start_calls(&gate, &url, 40);
    let share = || gate.snapshot().targets["llm"].share.unwrap();
    until(|| share().processes == 2).await;
    drop(leader);
    upstream.until(|seen| seen.aborted > 0).await;
    until(|| share().processes == 1 && upstream.seen().in_flight == share().cap).await;
    let start = share().cap;
    upstream.answer(4);
    upstream.until(|seen| seen.answered == 4 && seen.in_flight == start).await;
    // The upstream refuses all calls in flight: that of a call that was sent as one of few does not
    // reduce the limit.
    *upstream.head.lock() = Some("HTTP/1.1 429 Too Many Requests\r\n".to_owned());
    upstream.answer(start);
    until(|| share().cap < start).await;
    *upstream.head.lock() = None;
    upstream.answer(60);
    for call in calls {
        assert_eq!(answer_of(call).await, "200");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_adapts_the_limit_when_its_leader_is_killed() {
    check_killed_leader(&unique_name()).await;
}

/// Two gates with many calls send as many as one rate permits.
async fn check_rates(share: &str) {
    let upstream = Upstream::start().await;
    let url = upstream.url();
    let target = Target::new("llm").url(&url).cap(1_000).rpd(100);
    let gates =
        [(); 2].map(|()| Gate::builder().target(target.clone()).share(share_of(share)).build().unwrap());
    check_requests_per_day(&upstream, &gates, 100).await;
}

/// Two gates with many calls send as many as a rate permits that they know only from headers.
async fn check_announced_rates(share: &str) {
    let upstream = Upstream::start().await;
    let url = upstream.url();
    let gates = [(); 2].map(|()| gate(&url, share, 1_000));
    *upstream.head.lock() = Some("HTTP/1.1 200 OK\r\nx-ratelimit-limit-requests-day: 100\r\n".to_owned());
    upstream.answer(2);
    for gate in &gates {
        assert_eq!(call(gate, &url).await, "200");
    }
    check_requests_per_day(&upstream, &gates, 98).await;
}

/// A process gets its part of a rate while a call waits, which it cannot do here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pool_that_refuses_calls_does_not_share_a_rate_of_headers() {
    let upstream = Upstream::start().await;
    let url = upstream.url();
    let pool = Pool::new([&url]).poll(None).health(None);
    let target = Target::new("llm").url(&url).pool(pool).on_full(OnFull::Refuse);
    let gate = Gate::builder().target(target).share(share_of(&unique_name())).build().unwrap();
    *upstream.head.lock() = Some("HTTP/1.1 200 OK\r\nx-ratelimit-limit-requests-day: 100\r\n".to_owned());
    upstream.answer(3);
    for _ in 0..3 {
        assert_eq!(call(&gate, &url).await, "200");
    }
    assert_eq!(gate.snapshot().targets["llm"].budgets["requests_per_day"].processes, None);
}

/// Two gates with many calls send `left` of them.
async fn check_requests_per_day(upstream: &Upstream, gates: &[Gate; 2], left: usize) {
    let url = upstream.url();
    let calls: Vec<_> = gates.iter().flat_map(|gate| start_calls(gate, &url, 80)).collect();
    // A little less may be charged at once than the rate.
    upstream.until(|seen| seen.in_flight + 2 >= left).await;
    let waiting = |gate: &Gate| gate.snapshot().targets["llm"].queue_depth;
    until(|| gates.iter().map(waiting).sum::<usize>() + upstream.seen().in_flight == 160).await;
    assert!(upstream.seen().peak <= left);
    let processes =
        gates.iter().map(|gate| gate.snapshot().targets["llm"].budgets["requests_per_day"].processes);
    assert_eq!(processes.max(), Some(Some(2)));
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gates_share_a_rate() {
    check_rates(&unique_name()).await;
}

/// Targets that are not configured are shared by the processes that use them with the same key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_share_unconfigured_target_by_its_key() {
    let upstream = Upstream::start().await;
    let (url, name) = (upstream.url(), unique_name());
    let gates = [(); 2].map(|()| Gate::builder().share(share_of(&name)).build().unwrap());
    upstream.answer(10);
    let call = async |gate: &Gate, key: &str| {
        let request = Request::post(format!("{url}/chat/completions")).header("authorization", key);
        let response = gate.client().call(request.body("{}".into()).unwrap()).await.unwrap();
        response.into_body().collect().await.unwrap();
    };
    let processes = |gate: &Gate, target: &str| {
        let name = format!("{}{target}", upstream.address);
        gate.snapshot().targets[name.as_str()].share.map(|share| share.processes)
    };
    call(&gates[0], "Bearer one").await;
    call(&gates[1], "Bearer two").await;
    call(&gates[1], "Bearer one").await;
    // In the second gate, the key of the first one comes second.
    until(|| processes(&gates[0], "") == Some(2) && processes(&gates[1], "#2") == Some(2)).await;
    assert_eq!(processes(&gates[1], ""), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gates_share_a_rate_of_headers() {
    check_announced_rates(&unique_name()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_gets_a_slot_when_a_call_ends() {
    let upstream = Upstream::start().await;
    let (url, name) = (upstream.url(), unique_name());
    let (first, second) = (gate(&url, &name, 2), gate(&url, &name, 2));
    let waiting = start_calls(&first, &url, 20);
    upstream.until(|seen| seen.in_flight == 2).await;
    let newcomer = start_calls(&second, &url, 1).remove(0);
    // The first gate keeps one slot, and must return the other one.
    until(|| first.snapshot().targets["llm"].share.as_ref().is_some_and(|share| share.others_wait)).await;
    for answered in 1..=4 {
        upstream.answer(1);
        upstream.until(|seen| seen.answered == answered && seen.in_flight == 2).await;
    }
    assert_eq!(newcomer.await.unwrap(), "200");
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_a_cap_and_survive_the_kill_of_each_other() {
    let upstream = Upstream::start().await;
    let (url, name) = (upstream.url(), unique_name());
    let mut processes: Vec<_> = (0..4).map(|_| Process::start(&url, &name, 8, 10)).collect();
    upstream.until(|seen| seen.in_flight == 8).await;
    for kills in 1..4 {
        upstream.answer(100);
        upstream.until(|seen| seen.answered >= 100 * kills && seen.in_flight == 8).await;
        // The first one is the broker.
        drop(processes.remove(0));
    }
    upstream.answer(100);
    upstream.until(|seen| seen.answered == 400 && seen.in_flight == 8).await;
    let seen = upstream.seen();
    assert_eq!(seen.peak, 8);
    let survivor = &mut processes[0];
    while let Ok(outcome) = survivor.answers.try_recv() {
        assert_eq!(outcome, "200");
    }
    upstream.answer(usize::MAX >> 4);
    survivor.finish();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_broker_is_replaced() {
    let upstream = Upstream::start().await;
    let (url, name) = (upstream.url(), unique_name());
    let leader = Process::start(&url, &name, 4, 10);
    upstream.until(|seen| seen.in_flight == 4).await;
    let _other = Process::start(&url, &name, 4, 10);
    leader.signal("STOP");
    upstream.answer(4);
    upstream.until(|seen| seen.answered == 4 && seen.in_flight == 4).await;
    leader.signal("CONT");
    upstream.answer(1_000);
    upstream.until(|seen| seen.answered == 1_004 && seen.in_flight == 4).await;
    assert_eq!(upstream.seen().peak, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cooldown_reaches_the_other_gates() {
    let upstream = Upstream::start().await;
    check_cooldown(&upstream, &unique_name(), |gate| gate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cooldown_survives_the_broker() {
    let (upstream, name) = (Upstream::start().await, unique_name());
    check_cooldown(&upstream, &name, drop).await;
}

/// Checks that a cool-down of one gate reaches another gate of a share, which [`gate`] names, and a
/// newcomer that joins after `lose` was called, which may let the store of the share lose its data.
/// The argument of `lose` is the gate whose call was rejected.
async fn check_cooldown<T>(upstream: &Upstream, share: &str, lose: impl FnOnce(Gate) -> T) {
    let url = upstream.url();
    let (first, second) = (gate(&url, share, 4), gate(&url, share, 4));
    upstream.answer(2);
    assert_eq!(call(&first, &url).await, "200");
    assert_eq!(call(&second, &url).await, "200");
    *upstream.head.lock() = Some("HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\n".to_owned());
    upstream.answer(1);
    let limited = start_calls(&first, &url, 1).remove(0);
    until(|| second.snapshot().targets["llm"].state == "cooling").await;
    limited.abort();
    let _kept = lose(first);
    let third = gate(&url, share, 4);
    let waiting = start_calls(&third, &url, 1).remove(0);
    until(|| third.snapshot().targets["llm"].state == "cooling").await;
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_without_slots_gets_one_after_a_cooldown() {
    let upstream = Upstream::start().await;
    let (url, name) = (upstream.url(), unique_name());
    let (first, second) = (gate(&url, &name, 4), gate(&url, &name, 4));
    let mut calls = start_calls(&first, &url, 10);
    upstream.until(|seen| seen.in_flight == 4).await;
    calls.extend(start_calls(&second, &url, 10));
    *upstream.head.lock() = Some("HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\n".to_owned());
    upstream.answer(1);
    until(|| second.snapshot().targets["llm"].state == "cooling").await;
    *upstream.head.lock() = None;
    upstream.answer(1_000);
    for call in calls {
        assert_eq!(answer_of(call).await, "200");
    }
    assert_eq!(upstream.seen().peak, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_without_a_usable_directory_works_alone() {
    let upstream = Upstream::start().await;
    let (url, name) = (upstream.url(), unique_name());
    let directory = std::env::temp_dir().join(&name);
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("tidegate"), "no directory").unwrap();
    let mut alone = Process::start_in(&url, &name, 3, 5, Some(&directory));
    upstream.until(|seen| seen.in_flight == 3).await;
    upstream.answer(1_000);
    assert_eq!(alone.answers.recv().await.unwrap(), "200");
    alone.finish();
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_without_other_members_removes_its_files() {
    let upstream = Upstream::start().await;
    let (url, name) = (upstream.url(), unique_name());
    let runtime = std::env::temp_dir().join(&name);
    std::fs::create_dir(&runtime).unwrap();
    upstream.answer(1_000_000);
    let start = async || {
        let mut process = Process::start_in(&url, &name, 4, 1, Some(&runtime));
        assert_eq!(process.answers.recv().await.unwrap(), "200");
        process
    };
    let files = || std::fs::read_dir(runtime.join("tidegate")).unwrap().count();
    let mut alone = start().await;
    assert_ne!(files(), 0);
    alone.finish();
    assert_eq!(files(), 0);
    let (mut broker, other) = (start().await, start().await);
    broker.finish();
    assert_ne!(files(), 0);
    drop(other);
    std::fs::remove_dir_all(&runtime).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_moves_to_a_runtime_directory_that_appears() {
    let upstream = Upstream::start().await;
    let (url, name) = (upstream.url(), unique_name());
    let directory = std::env::temp_dir().join(&name);
    let runtime = directory.join("run");
    std::fs::create_dir(&directory).unwrap();
    let mut early = Process::start_in(&url, &name, 4, 10, Some(&runtime));
    upstream.until(|seen| seen.in_flight == 4).await;
    std::fs::create_dir(&runtime).unwrap();
    until(|| std::fs::read_dir(runtime.join("tidegate")).is_ok_and(|mut files| files.next().is_some())).await;
    let mut late = Process::start_in(&url, &name, 4, 10, Some(&runtime));
    // More than the first process can use before the second one has joined.
    upstream.answer(1_000_000);
    assert_eq!(late.answers.recv().await.unwrap(), "200");
    assert_eq!(upstream.seen().peak, 4);
    early.finish();
    late.finish();
    std::fs::remove_dir_all(&directory).unwrap();
}
