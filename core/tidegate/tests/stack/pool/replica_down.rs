//! Tests of replicas that go down while they have calls: calls without a token are retried at
//! another replica, and streams continue as long as they deliver data.

use http::Request as HttpRequest;
use tokio::time::Instant;

use super::*;
use crate::support::*;

/// Returns replicas of which `a` answers neither calls nor polls. On calls, the other replicas do
/// what `others` states.
fn a_hangs(others: Act) -> (Transport, Arc<Log>) {
    replicas(move |at, what, _| match (at, what) {
        ("a", _) => Act::Hang,
        (_, RequestKind::Call) => others.clone(),
        _ => Act::Answer,
    })
}

/// The number of calls. Replicas are chosen at random, and of 16 calls, none goes to `a` in one of
/// a hundred runs.
const CALLS: usize = 64;

fn watched(transport: Transport) -> Gate {
    pooled(transport, |p| p.health("/health").down_after(2 * SECOND).cut_after(10 * SECOND))
}

#[tokio::test(start_paused = true)]
async fn unanswered_attempts_leave_a_replica_that_goes_down() {
    for stream in [false, true] {
        let (transport, log) = a_hangs(if stream { Act::stream(MS) } else { Act::Answer });
        let gate = watched(transport);
        let start = Instant::now();
        let calls = (0..CALLS).map(|_| async { read(gate.client().call(chat(stream)).await?).await });
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert!(start.elapsed() < 5 * SECOND, "{:?}", start.elapsed());
        let target = &gate.snapshot().targets["llm"];
        let at_a = log.calls().iter().filter(|at| *at == "a").count();
        assert!(at_a > 0, "some of so many go to each of four");
        assert_eq!(target.retries["replica_down"], at_a as u64);
        assert_eq!(log.calls().len(), CALLS + at_a);
        assert_all_idle(&gate, &log);
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_that_must_not_repeat_stay_at_a_down_replica() {
    let (transport, log) = a_hangs(Act::Answer);
    let gate = watched(transport);
    let unknown = || {
        let mut request = HttpRequest::post("http://llm/v1/charge").body("{}".into()).unwrap();
        request
            .extensions_mut()
            .insert(tidegate::Context { deadline: Some(Instant::now() + 30 * SECOND), ..Default::default() });
        request
    };
    let calls = (0..16).map(|_| async { gate.client().call(unknown()).await.map(drop) });
    let results = futures_util::future::join_all(calls).await;
    let failed = results.iter().filter(|result| result.is_err()).count();
    assert_eq!(failed, log.calls().iter().filter(|at| *at == "a").count());
    assert_eq!(log.calls().len(), 16, "none was sent twice");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn call_that_fails_every_replica_ends() {
    let (transport, log) = replicas(|_, _, _| Act::Hang);
    let gate = targeted(
        transport,
        |p| p.health("/health").down_after(2 * SECOND),
        |t| t.retry(tidegate::config::Retry::new().attempts(2)).deadline(60 * SECOND),
    );
    let error = gate.client().call(chat(false)).await.unwrap_err();
    assert!(log.calls().len() <= 2, "{:?}", log.calls());
    assert!(
        matches!(error.kind(), ErrorKind::Transport | ErrorKind::Refused(_) | ErrorKind::Deadline),
        "{error:?}"
    );
    assert_all_idle(&gate, &log);
}

/// Returns a stream of `tokens` tokens that lacks its terminal event. Each token comes `gap` after
/// the previous one.
fn begun(gap: Duration, tokens: usize) -> Act {
    let mut frames = vec![(MS, Some(ROLE))];
    frames.extend(std::iter::repeat_n((gap, Some(TOKEN)), tokens));
    Act::Stream(frames)
}

#[tokio::test(start_paused = true)]
async fn silent_stream_of_a_down_replica_is_cut() {
    let start = Instant::now();
    let fell = start + SECOND;
    let (transport, log) = replicas(move |_, what, _| match what {
        RequestKind::Health if Instant::now() >= fell => Act::Hang,
        RequestKind::Call => {
            // Two tokens, then nothing for an hour.
            let Act::Stream(mut frames) = begun(400 * MS, 2) else { return Act::Hang };
            frames.push((3600 * SECOND, Some(STOP)));
            Act::Stream(frames)
        }
        _ => Act::Answer,
    });
    let gate = watched(transport);
    let error = read(gate.client().call(chat(true)).await.unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
    let took = start.elapsed();
    assert!((10 * SECOND..14 * SECOND).contains(&took), "{took:?}");
    assert_eq!(log.calls().len(), 1, "what was begun is not repeated");
    assert_eq!(gate.snapshot().targets["llm"].tenants["default"].outcomes["truncated"], 1);
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn silent_stream_of_a_healthy_replica_continues() {
    let (transport, log) = replicas(|_, what, _| match what {
        RequestKind::Call => {
            Act::Stream(vec![(MS, Some(TOKEN)), (120 * SECOND, Some(STOP)), (MS, Some(DONE))])
        }
        _ => Act::Answer,
    });
    let gate = watched(transport);
    read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn delivering_stream_continues_whatever_the_health() {
    let start = Instant::now();
    let (transport, log) = replicas(move |_, what, _| match what {
        RequestKind::Health if start.elapsed() > SECOND => Act::Status(503, &[]),
        RequestKind::Call => {
            let Act::Stream(mut frames) = begun(SECOND, 60) else { return Act::Hang };
            frames.extend([(MS, Some(STOP)), (MS, Some(DONE))]);
            Act::Stream(frames)
        }
        _ => Act::Answer,
    });
    let gate = watched(transport);
    read(gate.client().call(chat(true)).await.unwrap()).await.expect("a minute of tokens");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn draining_replica_finishes_its_streams() {
    let (transport, log) = replicas(|_, what, _| match what {
        RequestKind::Call => Act::stream(10 * SECOND),
        _ => Act::Answer,
    });
    let config = Config::builder().target(Target::new("llm").pool(Pool::dynamic().health(None).poll(None)));
    let gate = Gate::over(config.build().unwrap(), transport).unwrap();
    let names =
        |names: &[&str]| names.iter().map(|name| Replica::new(format!("http://{name}"))).collect::<Vec<_>>();
    gate.set_replicas("llm", names(&["a"])).unwrap();
    let client = gate.client();
    let first = tokio::spawn(async move { read(client.call(chat(true)).await?).await });
    tokio::time::sleep(SECOND).await;
    gate.set_replicas("llm", names(&["b"])).unwrap();
    assert_eq!(replicas_of(&gate).len(), 2, "it is still there");
    read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    first.await.unwrap().expect("its stream ended as it should");
    assert_eq!(log.calls(), ["a", "b"]);
    assert_eq!(replicas_of(&gate).len(), 1, "and then it left");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn call_to_a_pool_cancelled_at_any_stage_leaves_nothing_in_use() {
    for millis in [0, 1, 50, 500, 1_999, 2_500, 4_000, 11_000, 13_000] {
        for stream in [false, true] {
            let (transport, log) = replicas(|at, what, _| match (at, what) {
                ("a", _) => Act::Hang,
                ("b", RequestKind::Call) => Act::Refuse,
                ("c", RequestKind::Call) => Act::stream(700 * MS),
                ("d", RequestKind::Call) => Act::Status(503, &[]),
                _ => Act::Answer,
            });
            let gate = pooled(transport, |p| p.health("/health").hedge(300 * MS));
            let calls = (0..8).map(|_| {
                let client = gate.client();
                tokio::spawn(async move { read(client.call(chat(stream)).await?).await })
            });
            let calls: Vec<_> = calls.collect();
            tokio::time::sleep(MS * millis).await;
            for call in calls {
                call.abort();
                let _ = call.await;
            }
            assert_idle(&gate);
            for replica in replicas_of(&gate) {
                assert_eq!(replica["requests"], 0, "{replica} after {millis} ms");
            }
            assert_eq!(["b", "c", "d"].map(|at| log.open(at)), [0; 3]);
        }
    }
}

/// The load is 40 calls per second, each of which takes 1 s.
#[tokio::test(start_paused = true)]
async fn recovered_replica_gets_calls_within_two_seconds() {
    for away in [Act::Refuse, Act::Hang, Act::Status(500, &[])] {
        let start = Instant::now();
        let gone = move || (3 * SECOND..8 * SECOND).contains(&start.elapsed());
        let name = format!("{:?}", std::mem::discriminant(&away));
        let sent = Arc::new(Mutex::new(Vec::new()));
        let seen = sent.clone();
        let (transport, log) = replicas(move |at, what, _| {
            if at == "a" && what == RequestKind::Call {
                seen.lock().push(start.elapsed());
            }
            match what {
                _ if at == "a" && gone() => away.clone(),
                RequestKind::Call => Act::Answer.after(SECOND),
                _ => Act::Answer,
            }
        });
        let gate = pooled(transport, |p| p.health("/health").slow_start(10 * SECOND).cap(64));
        let calls = (0..480u32).map(|n| {
            let client = gate.client();
            async move {
                tokio::time::sleep(25 * MS * n).await;
                read(client.call(chat(false)).await?).await
            }
        });
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(Result::is_ok), "{name}");
        let sent = sent.lock().clone();
        let last = sent.iter().filter(|at| (3 * SECOND..8 * SECOND).contains(*at)).max().copied();
        let first = sent.iter().filter(|at| **at >= 8 * SECOND).min().copied();
        // Calls sent before the outage are still answered for a second, which counts as a sign of
        // health.
        assert!(last.unwrap_or_default() <= 5 * SECOND, "{name}: out at {last:?}");
        assert!(first.is_some_and(|first| first <= 10 * SECOND), "{name}: back at {first:?}");
        assert_all_idle(&gate, &log);
    }
}
