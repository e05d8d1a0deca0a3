//! Tests of the adaptive limit layer: how calls acquire slots, wait for them and release them.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{FutureExt, stream};
use http::Response;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use tidegate::Reason;
use tidegate::config::LimitSettings;
use tidegate::limit::{AdaptiveLimitBuilder, AdaptiveLimitLayer};
use tidegate::policy::adaptive::CallKind;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tower::{BoxError, Layer, ServiceExt, service_fn};

use crate::support::*;

/// Returns the builder of a limit layer with one slot.
fn one() -> AdaptiveLimitBuilder {
    AdaptiveLimitLayer::builder("llm").cap(1)
}

#[tokio::test(start_paused = true)]
async fn slot_is_held_until_the_body_ends() {
    let (upstream, seen) = upstream(|_, _| Script::stream(SECOND, SECOND));
    let layer = one().build().unwrap();
    let service = layer.layer(upstream);
    let mut body = send(&service).await.unwrap().into_body();
    assert!(send(&service).now_or_never().is_none(), "the next waits");
    assert_eq!(layer.snapshot().in_flight, 1);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "token");
    assert_eq!(layer.snapshot().in_flight, 1);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "end");
    assert!(body.frame().await.is_none() && body.is_end_stream());
    assert_idle(&layer, &seen);
}

#[tokio::test(start_paused = true)]
async fn dropped_body_admits_the_next_call_after_its_exchange_has_ended() {
    let (upstream, seen) = upstream(|_, _| Script::stream(SECOND, 60 * SECOND));
    let layer = one().build().unwrap();
    let service = layer.layer(upstream);
    let mut body = send(&service).await.unwrap().into_body();
    let next = tokio::spawn({
        let service = service.clone();
        async move { send(&service).await.map(drop) }
    });
    body.frame().await.unwrap().unwrap();
    assert_eq!((seen.calls(), layer.snapshot().queue_depth), (1, 1));
    drop(body);
    next.await.unwrap().unwrap();
    assert_eq!((seen.calls(), seen.peak()), (2, 1), "never two at once");
    assert_idle(&layer, &seen);
}

#[tokio::test(start_paused = true)]
async fn calls_awaiting_their_first_token_are_limited() {
    let tokens = Arc::new(Notify::new());
    let gate = tokens.clone();
    let (upstream, seen) =
        upstream(move |_, _| Script { gate: Some(gate.clone()), ..Script::stream(MS, 60 * SECOND) });
    let layer =
        AdaptiveLimitLayer::builder("llm").limit(LimitSettings::new().start(8).awaiting(2)).build().unwrap();
    let service = layer.layer(upstream);
    let callers: Vec<_> = (0..5)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { call(&service).await })
        })
        .collect();
    settle().await;
    assert_eq!((seen.calls(), layer.snapshot().queue_depth), (2, 3), "slots are free, and yet they wait");
    for (so_far, waiting) in [(3, 2), (4, 1), (5, 0)] {
        tokens.notify_one();
        sleep(2 * MS).await;
        assert_eq!((seen.calls(), layer.snapshot().queue_depth), (so_far, waiting));
        assert_eq!(found(&layer).awaiting, 2);
    }
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    join_all(callers).await;
    assert_idle(&layer, &seen);
}

#[tokio::test(start_paused = true)]
async fn calls_are_admitted_in_order() {
    let (upstream, seen) = upstream(|_, _| Script::whole(10 * MS));
    let layer = one().build().unwrap();
    let service = layer.layer(upstream);
    let order = Arc::new(Mutex::new(Vec::new()));
    let calls = (0..20).map(|nth| {
        let (service, order) = (service.clone(), order.clone());
        async move {
            call(&service).await.unwrap();
            order.lock().push(nth);
        }
    });
    join_all(calls).await;
    assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
    assert_idle(&layer, &seen);
}

#[tokio::test(start_paused = true)]
async fn queue_length_and_wait_are_limited() {
    let (upstream, seen) = upstream(|_, _| Script::whole(10 * SECOND));
    let layer = one().queue(2).wait(SECOND).build().unwrap();
    let service = layer.layer(upstream);
    let began = Instant::now();
    let calls = (0..4).map(|_| async {
        let result = call(&service).await;
        if let Err(error) = &result {
            assert!(error.to_string().contains("raise `wait` or `queue`"), "{error}");
        }
        (result.err().as_ref().and_then(reason), began.elapsed().as_secs())
    });
    let ends = join_all(calls).await;
    let late = (Some(Reason::WaitBudget), 1);
    assert_eq!(ends, [(None, 10), late, late, (Some(Reason::QueueFull), 0)]);
    assert_eq!(seen.calls(), 1);
    assert_idle(&layer, &seen);
}

