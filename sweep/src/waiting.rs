//! Waits that end a sweep.

use tokio::sync::watch;
use tokio::time::Instant;

/// Waits until `when`, or forever without one.
pub(crate) async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Waits until a stop is requested. Waits forever if no stop can be requested any more.
pub(crate) async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}
