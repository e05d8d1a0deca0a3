//! Tests of what increases and decreases the adaptive limit.

use tidegate::config::LimitSettings;
use tidegate::limit::{AdaptiveLimitLayer, Judge};
use tidegate::policy::adaptive::CallKind;
use tower::{Layer, ServiceExt};

use crate::support::*;

fn causes(layer: &AdaptiveLimitLayer<impl Judge>) -> Vec<&'static str> {
    found(layer).decisions.iter().map(|decision| decision.cause).collect()
}

#[tokio::test(start_paused = true)]
async fn limit_rises_under_demand_while_responses_are_in_time() {
    let (upstream, seen) = upstream(|_, _| Script::stream(100 * MS, 400 * MS));
    let layer = AdaptiveLimitLayer::builder("llm").objective(2 * SECOND).cap(40).build().unwrap();
    load(&layer.layer(upstream), 60, 30 * SECOND).await;
    let found = found(&layer);
    assert!(found.limit > 20 && found.limit <= 40, "{found:?}");
    assert_eq!((found.ceiling, found.objective, found.cuts), (40, Some(1.0), 0));
    assert!(seen.peak() > 8 && seen.peak() <= 40);
    assert_idle(&layer, &seen);
}

#[tokio::test(start_paused = true)]
async fn limit_is_cut_when_first_tokens_are_late() {
    // The first token takes 0.1 s for each exchange in flight; with ten, it takes 1 s.
    let (upstream, seen) = upstream(|_, busy| Script::stream(100 * MS * busy as u32, 10 * MS));
    let layer = AdaptiveLimitLayer::new(2 * SECOND);
    load(&layer.layer(upstream), 60, 120 * SECOND).await;
    let found = found(&layer);
    assert!(found.cuts > 0 && causes(&layer).contains(&"late"), "{found:?}");
    assert!((4..=16).contains(&found.limit.min(found.awaiting_limit)), "{found:?}");
    assert_idle(&layer, &seen);
}

#[tokio::test(start_paused = true)]
async fn response_that_does_not_stream_is_judged_by_its_duration() {
    let (upstream, seen) = upstream(|_, busy| Script::whole(100 * MS * busy as u32));
    let layer = AdaptiveLimitLayer::new(2 * SECOND);
    load(&layer.layer(upstream), 60, 120 * SECOND).await;
    let found = found(&layer);
    assert!(found.limit.min(found.awaiting_limit) <= 16, "{found:?}");
    assert_idle(&layer, &seen);
}

#[tokio::test(start_paused = true)]
async fn long_responses_that_do_not_stream_have_their_own_objective() {
    let (upstream, _) = upstream(|_, _| Script::whole(5 * SECOND));
    let build = || AdaptiveLimitLayer::builder("llm").objective(2 * SECOND);
    for (layer, is_late) in [(build(), true), (build().latency(20 * SECOND), false)] {
        let layer = layer.build().unwrap();
        let service = layer.layer(upstream.clone());
        for _ in 0..10 {
            let mut request = ask();
            request.extensions_mut().insert(CallKind { input: 10, output: 500, streams: false });
            let calls = (0..8).map(|_| service.clone().oneshot(request.clone()));
            futures_util::future::join_all(calls).await;
        }
        assert_eq!(found(&layer).late.is_some_and(|late| late > 0.0), is_late);
    }
}

#[tokio::test(start_paused = true)]
async fn status_429_cuts_the_limit_unless_it_is_for_a_rate() {
    for (headers, cut) in [(vec![], true), (vec![("retry-after", "1")], false)] {
        let (upstream, seen) = upstream(move |_, busy| {
            if busy > 10 { Script::refusal(429, &headers) } else { Script::stream(20 * MS, 80 * MS) }
        });
        let layer = AdaptiveLimitLayer::new(2 * SECOND);
        load(&layer.layer(upstream), 40, 5 * SECOND).await;
        assert_eq!(causes(&layer).contains(&"refused"), cut, "{:?}", found(&layer));
        assert_eq!(found(&layer).limit <= 13, cut, "{:?}", found(&layer));
        assert_idle(&layer, &seen);
    }
}

#[tokio::test(start_paused = true)]
async fn overload_and_timeouts_cut_the_limit_and_other_failures_do_not() {
    let late = || -> tower::BoxError { Box::new(tower::timeout::error::Elapsed::new()) };
    type Fails = Box<dyn Fn() -> Script + Send + Sync>;
    let failing = move |fails: fn() -> tower::BoxError| -> Fails {
        Box::new(move || Script { fails: Some(fails()), ..Script::whole(MS) })
    };
    let cases: [(Fails, Option<&str>); 4] = [
        (Box::new(|| Script::refusal(529, &[])), Some("overloaded")),
        (failing(late), Some("timed_out")),
        (failing(broken), None),
        (Box::new(|| Script::refusal(500, &[])), None),
    ];
    for (fails, cause) in cases {
        let (upstream, seen) =
            upstream(move |nth, _| if nth % 3 > 0 { fails() } else { Script::stream(20 * MS, 80 * MS) });
        let layer = AdaptiveLimitLayer::builder("llm").limit(LimitSettings::new().start(32)).build().unwrap();
        load(&layer.layer(upstream), 40, SECOND).await;
        let cut = causes(&layer).into_iter().find(|cause| !["slow_start", "headroom"].contains(cause));
        assert_eq!(cut, cause);
        assert_idle(&layer, &seen);
    }
}

#[tokio::test(start_paused = true)]
async fn custom_judge_defines_the_first_token() {
    struct Content;

    impl Judge for Content {
        fn is_first_token<D: bytes::Buf>(&self, data: &D) -> bool {
            data.chunk().starts_with(b"token")
        }
    }

    let (upstream, _) = upstream(|_, _| {
        let frames = vec![(MS, Ok("ping")), (SECOND, Ok("token")), (SECOND, Ok("end"))];
        Script { frames, ..Script::stream(MS, MS) }
    });
    let layer = AdaptiveLimitLayer::builder("llm").judge(Content).build().unwrap();
    let service = layer.layer(upstream);
    let reader = tokio::spawn(async move { call(&service).await });
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(found(&layer).awaiting, 1, "a ping is none");
    tokio::time::sleep(SECOND).await;
    assert_eq!(found(&layer).awaiting, 0);
    reader.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn limit_rises_for_responses_that_do_not_stream() {
    let (upstream, _) = upstream(|_, _| Script::whole(100 * MS));
    let layer = AdaptiveLimitLayer::new(2 * SECOND);
    load(&layer.layer(upstream), 60, 20 * SECOND).await;
    let found = found(&layer);
    assert!(found.limit > 30 && found.awaiting_limit > 30 && found.cuts == 0, "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_cancelled_in_time_are_no_samples() {
    let (upstream, seen) = upstream(|nth, _| match nth % 3 {
        0 => Script::stream(60 * SECOND, SECOND),
        _ => Script::stream(100 * MS, 100 * MS),
    });
    let layer = AdaptiveLimitLayer::new(2 * SECOND);
    let service = layer.layer(upstream);
    for _ in 0..100 {
        let calls = (0..12).map(|_| tokio::time::timeout(SECOND / 2, call(&service)));
        futures_util::future::join_all(calls).await;
    }
    let found = found(&layer);
    assert!(found.cuts == 0 && found.late == Some(0.0), "{found:?}");
    assert_idle(&layer, &seen);
}
