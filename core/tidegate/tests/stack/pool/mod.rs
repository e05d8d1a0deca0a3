//! Tests of pools: what happens to a call when its replica fails. This file contains the scripted
//! replicas.

mod client_timeouts;
mod failover;
mod hedging;
mod models;
mod modes;
mod refusals;
mod replica_down;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use parking_lot::Mutex;
use tidegate::config::{Config, Pool, Replica, Target};
use tidegate::{Error, ErrorKind, Gate, RequestBody, ResponseBody, Transport};

use crate::support::*;

pub(crate) const STREAM: &[&str] = &[ROLE, TOKEN, STOP, DONE];
const MS: Duration = Duration::from_millis(1);

/// The kind of a request that a replica receives: a call, a health probe, or another poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestKind {
    Call,
    Health,
    Other,
}

/// What a scripted replica does on one request.
#[derive(Clone)]
pub(crate) enum Act {
    Answer,
    Status(u16, &'static [(&'static str, &'static str)]),
    /// Sends a response with this status and JSON body.
    Json(u16, &'static str),
    /// Sends a web page with status 200.
    WebPage,
    /// Sends a response with status 200 whose first event is this error.
    SseError(&'static str),
    /// Refuses the connection.
    Refuse,
    /// Cannot be reached, because name resolution or routing fails.
    Lost,
    /// Breaks the connection before any response.
    Break,
    Hang,
    /// Sends a stream of frames, each after its delay. `None` breaks the connection.
    Stream(Vec<(Duration, Option<&'static str>)>),
    /// Like `Stream`, but with status 500.
    FailedStream(Vec<(Duration, Option<&'static str>)>),
    After(Duration, Box<Act>),
}

impl Act {
    pub(crate) fn after(self, delay: Duration) -> Self {
        Act::After(delay, Box::new(self))
    }

    /// Sends a complete stream, with a delay of `gap` before each frame.
    pub(crate) fn stream(gap: Duration) -> Self {
        Act::Stream(STREAM.iter().map(|frame| (gap, Some(*frame))).collect())
    }
}

/// The record of the requests that the replicas received, and of the calls in flight at each of
/// them.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) asked: Mutex<Vec<(String, RequestKind)>>,
    open: Mutex<BTreeMap<String, usize>>,
    uris: Mutex<Vec<String>>,
}

impl Log {
    /// Returns the host of the replica that received each call, in the order of the calls.
    pub(crate) fn calls(&self) -> Vec<String> {
        let asked = self.asked.lock();
        asked.iter().filter(|(_, what)| *what == RequestKind::Call).map(|(at, _)| at.clone()).collect()
    }

    /// Returns the number of calls in flight at the replica with the host `at`.
    pub(crate) fn open(&self, at: &str) -> usize {
        self.open.lock().get(at).copied().unwrap_or_default()
    }

    pub(crate) fn uris(&self) -> Vec<String> {
        self.uris.lock().clone()
    }
}

/// The guard of an exchange at a replica, whose host is the second field. If the flag is `true`,
/// the exchange is a call and counts as in flight until the guard is dropped. Polls are not
/// counted.
struct Open(Arc<Log>, String, bool);

impl Open {
    fn count(&self, by: isize) {
        if self.2 {
            let mut open = self.0.open.lock();
            let open = open.entry(self.1.clone()).or_default();
            *open = open.saturating_add_signed(by);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.count(-1);
    }
}

/// Returns scripted replicas and the record of their requests. `script` returns what a replica does
/// on a request. It gets the host of the replica, the kind of the request, and the number of
/// earlier requests of this kind at this replica.
pub(crate) fn replicas<F>(script: F) -> (Transport, Arc<Log>)
where
    F: Fn(&str, RequestKind, usize) -> Act + Clone + Send + Sync + 'static,
{
    let log = Arc::new(Log::default());
    let seen = log.clone();
    let transport = tower::service_fn(move |request: Request<RequestBody>| {
        let (log, script) = (seen.clone(), script.clone());
        async move {
            let at = request.uri().host().unwrap_or_default().to_owned();
            let what = match request.uri().path() {
                "/health" => RequestKind::Health,
                _ if request.method() == http::Method::POST => RequestKind::Call,
                _ => RequestKind::Other,
            };
            let nth = log.asked.lock().iter().filter(|asked| **asked == (at.clone(), what)).count();
            log.asked.lock().push((at.clone(), what));
            if what == RequestKind::Call {
                log.uris.lock().push(request.uri().to_string());
            }
            let open = Open(log, at.clone(), what == RequestKind::Call);
            open.count(1);
            let mut act = script(&at, what, nth);
            while let Act::After(delay, then) = act {
                tokio::time::sleep(delay).await;
                act = *then;
            }
            perform(act, what, open).await
        }
    });
    (Transport::new(transport), log)
}

async fn perform(act: Act, what: RequestKind, open: Open) -> Result<Response<ResponseBody>, Error> {
    Ok(match act {
        Act::Answer if what == RequestKind::Call => keeping(status(200, &[], ANSWER), open),
        Act::Answer => status(200, &[], "{}"),
        Act::Status(code, headers) => status(code, headers, r#"{"error": {"message": "no"}}"#),
        Act::Json(code, body) => status(code, &[], body),
        Act::WebPage => {
            let mut response = status(200, &[], "<html>Log in</html>");
            let page = http::HeaderValue::from_static("text/html; charset=utf-8");
            response.headers_mut().insert(http::header::CONTENT_TYPE, page);
            response
        }
        Act::SseError(event) => {
            events(vec![(Duration::ZERO, Some(event)), (Duration::ZERO, Some(DONE))], open)
        }
        Act::Refuse => return Err(Error::new(ErrorKind::Connect, "refused").with_connect_refused()),
        Act::Lost => return Err(Error::new(ErrorKind::Connect, "no such name")),
        Act::Break => return Err(Error::new(ErrorKind::Transport, "reset")),
        Act::Hang => {
            std::future::pending::<()>().await;
            drop(open);
            status(200, &[], ANSWER)
        }
        Act::Stream(frames) => events(frames, open),
        Act::FailedStream(frames) => {
            let mut response = events(frames, open);
            *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
        Act::After(..) => status(500, &[], "a delay of a delay"),
    })
}

fn keeping(response: Response<ResponseBody>, open: Open) -> Response<ResponseBody> {
    use http_body_util::BodyExt;
    response.map(|body| {
        ResponseBody::new(body.map_frame(move |frame| {
            let _ = &open;
            frame
        }))
    })
}

fn events(frames: Vec<(Duration, Option<&'static str>)>, open: Open) -> Response<ResponseBody> {
    let frames = frames.into_iter();
    let stream = futures_util::stream::unfold((frames, open), |(mut frames, open)| async move {
        let (delay, frame) = frames.next()?;
        tokio::time::sleep(delay).await;
        let frame = match frame {
            Some(text) => Ok(http_body::Frame::data(text.into())),
            None => Err(Error::new(ErrorKind::Transport, "reset")),
        };
        Some((frame, (frames, open)))
    });
    let body = ResponseBody::new(http_body_util::StreamBody::new(stream));
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

/// Returns a gate with a pool of the replicas `a` to `d`, which are not polled. `shape` changes the
/// settings of the pool.
pub(crate) fn pooled(transport: Transport, shape: impl FnOnce(Pool) -> Pool) -> Gate {
    targeted(transport, shape, |target| target)
}

pub(crate) fn targeted(
    transport: Transport,
    shape: impl FnOnce(Pool) -> Pool,
    target: impl FnOnce(Target) -> Target,
) -> Gate {
    let config = Config::builder().target(target(Target::new("llm").pool(shape(four())))).build();
    Gate::over(config.unwrap(), transport).unwrap()
}

pub(crate) fn four() -> Pool {
    Pool::new(["http://a", "http://b", "http://c", "http://d"].map(Replica::from))
        .cap(8)
        .health(None)
        .poll(None)
        .slow_start(None)
        // All prompts of the tests are equal, and affinity would send them to the same replica.
        .affinity(false)
}

/// Asserts that no slot is in use, no call waits, and no replica has a call in flight.
pub(crate) fn assert_all_idle(gate: &Gate, log: &Log) {
    assert_idle(gate);
    for at in ["a", "b", "c", "d"] {
        assert_eq!(log.open(at), 0, "{at}");
    }
    for replica in replicas_of(gate) {
        assert_eq!(replica["requests"], 0, "{replica}");
    }
}

/// Returns the replicas of the pool `llm` as they appear in the snapshot, in JSON.
pub(crate) fn replicas_of(gate: &Gate) -> Vec<serde_json::Value> {
    let snapshot = serde_json::to_value(gate.snapshot()).unwrap();
    snapshot["targets"]["llm"]["replicas"].as_array().cloned().unwrap_or_default()
}
