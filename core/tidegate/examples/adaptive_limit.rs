//! Wraps any tower service in the adaptive limit, without a gate, and prints how the limit adapts.
//!
//! Run it with `cargo run -p tidegate --example adaptive_limit`. The service runs in this process.
//! It serves four calls at a time in 20 ms each, and further calls wait inside it.

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

    // Half of the 300 ms is for the wait for a slot. The capacity of the service is not configured.
    let limit = AdaptiveLimitLayer::builder("busy")
        .objective(Duration::from_millis(300))
        .wait(Duration::from_millis(150))
        .build()?;
    let service = ServiceBuilder::new().layer(limit.clone()).service(busy);

    // Twice the capacity of the service, for some seconds.
    let mut calls = JoinSet::new();
    for _ in 0..1200 {
        let service = service.clone();
        calls.spawn(async move {
            let response = service.oneshot(Request::post("http://busy/").body(Full::default())?).await?;
            // The slot is held until the body ends or is dropped, which is here.
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
