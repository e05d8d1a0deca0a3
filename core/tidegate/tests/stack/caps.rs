//! Tests through the whole client of caps, queues, rejections and the release of slots.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate::config::{OnFull, Retry, Tenant};
use tidegate::{Context, Lane, Reason};
use tokio::time::Instant;

use crate::support::*;

fn slow(answer: Duration) -> (tidegate::Transport, std::sync::Arc<Seen>) {
    upstream(move |_, _, exchange| async move {
        tokio::time::sleep(answer).await;
        Ok(json(exchange, ANSWER))
    })
}

#[tokio::test(start_paused = true)]
async fn all_forty_callers_are_served_by_four_slots() {
    let (transport, seen) = slow(Duration::from_millis(1500));
    let gate = gate(transport, |t| t.cap(4));
    let start = Instant::now();
    let calls = (0..40).map(|_| async { read(gate.client().call(chat(false)).await?).await });
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(seen.peak(), 4);
    assert_eq!(start.elapsed(), Duration::from_secs(15));
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn slot_is_held_until_the_stream_ends() {
    let (transport, seen) = upstream(|_, _, exchange| async {
        Ok(sse(
            exchange,
            vec![(SECOND, Some(ROLE)), (SECOND, Some(TOKEN)), (SECOND, Some(STOP)), (SECOND, Some(DONE))],
        ))
    });
    let gate = gate(transport, |t| t.cap(1));
    let first = gate.client().call(chat(true)).await.unwrap();
    let client = gate.client();
    let mut second = std::pin::pin!(client.call(chat(true)));
    assert!(
        tokio::time::timeout(60 * SECOND, &mut second).await.is_err(),
        "no slot while the first is unread"
    );
    assert_eq!(seen.attempts(), 1);
    read(first).await.unwrap();
    drop(second.await.unwrap());
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn response_that_arrived_whole_holds_no_slot() {
    let (transport, seen) = upstream(|_, _, _| async { Ok(status(200, &[], ANSWER)) });
    let gate = gate(transport, |t| t.cap(1));
    let unread = gate.client().call(chat(false)).await.unwrap();
    assert_idle(&gate);
    let log = gate.calls().records();
    let [call] = &log[..] else { panic!("one call: {log:?}") };
    assert_eq!((call.outcome, call.output_tokens), ("completed", Some(1)));
    assert_eq!(read(gate.client().call(chat(false)).await.unwrap()).await.unwrap(), ANSWER);
    assert_eq!((seen.attempts(), read(unread).await.unwrap()), (2, ANSWER.into()));
}

#[tokio::test(start_paused = true)]
async fn tenant_cap_delays_only_its_tenant() {
    let (transport, _) = slow(SECOND);
    let gate = gate(transport, |t| t.cap(64).tenant("B", Tenant::new().cap(2)));
    let start = Instant::now();
    let done = |tenant: &'static str| {
        let client = gate.client();
        async move {
            read(client.call(of(tenant)).await.unwrap()).await.unwrap();
            start.elapsed()
        }
    };
    let b: Vec<_> = (0..6).map(|_| tokio::spawn(done("B"))).collect();
    let a = join_all((0..10).map(|_| done("A"))).await;
    assert!(a.iter().all(|end| *end == SECOND));
    let b = join_all(b).await.into_iter().map(|end| end.unwrap().as_secs()).collect::<Vec<_>>();
    assert_eq!(b, [1, 1, 2, 2, 3, 3]);
    assert_eq!(gate.snapshot().targets["llm"].tenants["B"].peak_in_flight, 2);
}

#[tokio::test(start_paused = true)]
async fn full_target_rejects_or_queues_as_configured() {
    let (transport, _) = slow(600 * SECOND);
    let refusing = gate(transport.clone(), |t| t.cap(1).on_full(OnFull::Refuse));
    let _held = tokio::spawn({
        let client = refusing.client();
        async move { client.call(chat(false)).await.map(drop) }
    });
    tokio::task::yield_now().await;
    let start = Instant::now();
    let error = refusing.client().call(chat(false)).await.unwrap_err();
    assert_eq!((error.reason(), error.status().as_u16()), (Some(Reason::NoSlot), 429));
    assert!(error.retry_after().is_some());
    assert_eq!(start.elapsed(), Duration::ZERO);

    let waiting = gate(transport, |t| t.cap(1).wait(30 * SECOND).queue(2));
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let client = waiting.client();
            tokio::spawn(async move { (client.call(chat(false)).await.map(drop), start.elapsed()) })
        })
        .collect();
    tokio::task::yield_now().await;
    let mut calls = calls.into_iter();
    let _in_flight = calls.next();
    for position in [0, 1] {
        let (result, at) = calls.next().unwrap().await.unwrap();
        let error = result.unwrap_err();
        assert_eq!((error.reason(), error.status().as_u16()), (Some(Reason::WaitBudget), 504));
        assert_eq!((at, error.queue_position()), (30 * SECOND, Some(position)));
    }
    let (result, at) = calls.next().unwrap().await.unwrap();
    let error = result.unwrap_err();
    assert_eq!(
        (error.reason(), error.queue_position(), at),
        (Some(Reason::QueueFull), Some(2), Duration::ZERO)
    );
}

