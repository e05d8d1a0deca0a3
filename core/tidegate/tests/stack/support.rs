//! Test support: a scripted upstream, requests and responses.

use std::fmt::{Debug, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use tidegate::config::{EngineMetricsPolicy, Target};
use tidegate::{Context, Error, ErrorKind, Gate, RequestBody, ResponseBody, Transport};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default, set_global_default};
use tracing::{Event, Level, Metadata, Subscriber};

pub const SECOND: Duration = Duration::from_secs(1);

/// What the upstream counts: attempts so far, exchanges in flight, and their maximum.
#[derive(Default)]
pub struct Seen {
    pub attempts: AtomicUsize,
    pub in_flight: AtomicUsize,
    pub peak: AtomicUsize,
}

impl Seen {
    pub fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }
}

/// The guard of one exchange at the upstream, which counts as in flight until the guard is dropped.
pub struct Exchange(Arc<Seen>);

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns a scripted upstream and its counters. `script` answers each attempt. It gets the number
/// of the attempt, from 0, the request, and the guard of the exchange.
pub fn upstream<F, Fut>(script: F) -> (Transport, Arc<Seen>)
where
    F: Fn(usize, Request<RequestBody>, Exchange) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Response<ResponseBody>, Error>> + Send + 'static,
{
    let seen = Arc::new(Seen::default());
    let counted = seen.clone();
    let transport = tower::service_fn(move |request| {
        let n = counted.attempts.fetch_add(1, Ordering::SeqCst);
        let now = counted.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        counted.peak.fetch_max(now, Ordering::SeqCst);
        script(n, request, Exchange(counted.clone()))
    });
    (Transport::new(transport), seen)
}

/// Returns a gate over `transport` with the target `llm` for `http://llm`. `shape` changes the
/// settings of the target. The upstream gets calls only: no metrics are read.
pub fn gate(transport: Transport, shape: impl FnOnce(Target) -> Target) -> Gate {
    let target = Target::new("llm").url("http://llm").metrics(EngineMetricsPolicy::Off);
    Gate::builder().target(shape(target)).build_over(transport).expect("a gate")
}

pub fn chat(stream: bool) -> Request<RequestBody> {
    let body =
        format!(r#"{{"model": "m", "stream": {stream}, "messages": [{{"role": "user", "content": "hi"}}]}}"#);
    Request::post("http://llm/v1/chat/completions").body(body.into_bytes().into()).unwrap()
}

pub fn of(tenant: &str) -> Request<RequestBody> {
    let mut request = chat(false);
    request.extensions_mut().insert(Context { tenant: Some(tenant.into()), ..Context::default() });
    request
}

pub const ANSWER: &str = r#"{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#;

/// Returns a JSON response with the body `text`. Its exchange counts as in flight until the body
/// has been read or dropped.
pub fn json(exchange: Exchange, text: &'static str) -> Response<ResponseBody> {
    let frames = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(text.as_bytes())))]);
    let body = StreamBody::new(futures_util::StreamExt::map(frames, move |frame| {
        let _ = &exchange;
        frame
    }));
    Response::builder().header("content-type", "application/json").body(ResponseBody::new(body)).unwrap()
}

pub fn status(code: u16, headers: &[(&str, &str)], body: &'static str) -> Response<ResponseBody> {
    let mut response = Response::builder().status(code).header("content-type", "application/json");
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(ResponseBody::full(body)).unwrap()
}

/// Returns a stream of frames, each after its delay. The frame `None` breaks the connection. The
/// exchange counts as in flight until the stream ends or is dropped.
pub fn sse(exchange: Exchange, frames: Vec<(Duration, Option<&'static str>)>) -> Response<ResponseBody> {
    let stream =
        futures_util::stream::unfold((frames.into_iter(), exchange), |(mut frames, exchange)| async move {
            let (delay, frame) = frames.next()?;
            tokio::time::sleep(delay).await;
            let frame = match frame {
                Some(text) => Ok(Frame::data(Bytes::from_static(text.as_bytes()))),
                None => Err(Error::new(ErrorKind::Transport, "reset")),
            };
            Some((frame, (frames, exchange)))
        });
    let body = ResponseBody::new(StreamBody::new(stream));
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

pub const ROLE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
pub const TOKEN: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
pub const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
pub const DONE: &str = "data: [DONE]\n\n";

pub async fn read(response: Response<ResponseBody>) -> Result<Bytes, Error> {
    Ok(response.into_body().collect().await?.to_bytes())
}

/// Returns the series in the Prometheus text `after` that the text `before` does not contain, each
/// as `name{labels}`.
pub fn added<'a>(before: &str, after: &'a str) -> Vec<&'a str> {
    fn series(line: &str) -> Option<&str> {
        Some(line.rsplit_once(' ')?.0).filter(|series| !series.starts_with('#'))
    }
    let known: std::collections::HashSet<&str> = before.lines().filter_map(series).collect();
    after.lines().filter_map(series).filter(|series| !known.contains(series)).collect()
}

/// Returns `true` if `series` belongs to a histogram by tenant and lane. Such histograms appear in
/// the metrics only with their first value.
pub fn is_by_lane(series: &str) -> bool {
    ["queue_wait_seconds", "ttft_seconds", "call_seconds"]
        .iter()
        .any(|family| series.strip_prefix("tidegate_").is_some_and(|name| name.starts_with(family)))
}

/// Asserts that no call is in progress, no slot is in use, and no call waits.
pub fn assert_idle(gate: &Gate) {
    let snapshot = gate.snapshot();
    assert_eq!(snapshot.active, 0);
    for (name, target) in &snapshot.targets {
        assert_eq!((target.in_flight, target.queue_depth), (0, 0), "{name}");
    }
}

/// The lines that the gates of one thread log, from the level `INFO` on, each as `LEVEL: text`.
#[derive(Clone, Default)]
pub struct LogLines(Arc<Mutex<Vec<String>>>);

impl LogLines {
    /// Collects the lines of this thread until the guard is dropped.
    pub fn collect() -> (Self, DefaultGuard) {
        // For threads that collect no lines: the first of them to reach an event could otherwise
        // disable the event for all threads. Fails if an earlier test has set it.
        let _ = set_global_default(Self::default());
        let lines = Self::default();
        (lines.clone(), set_default(lines))
    }

    /// Removes all lines, and returns those that contain `words`. Processes of other tests may
    /// cause further lines.
    pub fn take(&self, words: &str) -> Vec<String> {
        std::mem::take(&mut *self.0.lock()).into_iter().filter(|line| line.contains(words)).collect()
    }
}

impl Subscriber for LogLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("tidegate")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{}: ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The level and the text of an event.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}

/// Runs all tasks until each of them waits for a timer or another event.
pub async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}
