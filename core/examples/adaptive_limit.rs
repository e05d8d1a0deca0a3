//! Puts the adaptive limit alone around a service of one's own, and watches it find how many calls that one can take.
//!
//! `cargo run -p tidegate --example adaptive_limit`. It calls nobody: the service answers four at a time, 20 ms each, and lets the rest wait unseen.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tidegate::Error;
use tidegate::limit::AdaptiveLimitLayer;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};

const TAKES: Duration = Duration::from_millis(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let workers = Arc::new(Semaphore::new(4));
    let busy = service_fn(move |_: Request<Full<Bytes>>| {
        let workers = workers.clone();
        async move {
            let _worker = workers.acquire().await;
            sleep(TAKES).await;
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("done"))))
        }
    });

    // Of these 300 ms a call may wait half for its slot. Nothing says how many the service can take.
    let limit = AdaptiveLimitLayer::builder("busy")
        .objective(Duration::from_millis(300))
        .wait(Duration::from_millis(150))
        .build()?;
    let service = ServiceBuilder::new().layer(limit.clone()).service(busy);

    // Twice as many as it can take, for some seconds.
    let mut calls = JoinSet::new();
    for _ in 0..1200 {
        let service = service.clone();
        calls.spawn(async move {
            let response = service.oneshot(Request::post("http://busy/").body(Full::default())?).await?;
            // The slot is held until here: the end of the body, or its drop.
            response.into_body().collect().await?;
            Ok::<_, BoxError>(())
        });
        sleep(TAKES / 8).await;
    }

    let (mut answered, mut refused) = (0, 0);
    while let Some(call) = calls.join_next().await {
        match call? {
            Ok(()) => answered += 1,
            Err(error) if error.is::<Error>() => refused += 1,
            Err(error) => return Err(error),
        }
    }
    let found = limit.snapshot();
    println!("answered {answered}, refused {refused}; at most {} at once", found.peak_in_flight);
    for decision in found.adaptive.iter().flat_map(|found| &found.decisions) {
        println!("{:4.1} s ago: {} -> {}, {}", decision.ago, decision.from, decision.to, decision.cause);
    }
    if answered > refused { Ok(()) } else { Err("it found too little".into()) }
}
