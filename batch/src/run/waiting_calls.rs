//! Counts the calls that wait in the gate. For this purpose, a transport between the gate and the
//! real transport observes when each call is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::Request;
use tidegate::{RequestBody, Transport};
use tokio::sync::Notify;
use tower::Service;

/// The number of calls that wait in the gate. Clones share one count.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueMeter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicUsize,
    changed: Notify,
}

/// A call that counts as waiting until it is sent, or until all clones of this value are dropped.
/// It is an extension of its request, so that the transport finds it.
#[derive(Clone, Debug)]
pub(super) struct QueuedCall(Arc<QueueEntry>);

#[derive(Debug)]
struct QueueEntry {
    meter: QueueMeter,
    sent: AtomicBool,
}

impl QueueMeter {
    /// Returns a transport that passes each request on to `transport`, and then no longer counts
    /// its call as waiting.
    pub(super) fn over(&self, transport: Transport) -> Transport {
        Transport::new(WatchedTransport(transport))
    }

    /// Counts one more waiting call, until the returned value is dropped or its request is sent.
    pub(super) fn register_call(&self) -> QueuedCall {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        QueuedCall(Arc::new(QueueEntry { meter: self.clone(), sent: AtomicBool::new(false) }))
    }

    pub(super) fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Waits until a waiting call is sent or dropped. Returns at once if that has happened since
    /// this method last returned.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

impl QueueEntry {
    fn mark_sent(&self) {
        if !self.sent.swap(true, Ordering::Relaxed) {
            self.meter.0.waiting.fetch_sub(1, Ordering::Relaxed);
            self.meter.0.changed.notify_one();
        }
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        self.mark_sent();
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
        if let Some(QueuedCall(entry)) = request.extensions_mut().remove() {
            entry.mark_sent();
        }
        self.0.call(request)
    }
}
