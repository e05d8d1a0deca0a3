//! The fake target: a transport that answers from a script.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use parking_lot::Mutex;
use tidegate::protocol::request::RequestFacts;
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody, Transport};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::attempt_log::{AttemptLog, RecordedAttempt};
use crate::in_flight::{InFlight, State};
use crate::router::{RouteDecision, RouteSlot, Router};
use crate::script::Script;
use crate::scripted_body::ScriptedBody;
use crate::wire::{self, RequestShape};

/// A transport that answers from a script, and records every attempt. Clones share the same target.
///
/// # Cancellation safety
///
/// An attempt whose future or body is dropped before its end is recorded as cancelled at that time.
#[derive(Clone)]
pub struct FakeTarget(Arc<Mutex<State>>);

impl FakeTarget {
    /// Returns a target that answers from `script`. Its times count from now, unless
    /// [`FakeTarget::start`] sets another start.
    pub fn new(script: Script) -> Self {
        Self(Arc::new(Mutex::new(State { router: Router::new(script, 0), log: AttemptLog::new() })))
    }

    /// Sets the start from which the times of attempts count.
    pub fn start(&self, at: Instant) {
        self.0.lock().log.start = at;
    }

    /// Answers from another script from now on. Attempts in flight continue with their script.
    pub fn follow(&self, script: Script) {
        let mut state = self.0.lock();
        let script_version = state.router.script_version() + 1;
        state.router = Router::new(script, script_version);
    }

    /// Returns the target as a transport for a gate.
    pub fn transport(&self) -> Transport {
        let this = self.clone();
        Transport::new(tower::service_fn(move |request| this.clone().exchange(request)))
    }

    /// Returns every attempt so far, in order of arrival.
    pub fn attempts(&self) -> Vec<RecordedAttempt> {
        self.0.lock().log.attempts().to_vec()
    }

    /// Returns the number of attempts in flight.
    pub fn in_flight(&self) -> usize {
        self.0.lock().log.in_flight
    }

    /// Returns the maximum number of attempts that were in flight at the same time.
    pub fn max_in_flight(&self) -> usize {
        self.0.lock().log.max_in_flight
    }

    /// Returns descriptions of the requests that no route matched. Each of them failed, even if its
    /// caller hid the error.
    pub fn unmatched(&self) -> Vec<String> {
        self.0.lock().log.unmatched.clone()
    }

    async fn exchange(self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, Error> {
        let (head, body) = request.into_parts();
        let body = read_body(body).await?;
        let request = Request::from_parts(head, ());
        let facts = RequestFacts::read(request.method(), request.uri(), request.headers(), Some(&body));
        let (mut in_flight, chosen) = self.begin(&request, &facts, &body);
        let (place, choice) = match chosen {
            Ok(chosen) => chosen,
            Err(why) => {
                in_flight.answered();
                return Err(self.report_unmatched(&request, why));
            }
        };
        let shape = RequestShape::of(request.uri().path(), &facts, &body, in_flight.attempt);
        let played = match choice {
            RouteDecision::Scripted(answer) => {
                in_flight.place = Some(place);
                wire::scripted(&answer, &shape)
            }
            RouteDecision::OverCapacity(after) => wire::limited("capacity", after, &shape),
            RouteDecision::OverRate(after) => wire::limited("rate", Some(after), &shape),
        };
        self.0.lock().log.answered(
            in_flight.attempt,
            played.answer,
            played.head.as_ref().map(|h| h.status.as_u16()),
        );
        tokio::time::sleep(played.after).await;
        let Some(head) = played.head else {
            in_flight.answered();
            return Err(Error::new(
                ErrorKind::Connect,
                "cannot connect: the fake target refuses the connection",
            ));
        };
        let body = ScriptedBody::new(played.steps, head.length, in_flight);
        let mut response = Response::new(ResponseBody::new(body));
        (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
        Ok(response)
    }

    fn begin(
        &self,
        request: &Request<()>,
        facts: &RequestFacts,
        body: &Bytes,
    ) -> (InFlight, Result<(RouteSlot, RouteDecision), &'static str>) {
        let mut state = self.0.lock();
        let attempt = state.log.begin(request, facts, body);
        let chosen = state.router.choose(request.uri(), facts, body, Instant::now());
        let runtime = Handle::try_current().ok();
        (InFlight::new(self.0.clone(), attempt, runtime), chosen)
    }

    fn report_unmatched(&self, request: &Request<()>, why: &str) -> Error {
        let uri = request.uri();
        let place =
            format!("{} {}{}", request.method(), uri.authority().map_or("", |a| a.as_str()), uri.path());
        let said = format!("{place}: {why}");
        self.0.lock().log.unmatched.push(said.clone());
        Error::new(ErrorKind::Request, format!("the fake target has no answer for {said}"))
    }
}

impl std::fmt::Debug for FakeTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.lock();
        f.debug_struct("FakeTarget")
            .field("attempts", &state.log.attempts().len())
            .field("in_flight", &state.log.in_flight)
            .finish_non_exhaustive()
    }
}

async fn read_body(mut body: RequestBody) -> Result<Bytes, Error> {
    if let Some(bytes) = body.bytes() {
        return Ok(bytes.clone());
    }
    let mut all = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(chunk) = frame?.into_data() {
            all.extend_from_slice(&chunk);
        }
    }
    Ok(all.into())
}