#[tokio::test(start_paused = true)]
async fn target_that_does_not_queue_rejects_each_call_in_a_cool_down() {
    let (transport, seen) =
        upstream(|_, _, _| async move { Ok(status(429, &[("retry-after", "30")], "{}")) });
    let gate = gate(transport, |t| t.on_full(OnFull::Refuse).retry(Retry::new().attempts(1)));
    let response = gate.client().call(chat(false)).await.unwrap();
    assert_eq!((response.status().as_u16(), seen.attempts()), (429, 1));
    drop(response);
    let error = gate.client().call(chat(false)).await.unwrap_err();
    assert_eq!((error.reason(), seen.attempts()), (Some(Reason::CoolDown), 1));
    // The deadline, of ten minutes, is no reason for the rejection.
    let text =
        "asked callers to wait (Retry-After), and this target does not queue calls (`on_full = \"refuse\"`)";
    assert!(error.message().contains(text), "{error}");
}

#[tokio::test(start_paused = true)]
async fn lanes_are_served_by_priority_and_age() {
    let (transport, _) = slow(SECOND);
    let gate = gate(transport, |t| t.cap(1).aging(10 * SECOND));
    let order = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut calls = Vec::new();
    for (lane, n) in [(Lane::Batch, 0), (Lane::Batch, 1), (Lane::Interactive, 2), (Lane::Standard, 3)] {
        let (client, order) = (gate.client(), order.clone());
        calls.push(tokio::spawn(async move {
            let mut request = chat(false);
            request.extensions_mut().insert(Context { lane, ..Context::default() });
            read(client.call(request).await.unwrap()).await.unwrap();
            order.lock().push(n);
        }));
        tokio::task::yield_now().await;
    }
    join_all(calls).await;
    assert_eq!(*order.lock(), [0, 2, 3, 1], "the first was in flight already");
}

#[tokio::test(start_paused = true)]
async fn call_cancelled_at_any_stage_leaves_no_slot_in_use() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        tokio::time::sleep(Duration::from_millis(n as u64 % 7)).await;
        Ok(sse(
            exchange,
            vec![
                (Duration::from_millis(3), Some(ROLE)),
                (Duration::from_millis(3), Some(TOKEN)),
                (SECOND, Some(STOP)),
            ],
        ))
    });
    let gate = gate(transport, |t| t.cap(8));
    let calls = (0..2000u64).map(|n| {
        let client = gate.client();
        tokio::spawn(async move {
            let life = Duration::from_micros(n * 7919 % 60_000);
            let _ = tokio::time::timeout(life, async { read(client.call(chat(true)).await?).await }).await;
        })
    });
    join_all(calls.collect::<Vec<_>>()).await;
    assert_eq!(seen.in_flight.load(Ordering::SeqCst), 0);
    assert_idle(&gate);
    assert!(seen.peak() <= 8);
}

#[tokio::test(start_paused = true)]
async fn panic_in_the_transport_releases_the_slot() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        assert!(n > 0, "the first one panics");
        Ok(json(exchange, ANSWER))
    });
    let gate = gate(transport, |t| t.cap(1));
    let client = gate.client();
    assert!(tokio::spawn(async move { client.call(chat(false)).await.map(drop) }).await.is_err());
    read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn draining_finishes_calls_and_rejects_new_ones() {
    let (transport, _) = slow(5 * SECOND);
    let gate = gate(transport, |t| t.cap(1));
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let client = gate.client();
            tokio::spawn(async move { read(client.call(chat(false)).await?).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let drained = {
        let gate = gate.clone();
        tokio::spawn(async move { gate.drain(12 * SECOND).await })
    };
    tokio::task::yield_now().await;
    assert_eq!(gate.client().call(chat(false)).await.unwrap_err().reason(), Some(Reason::Draining));
    let results =
        join_all(calls).await.into_iter().map(|call| call.unwrap().map(drop).map_err(|e| e.reason()));
    assert_eq!(
        results.collect::<Vec<_>>(),
        [Ok(()), Ok(()), Ok(())],
        "15 s of work; the last was in flight at 12 s"
    );
    assert_eq!(drained.await.unwrap(), 1);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn changed_cap_admits_waiting_calls_or_retires_slots() {
    let (transport, seen) = slow(SECOND);
    let gate = gate(transport, |t| t.cap(2));
    let start = Instant::now();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = gate.client();
            tokio::spawn(async move {
                read(client.call(chat(false)).await.unwrap()).await.unwrap();
                start.elapsed().as_secs()
            })
        })
        .collect();
    tokio::time::sleep(SECOND / 2).await;
    gate.set_cap("llm", 6).unwrap();
    tokio::task::yield_now().await;
    assert_eq!(seen.in_flight(), 6, "at once, without a call that ends");
    tokio::time::sleep(SECOND / 4).await;
    gate.set_cap("llm", 1).unwrap();
    assert_eq!(seen.in_flight(), 6, "what is in flight stays");
    let ends: Vec<u64> = join_all(calls).await.into_iter().map(|end| end.unwrap()).collect();
    assert_eq!(ends.iter().filter(|end| **end < 2).count(), 6);
    assert_eq!(seen.peak(), 6);
    assert!(start.elapsed() >= 15 * SECOND, "one at a time from there on");
    assert_eq!(gate.snapshot().targets["llm"].limit, 1);
    assert!(gate.set_cap("llm", 0).unwrap_err().to_string().contains("1 or more"));
    assert!(gate.set_cap("lm", 3).is_err());
    assert_idle(&gate);
}
