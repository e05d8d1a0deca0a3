//! Test support: a scripted service that counts its exchanges in flight, and helpers to call it
//! through a limit layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use tidegate::limit::{
    AdaptiveLimit, AdaptiveLimitLayer, AdaptiveLimitSnapshot, HttpJudge, Judge, LimitedBody,
};
use tidegate::snapshot::LimitSnapshot;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tower::{BoxError, Service, ServiceExt};

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);

pub type Ask = Request<Full<Bytes>>;
pub type Answer = UnsyncBoxBody<Bytes, BoxError>;
pub type Limited<J = HttpJudge> = AdaptiveLimit<Upstream, J>;

/// Returns the error of scripts whose exchange fails.
pub fn broken() -> BoxError {
    "broken off".into()
}

/// What the service does in one exchange.
pub struct Script {
    pub status: u16,
    pub headers: Vec<(&'static str, &'static str)>,
    /// The delay before the response head, or before the error in `fails`.
    pub head: Duration,
    /// The error that is returned instead of a response. `None` returns a response.
    pub fails: Option<BoxError>,
    /// The frames of the body, each with the delay before it.
    pub frames: Vec<(Duration, Result<&'static str, BoxError>)>,
    /// A signal that must be given before the first frame, in addition to its delay. `None` waits
    /// for no signal.
    pub gate: Option<Arc<Notify>>,
}

impl Script {
    /// Returns the script of a stream: its head arrives immediately, its token `first` later, and
    /// its end `rest` after the token.
    pub fn stream(first: Duration, rest: Duration) -> Self {
        let headers = vec![("content-type", "text/event-stream")];
        Self { headers, frames: vec![(first, Ok("token")), (rest, Ok("end"))], ..Self::whole(Duration::ZERO) }
    }

    /// Returns the script of a successful response that does not stream. Its head and body come
    /// after `head`.
    pub fn whole(head: Duration) -> Self {
        let frames = vec![(Duration::ZERO, Ok("{}"))];
        Self { status: 200, headers: vec![], head, fails: None, frames, gate: None }
    }

    /// Returns the script of a response with the status `status` that does not stream. It comes
    /// after 1 ms.
    pub fn refusal(status: u16, headers: &[(&'static str, &'static str)]) -> Self {
        Self { status, headers: headers.to_vec(), ..Self::whole(MS) }
    }
}

type Play = dyn Fn(usize, usize) -> Script + Send + Sync;

/// The scripted service, whose exchanges each follow a [`Script`].
#[derive(Clone)]
pub struct Upstream {
    play: Arc<Play>,
    seen: Arc<Seen>,
}

#[derive(Default)]
pub struct Seen {
    busy: AtomicUsize,
    peak: AtomicUsize,
    calls: AtomicUsize,
}

impl Seen {
    pub fn busy(&self) -> usize {
        self.busy.load(Ordering::SeqCst)
    }

    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// The guard of an exchange. The exchange counts as in flight until the guard is dropped.
struct Busy(Arc<Seen>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Service<Ask> for Upstream {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Ask) -> Self::Future {
        let busy = self.seen.busy.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen.peak.fetch_max(busy, Ordering::SeqCst);
        let script = (self.play)(self.seen.calls.fetch_add(1, Ordering::SeqCst), busy);
        let busy = Busy(self.seen.clone());
        async move {
            sleep(script.head).await;
            if let Some(error) = script.fails {
                return Err(error);
            }
            let gate = script.gate;
            let frames =
                stream::unfold((script.frames.into_iter(), gate, busy), |(mut left, gate, busy)| async {
                    if let Some(gate) = gate {
                        gate.notified().await;
                    }
                    let (after, frame) = left.next()?;
                    sleep(after).await;
                    let frame = frame.map(|text| Frame::data(Bytes::from_static(text.as_bytes())));
                    Some((frame, (left, None, busy)))
                });
            let response = Response::builder().status(script.status);
            let response = script.headers.iter().fold(response, |response, (k, v)| response.header(*k, *v));
            Ok(response.body(StreamBody::new(frames.boxed()).boxed_unsync())?)
        }
        .boxed()
    }
}

/// Returns a scripted service and its counters. `play` returns the script of an exchange. It gets
/// the number of earlier exchanges, and the number of exchanges in flight including this one.
pub fn upstream(play: impl Fn(usize, usize) -> Script + Send + Sync + 'static) -> (Upstream, Arc<Seen>) {
    let seen = Arc::<Seen>::default();
    (Upstream { play: Arc::new(play), seen: seen.clone() }, seen)
}

pub fn ask() -> Ask {
    Request::post("http://llm/v1/completions").body(Full::default()).unwrap()
}

pub async fn send<J: Judge>(service: &Limited<J>) -> Result<Response<LimitedBody<Answer, J>>, BoxError> {
    service.clone().oneshot(ask()).await
}

/// Makes a call, and returns the complete response body.
pub async fn call<J: Judge>(service: &Limited<J>) -> Result<Bytes, BoxError> {
    Ok(send(service).await?.into_body().collect().await?.to_bytes())
}

/// Keeps `callers` concurrent callers busy for `time`: each makes its next call as soon as its
/// previous response has ended or, if the layer rejected the call, after the delay that the error
/// names.
pub async fn load<J: Judge>(service: &Limited<J>, callers: usize, time: Duration) {
    let end = Instant::now() + time;
    let caller = || {
        let service = service.clone();
        async move {
            while Instant::now() < end {
                let result = call(&service).await;
                if let Some(delay) = result.err().as_ref().and_then(retry_after) {
                    sleep(delay).await;
                }
            }
        }
    };
    let callers: Vec<_> = (0..callers).map(|_| tokio::spawn(caller())).collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

/// Advances the paused clock by half a millisecond, so that all tasks that are ready run first.
pub async fn settle() {
    sleep(MS / 2).await;
}

pub fn found<J: Judge>(layer: &AdaptiveLimitLayer<J>) -> LimitSnapshot {
    layer.snapshot().adaptive.expect("it is found")
}

/// Asserts that no slot is in use, no call waits, and the service has no exchange in flight.
pub fn assert_idle<J: Judge>(layer: &AdaptiveLimitLayer<J>, seen: &Seen) {
    let AdaptiveLimitSnapshot { in_flight, queue_depth, adaptive, .. } = layer.snapshot();
    assert_eq!((in_flight, queue_depth, seen.busy()), (0, 0, 0));
    assert_eq!(adaptive.expect("it is found").awaiting, 0);
}

/// Returns the delay after which a call that the layer rejected may be made again. `None` if the
/// layer did not reject the call.
pub fn retry_after(error: &BoxError) -> Option<Duration> {
    error.downcast_ref::<tidegate::Error>()?.retry_after()
}

pub fn reason(error: &BoxError) -> Option<tidegate::Reason> {
    error.downcast_ref::<tidegate::Error>()?.reason()
}
