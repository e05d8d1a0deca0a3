//! Counts the calls that wait in the gate, those that are in flight, and the requests that the
//! provider may bill, and tracks outages of the server. For this purpose, a transport between the
//! gate and the real transport observes the requests of each call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::BodyExt;
use parking_lot::{Mutex, MutexGuard};
use tidegate::protocol::{Dialect, Observer, Signal};
use tidegate::{Error, RequestBody, ResponseBody, Transport};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tower::Service;

use super::outage::OutageTracker;
use super::spend::CallSpend;

/// The header with which a provider says whether a request may be sent again.
pub(super) const SHOULD_RETRY: &str = "x-should-retry";

/// The numbers of calls that wait in the gate and that are in flight, and the outages of the
/// server. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueMeter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicUsize,
    in_flight: AtomicUsize,
    changed: Notify,
    outage: Mutex<OutageTracker>,
}

/// A call that counts as waiting until it is sent, or until all clones of this value are dropped.
/// It is an extension of its requests, so that the transport finds it.
#[derive(Clone, Debug)]
pub(super) struct QueuedCall(Arc<QueueEntry>);

#[derive(Debug)]
struct QueueEntry {
    meter: QueueMeter,
    spend: Arc<CallSpend>,
    dialect: Dialect,
    sent: AtomicBool,
    /// Whether the provider has forbidden to send the last request again.
    forbids_retry: AtomicBool,
    /// Number of requests of the call whose responses have not been read to their ends.
    open_requests: watch::Sender<usize>,
}

impl QueueMeter {
    /// Returns a transport that passes each request on to `transport`, and counts its call as in
    /// flight, and no longer as waiting.
    pub(super) fn over(&self, transport: Transport) -> Transport {
        Transport::new(WatchedTransport(transport))
    }

    /// Counts one more waiting call, until the returned value is dropped or its request is sent.
    /// `spend` gets the requests of the call. Its streamed responses are read in `dialect`.
    pub(super) fn register_call(&self, spend: Arc<CallSpend>, dialect: Dialect) -> QueuedCall {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let (open_requests, _) = watch::channel(0);
        let (sent, forbids_retry) = (AtomicBool::new(false), AtomicBool::new(false));
        let meter = self.clone();
        QueuedCall(Arc::new(QueueEntry { meter, spend, dialect, sent, forbids_retry, open_requests }))
    }

    pub(super) fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of calls with a request at the provider. A call that waits for its retry
    /// has none.
    pub(super) fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// Returns the tracker of the outages of the server.
    pub(super) fn outage(&self) -> MutexGuard<'_, OutageTracker> {
        self.0.outage.lock()
    }

    /// Waits until a waiting call is sent or dropped. Returns at once if that has happened since
    /// this method last returned.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

impl QueuedCall {
    /// Returns `true` if the provider has forbidden to send the last request of the call again,
    /// with the header `x-should-retry: false`. The gate adds this header to each failure that it
    /// returns, so its responses do not show this.
    pub(super) fn forbids_retry(&self) -> bool {
        self.0.forbids_retry.load(Ordering::Relaxed)
    }

