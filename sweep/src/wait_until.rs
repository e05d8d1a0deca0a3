//! Futures that wait for a deadline or for a stop request.

use tokio::sync::watch;
use tokio::time::Instant;

/// Waits until `when`. Never completes if `when` is `None`.
pub(crate) async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Waits until `stop` becomes `true`. Never completes if the sender of `stop` was dropped before.
pub(crate) async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}
