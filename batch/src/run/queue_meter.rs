//! Counts the calls that wait in the gate, with a thin layer between the gate and the transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::Request;
use tidegate::{RequestBody, Transport};
use tokio::sync::Notify;
use tower::Service;

/// The number of calls that wait in the gate.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueMeter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicUsize,
    changed: Notify,
}

/// A queued call, until it is sent or dropped. Travels with its request; clones refer to the same
/// call.
#[derive(Clone, Debug)]
pub(super) struct QueuedCall(Arc<QueueEntry>);

#[derive(Debug)]
struct QueueEntry {
    meter: QueueMeter,
    sent: AtomicBool,
}

impl QueueMeter {
    /// Wraps the transport below the gate.
    pub(super) fn over(&self, transport: Transport) -> Transport {
        Transport::new(WatchedTransport(transport))
    }

    /// Registers a queued call.
    pub(super) fn call(&self) -> QueuedCall {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        QueuedCall(Arc::new(QueueEntry { meter: self.clone(), sent: AtomicBool::new(false) }))
    }

    pub(super) fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Waits until a call was sent since the last wait.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

impl QueueEntry {
    fn leave(&self) {
        if !self.sent.swap(true, Ordering::Relaxed) {
            self.meter.0.waiting.fetch_sub(1, Ordering::Relaxed);
            self.meter.0.changed.notify_one();
        }
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        self.leave();
    }
}

#[derive(Clone)]
struct WatchedTransport(Transport);

impl Service<Request<RequestBody>> for WatchedTransport {
    type Response = <Transport as Service<Request<RequestBody>>>::Response;
    type Error = <Transport as Service<Request<RequestBody>>>::Error;
    type Future = <Transport as Service<Request<RequestBody>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        if let Some(QueuedCall(place)) = request.extensions_mut().remove() {
            place.leave();
        }
        self.0.call(request)
    }
}
