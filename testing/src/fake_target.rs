//! The fake target: a transport that answers from a script.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use parking_lot::Mutex;
use tidegate::internals::GateRequest;
use tidegate::protocol::request::RequestFacts;
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody, Transport};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::answer_router::{RouteDecision, RouteSlot, Router};
use crate::attempt_log::{AttemptLog, RecordedAttempt};
use crate::in_flight::{InFlight, TargetState};
use crate::response::ScriptedResponse;
use crate::script::Script;
use crate::scripted_body::ScriptedBody;
use crate::wire::{self, RequestShape};

/// A transport that answers from a [`Script`] and records every attempt. Clones share one target.
///
/// Requests of the gate itself use none of the script's answers and are not recorded: a health
/// probe gets a 200, and a request for metrics, models or token counts gets a 404. To answer them
/// differently, add a route whose [`path`](crate::ScriptRoute::path) names theirs and does not end
/// in `*`, such as `*/metrics`.
///
/// # Cancel safety
///
/// An attempt whose future or body is dropped before its end is recorded as
/// [`AttemptState::Cancelled`](crate::AttemptState::Cancelled) at that time.
#[derive(Clone)]
pub struct FakeTarget(Arc<Mutex<TargetState>>);

impl FakeTarget {
    /// Returns a target that answers from `script`. The times of its attempts are measured from
    /// now, or from a start that [`FakeTarget::start`] sets later.
    pub fn new(script: Script) -> Self {
        Self(Arc::new(Mutex::new(TargetState { router: Router::new(script, 0), log: AttemptLog::new() })))
    }

    /// Sets the start from which the times of later attempts are measured.
    pub fn start(&self, at: Instant) {
        self.0.lock().log.start = at;
    }

    /// Replaces the script for later attempts. Attempts in flight get the rest of their answers.
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

    /// Returns copies of all attempts so far, in order of arrival.
    pub fn attempts(&self) -> Vec<RecordedAttempt> {
        self.0.lock().log.attempts().to_vec()
    }

    /// Returns the number of attempts in flight.
    pub fn in_flight(&self) -> usize {
        self.0.lock().log.in_flight
    }

    /// Returns the maximum number of attempts in flight at the same time since the target was
    /// created.
    pub fn max_in_flight(&self) -> usize {
        self.0.lock().log.max_in_flight
    }

    /// Returns a description of each request for which the script had no answer. The attempts
    /// failed, but a caller may have ignored the error.
    pub fn unmatched(&self) -> Vec<String> {
        self.0.lock().log.unmatched.clone()
    }

    async fn exchange(self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, Error> {
        let (head, body) = request.into_parts();
        let body = read_body(body).await?;
        let request = Request::from_parts(head, ());
        let facts = RequestFacts::read(request.method(), request.uri(), request.headers(), Some(&body));
        let by_gate = request.extensions().get::<GateRequest>().copied();
        let (mut in_flight, chosen) = self.start_exchange(&request, &facts, &body, by_gate.is_some());
        let number = in_flight.attempt.unwrap_or_default();
        let shape = RequestShape::from_request(request.uri().path(), &facts, &body, number);
        let response = match (chosen, by_gate) {
            (Ok((route_slot, RouteDecision::Scripted(answer))), _) => {
                in_flight.route_slot = Some(route_slot);
                wire::scripted(&answer, &shape)
            }
            (Ok((_, RouteDecision::OverCapacity(after))), _) => wire::limited("capacity", after, &shape),
            (Ok((_, RouteDecision::OverRate(after))), _) => wire::limited("rate", Some(after), &shape),
            (Err(_), Some(kind)) => unscripted(kind),
            (Err(why), None) => {
                in_flight.answered();
                return Err(self.report_unmatched(&request, why));
            }
        };
        if let Some(attempt) = in_flight.attempt {
            let status = response.head.as_ref().map(|head| head.status.as_u16());
            self.0.lock().log.set_answer(attempt, response.answer, status);
        }
        tokio::time::sleep(response.after).await;
        let Some(head) = response.head else {
            in_flight.answered();
            let text = "cannot connect: the fake target refuses the connection";
            return Err(Error::new(ErrorKind::Connect, text).with_connect_refused());
        };
        let body = ScriptedBody::new(response.steps, head.length, in_flight);
        let mut response = Response::new(ResponseBody::new(body));
        (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
        Ok(response)
    }

    /// Records an attempt, and selects its answer. Does not record a request of the gate itself,
    /// for which `is_by_gate` is `true`.
    fn start_exchange(
        &self,
        request: &Request<()>,
        facts: &RequestFacts,
        body: &Bytes,
        is_by_gate: bool,
    ) -> (InFlight, Result<(RouteSlot, RouteDecision), &'static str>) {
        let mut state = self.0.lock();
        let attempt = (!is_by_gate).then(|| state.log.start_attempt(request, facts, body));
        let chosen = state.router.choose(request.uri(), facts, body, is_by_gate, Instant::now());
        let runtime = Handle::try_current().ok();
        (InFlight::new(self.0.clone(), attempt, runtime), chosen)
    }

    fn report_unmatched(&self, request: &Request<()>, why: &str) -> Error {
        let uri = request.uri();
        let host = uri.authority().map_or("", |a| a.as_str());
        let description = format!("{} {host}{}: {why}", request.method(), uri.path());
        self.0.lock().log.unmatched.push(description.clone());
        Error::new(ErrorKind::Request, format!("the fake target has no answer for {description}"))
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

/// Returns the answer to a request of the gate itself that no route names.
fn unscripted(request: GateRequest) -> ScriptedResponse {
    let status = match request {
        GateRequest::HealthProbe => StatusCode::OK,
        GateRequest::Query => StatusCode::NOT_FOUND,
    };
    ScriptedResponse::whole(status, HeaderMap::new(), Bytes::new())
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