    /// Waits until the call has no request at the provider. Returns at once if it has none.
    pub(super) async fn until_no_open_request(&self) {
        // The sender is not dropped before `self`, so this is never an error.
        let _ = self.0.open_requests.subscribe().wait_for(|open| *open == 0).await;
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

/// A request at the provider. Dropped when its response is dropped, or when it has failed.
struct OpenRequest {
    entry: Arc<QueueEntry>,
    /// Number of outages of the server when the request was sent.
    outages: u64,
}

impl OpenRequest {
    /// Counts a request that is about to be sent.
    ///
    /// # Errors
    ///
    /// Returns an error if the request could exceed a ceiling of the run.
    fn new(QueuedCall(entry): QueuedCall) -> Result<Self, Error> {
        entry.spend.on_request()?;
        entry.mark_sent();
        entry.open_requests.send_modify(|open| {
            *open += 1;
            if *open == 1 {
                entry.meter.0.in_flight.fetch_add(1, Ordering::Relaxed);
            }
        });
        let outages = entry.meter.outage().on_sent(Instant::now());
        Ok(Self { entry, outages })
    }

    /// Records the head of the response, or the error that the transport returned instead of it.
    fn on_result(&self, result: &Result<Response<ResponseBody>, Error>) {
        let forbids_retry = |response: &Response<ResponseBody>| {
            response.headers().get(SHOULD_RETRY).is_some_and(|value| value == "false")
        };
        let forbids_retry = result.as_ref().is_ok_and(forbids_retry);
        self.entry.forbids_retry.store(forbids_retry, Ordering::Relaxed);
        if result.as_ref().is_ok_and(is_stream) {
            return;
        }
        let was_not_executed = match result {
            Ok(response) => !response.status().is_success(),
            Err(error) => error.never_sent(),
        };
        if was_not_executed {
            self.entry.spend.on_unbilled_request();
        }
        self.entry.meter.outage().on_result(Instant::now(), result);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let meter = &self.entry.meter;
        meter.outage().on_ended(Instant::now(), self.outages);
        self.entry.open_requests.send_modify(|open| {
            *open -= 1;
            if *open == 0 {
                meter.0.in_flight.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }
}

/// Returns `true` if a successful response is a stream, whose first event shows whether the server
/// has executed the request.
fn is_stream(response: &Response<ResponseBody>) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
    response.status().is_success()
        && content_type.is_some_and(|value| value.starts_with(b"text/event-stream"))
}

/// Reads a streamed response until its first token or its first error.
struct FirstEvent(Option<Observer>);

impl FirstEvent {
    fn new(dialect: Dialect, response: &Response<ResponseBody>) -> Self {
        let observer = || Observer::new(dialect, response.headers(), true);
        Self(is_stream(response).then(observer))
    }

    /// Reads a part of the response. Records in `open` what its first token or error shows.
    fn push(&mut self, part: &[u8], open: &OpenRequest) {
        let Some(observer) = &mut self.0 else { return };
        let mut found = None;
        observer.push(part, |signal| match signal {
            Signal::FirstToken | Signal::Terminal => _ = found.get_or_insert(None),
            Signal::Error(verdict) => _ = found.get_or_insert(Some(verdict)),
            Signal::Usage(_) => {}
        });
        if let Some(error) = found {
            self.0 = None;
            if error.as_ref().is_some_and(|error| error.never_executed) {
                open.entry.spend.on_unbilled_request();
            }
            open.entry.meter.outage().on_first_event(Instant::now(), error.as_ref());
        }
    }
}

/// Reads the start of the body of a 429, which says what was exceeded.
struct RateLimitText(Option<Vec<u8>>);

impl RateLimitText {
    /// Maximum length of the text, in bytes.
    const MAX_BYTES: usize = 300;

    fn new(response: &Response<ResponseBody>) -> Self {
        Self((response.status() == 429).then(Vec::new))
    }

    fn push(&mut self, part: &[u8], open: &OpenRequest) {
        let Some(text) = self.0.as_mut().filter(|text| text.len() < Self::MAX_BYTES) else { return };
        text.extend(part.iter().take(Self::MAX_BYTES - text.len()));
        let words = String::from_utf8_lossy(text);
        let words: Vec<_> = words.split_whitespace().collect();
        open.entry.meter.outage().describe_rate_limit(&words.join(" "));
    }
}

#[derive(Clone)]
struct WatchedTransport(Transport);

impl Service<Request<RequestBody>> for WatchedTransport {
    type Response = <Transport as Service<Request<RequestBody>>>::Response;
    type Error = <Transport as Service<Request<RequestBody>>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let Some(call) = request.extensions_mut().remove::<QueuedCall>() else {
            return Box::pin(self.0.call(request));
        };
        let open = match OpenRequest::new(call) {
            Ok(open) => open,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let response = self.0.call(request);
        Box::pin(async move {
            let result = response.await;
            open.on_result(&result);
            let response = result?;
            let mut first_event = FirstEvent::new(open.entry.dialect, &response);
            let mut rate_limit_text = RateLimitText::new(&response);
            // The request is open until the body is dropped.
            let watched = |body: ResponseBody| {
                ResponseBody::new(body.map_frame(move |frame| {
                    if let Some(part) = frame.data_ref() {
                        first_event.push(part, &open);
                        rate_limit_text.push(part, &open);
                    }
                    frame
                }))
            };
            Ok(response.map(watched))
        })
    }
}
