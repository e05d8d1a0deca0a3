//! Tests of the limit layer in a stack with other layers.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use tidegate::Reason;
use tidegate::limit::{AdaptiveLimitLayer, LimitedBody};
use tokio::time::Instant;
use tower::retry::{Policy, RetryLayer};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};

use crate::support::*;

/// A retry policy that retries errors and server errors (5xx). The field is the number of retries
/// left.
#[derive(Clone)]
struct Thrice(usize);

impl Policy<Ask, Response<LimitedBody<Answer>>, BoxError> for Thrice {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Ask,
        result: &mut Result<Response<LimitedBody<Answer>>, BoxError>,
    ) -> Option<Ready<()>> {
        let failed = result.as_ref().map_or(true, |response| response.status().is_server_error());
        (failed && self.0 > 0).then(|| {
            self.0 -= 1;
            ready(())
        })
    }

    fn clone_request(&mut self, request: &Ask) -> Option<Ask> {
        Some(request.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn layer_composes_with_retries_and_timeouts() {
    let (upstream, seen) = upstream(|nth, _| match nth {
        0 => Script::refusal(503, &[]),
        1 => Script::whole(60 * SECOND),
        _ => Script::stream(MS, MS),
    });
    let layer = AdaptiveLimitLayer::builder("llm").cap(1).build().unwrap();
    let service = ServiceBuilder::new()
        .timeout(30 * SECOND)
        .layer(RetryLayer::new(Thrice(3)))
        .layer(layer.clone())
        .timeout(10 * SECOND)
        .service(upstream);
    let began = Instant::now();
    let body = service.clone().oneshot(ask()).await.unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), Bytes::from("tokenend"));
    assert_eq!((seen.calls(), began.elapsed().as_secs()), (3, 10), "one slot was enough for all attempts");
    assert_idle(&layer, &seen);
}

#[tokio::test(start_paused = true)]
async fn outer_timeout_ends_the_wait() {
    let (upstream, seen) = upstream(|_, _| Script::whole(60 * SECOND));
    let layer = AdaptiveLimitLayer::builder("llm").cap(1).build().unwrap();
    let service = ServiceBuilder::new().timeout(SECOND).layer(layer.clone()).service(upstream);
    let calls = (0..3).map(|_| service.clone().oneshot(ask()));
    for result in futures_util::future::join_all(calls).await {
        assert!(result.unwrap_err().is::<tower::timeout::error::Elapsed>());
    }
    assert_eq!(seen.peak(), 1);
    assert_idle(&layer, &seen);
}

#[tokio::test(start_paused = true)]
async fn clones_and_services_of_one_layer_share_its_limit() {
    let (upstream, seen) = upstream(|_, _| Script::whole(SECOND));
    let layer = AdaptiveLimitLayer::builder("llm").cap(1).queue(1).build().unwrap();
    let (one, other) = (layer.layer(upstream.clone()), layer.clone().layer(upstream));
    let third = one.clone();
    let (first, second, third) = tokio::join!(call(&one), call(&other), call(&third));
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(third.err().as_ref().and_then(reason), Some(Reason::QueueFull));
    assert_eq!((seen.peak(), one.snapshot().peak_in_flight), (1, 1));
}

/// A service that counts how often it is polled for readiness. It stands for services that reserve
/// capacity when they are ready.
#[derive(Clone)]
struct Reserves(Upstream, std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl Service<Ask> for Reserves {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = <Upstream as Service<Ask>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Ask) -> Self::Future {
        self.0.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn inner_service_is_polled_ready_after_the_slot_is_acquired() {
    let (upstream, _) = upstream(|_, _| Script::whole(60 * SECOND));
    let reserved = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
    let layer = AdaptiveLimitLayer::builder("llm").cap(1).build().unwrap();
    let service = layer.layer(Reserves(upstream, reserved.clone()));
    let calls: Vec<_> = (0..3).map(|_| tokio::spawn(service.clone().oneshot(ask()))).collect();
    settle().await;
    assert_eq!(reserved.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert_eq!(layer.snapshot().queue_depth, 2);
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn settings_are_checked() {
    let error = AdaptiveLimitLayer::builder("llm").cap(0).build().unwrap_err();
    assert_eq!(error.kind(), tidegate::ErrorKind::Config);
    assert!(error.message().contains("targets.llm.cap"), "{error}");
    let error = AdaptiveLimitLayer::builder("").build().unwrap_err();
    assert_eq!(error.kind(), tidegate::ErrorKind::Config);
    let far = AdaptiveLimitLayer::new(std::time::Duration::MAX);
    assert_eq!(found(&far).objective, Some(300.0), "half of ten minutes");
    assert_eq!(found(&AdaptiveLimitLayer::new(std::time::Duration::ZERO)).objective, Some(0.0005));
}