#[tokio::test(start_paused = true)]
async fn objective_bounds_the_wait_unless_a_wait_is_set() {
    let with_objective = || one().objective(2 * SECOND);
    let kinds = [true, false].map(|streams| CallKind { input: 10, output: 500, streams });
    for (builder, longest) in [(with_objective(), SECOND), (with_objective().wait(5 * SECOND), 5 * SECOND)] {
        let (upstream, seen) = upstream(|_, _| Script::whole(20 * SECOND));
        let layer = builder.build().unwrap();
        let service = layer.layer(upstream);
        let first = tokio::spawn(service.clone().oneshot(ask()));
        settle().await;
        for kind in kinds {
            let mut request = ask();
            request.extensions_mut().insert(kind);
            let began = Instant::now();
            let error = service.clone().oneshot(request).await.expect_err("no slot");
            assert_eq!(reason(&error), Some(Reason::WaitBudget), "{error}");
            assert_eq!((began.elapsed(), retry_after(&error)), (longest, Some(SECOND)));
            assert_eq!(error.to_string().contains("set `wait`"), longest == SECOND, "{error}");
        }
        drop(first.await.unwrap().unwrap());
        assert_idle(&layer, &seen);
    }
}

#[tokio::test(start_paused = true)]
async fn objective_leaves_the_wait_what_the_upstream_does_not_need() {
    let (upstream, _) = upstream(|nth, _| match nth {
        0..50 => Script::stream(100 * MS, MS),
        _ => Script::stream(100 * MS, 20 * SECOND),
    });
    let service = one().objective(2 * SECOND).build().unwrap().layer(upstream);
    for _ in 0..50 {
        call(&service).await.unwrap();
    }
    let first = send(&service).await.unwrap();
    let began = Instant::now();
    let error = call(&service).await.expect_err("no slot");
    assert_eq!(reason(&error), Some(Reason::WaitBudget), "{error}");
    let waited = began.elapsed();
    assert!((1_880 * MS..=1_900 * MS).contains(&waited), "{waited:?}");
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn call_cancelled_at_any_moment_releases_its_slot() {
    // The call waits until 1,000 ms. Its head arrives at 1,250 ms, its token at 1,500 ms, and its
    // end at 1,750 ms.
    let script = |nth, _: usize| match nth {
        0 => Script::whole(1000 * MS),
        _ => Script { head: 250 * MS, ..Script::stream(250 * MS, 250 * MS) },
    };
    for after in (0..2000).step_by(125) {
        let (upstream, seen) = upstream(script);
        let layer = one().build().unwrap();
        let service = layer.layer(upstream);
        let first = tokio::spawn({
            let service = service.clone();
            async move { call(&service).await.unwrap() }
        });
        settle().await;
        let second = timeout(after * MS, call(&service)).await;
        assert_eq!(second.is_ok(), after >= 1750, "{after}");
        first.await.unwrap();
        assert_idle(&layer, &seen);
        call(&service).await.expect("the slot is there for others");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_and_panics_release_the_slot() {
    let (upstream, seen) = upstream(|nth, _| match nth {
        0 => Script { fails: Some(broken()), ..Script::whole(MS) },
        1 => Script { frames: vec![(MS, Ok("token")), (MS, Err(broken()))], ..Script::stream(MS, MS) },
        2 => panic!("a service that panics"),
        _ => Script::whole(MS),
    });
    let layer = one().build().unwrap();
    let service = layer.layer(upstream);
    for _ in 0..2 {
        assert_eq!(call(&service).await.unwrap_err().to_string(), "broken off", "errors pass as they are");
        assert_idle(&layer, &seen);
    }
    let panics = tokio::spawn({
        let service = service.clone();
        async move { call(&service).await }
    });
    assert!(panics.await.unwrap_err().is_panic());
    assert_eq!(layer.snapshot().in_flight, 0);
    call(&service).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn exchange_ends_before_its_slot_is_released() {
    /// A part of an exchange. When it is dropped, it appends the number of slots in use to the
    /// list.
    struct Looks(AdaptiveLimitLayer, Arc<Mutex<Vec<usize>>>);

    impl Drop for Looks {
        fn drop(&mut self) {
            self.1.lock().push(self.0.snapshot().in_flight);
        }
    }

    let layer = AdaptiveLimitLayer::new(SECOND);
    let seen = Arc::<Mutex<Vec<usize>>>::default();
    let service = layer.layer(service_fn({
        let (layer, seen) = (layer.clone(), seen.clone());
        move |_: Ask| {
            let looks = Looks(layer.clone(), seen.clone());
            async move {
                sleep(SECOND).await;
                let frames = stream::unfold((3, looks), async |(left, looks)| {
                    let frame = if left > 1 { Ok(Frame::data(Bytes::from("token"))) } else { Err(broken()) };
                    (left > 0).then_some((frame, (left - 1, looks)))
                });
                Ok::<_, BoxError>(Response::new(StreamBody::new(Box::pin(frames))))
            }
        }
    }));
    let before_its_head = timeout(SECOND / 2, service.clone().oneshot(ask())).await;
    assert!(before_its_head.is_err());
    drop(service.clone().oneshot(ask()).await.unwrap());
    let mut body = service.clone().oneshot(ask()).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert!(service.clone().oneshot(ask()).await.unwrap().into_body().collect().await.is_err());
    assert_eq!(*seen.lock(), [1; 4]);
    assert_eq!(layer.snapshot().in_flight, 0);
}
