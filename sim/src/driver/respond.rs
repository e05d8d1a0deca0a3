//! Answers one request: applies the faults that reject calls, submits the sequence to an engine,
//! and returns the response.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use serde_json::Value;

use super::body::SimBody;
use super::call_guards::{AttemptGuard, CallGuard};
use super::state::{SequenceEvent, Submission};
use super::stats::{self, AttemptEnd};
use super::{ConnectionError, Shared, control_api, fault_responses};
use crate::api::request::{ServerLimits, read};
use crate::api::{ApiError, Encoder, GenerationRequest, Protocol, error_stream};
use crate::faults::{Rejection, StreamPlan};

/// The date at which the simulated calendar starts, in seconds since 1970. Answers contain
/// simulated dates, so that runs are reproducible.
pub(super) const EPOCH: u64 = 1_750_000_000;

pub(super) async fn respond(
    shared: &Arc<Shared>,
    request: Request<Bytes>,
) -> Result<Response<SimBody>, ConnectionError> {
    let (parts, body) = request.into_parts();
    match (Protocol::from_uri(&parts.uri), &parts.method) {
        (Some(protocol), &Method::POST) => {
            generate(shared, protocol, &parts.uri, &parts.headers, &body).await
        }
        (Some(_), _) => Ok(error(None, &ApiError::new(405, "Method Not Allowed", "Method Not Allowed"))),
        (None, method) => control_api::control(shared, method, parts.uri.path(), &parts.headers, &body).await,
    }
}

async fn generate(
    shared: &Arc<Shared>,
    protocol: Protocol,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response<SimBody>, ConnectionError> {
    shared.ensure_engine_task();
    let (mut attempt, arrived) = begin_attempt(shared, uri.path(), headers);
    let admitted = match arrived {
        Ok(()) => admit(shared, protocol, uri, headers, body, &attempt),
        Err(Rejection::Connection) => {
            attempt.end(AttemptEnd::Refused);
            return Err(ConnectionError::Refused);
        }
        // Hangs until the caller disconnects.
        Err(Rejection::Silence) => std::future::pending().await,
        Err(rejection) => Err(fault_responses::response(shared, protocol, rejection, &[])),
    };
    let AcceptedCall { request, plan, rate } = match admitted {
        Ok(admitted) => admitted,
        Err(response) => {
            attempt.set_status(response.status().as_u16());
            attempt.end(AttemptEnd::Rejected);
            return Ok(response);
        }
    };
    match plan.before_headers {
        Some(None) => std::future::pending().await,
        Some(Some(pause)) => tokio::time::sleep(shared.clock.client(pause)).await,
        None => {}
    }
    let stream = request.stream;
    let mut call = match submit(shared, &request, attempt) {
        Ok(call) => call,
        Err(rejection) => {
            let (mut attempt, api) = *rejection;
            // vLLM sends the response head of a stream before it checks its queue.
            let response = if stream && api.status == 503 && protocol != Protocol::Gemini {
                stream_response(
                    "text/event-stream; charset=utf-8",
                    SimBody::whole(error_stream(protocol, &api)),
                )
            } else {
                error(Some(protocol), &api)
            };
            attempt.set_status(response.status().as_u16());
            attempt.end(AttemptEnd::Rejected);
            return Ok(response);
        }
    };
    let created = EPOCH + shared.clock.now().as_secs();
    let fingerprint = shared.config.system_fingerprint.clone();
    let encoder = Encoder::new(request, call.attempt.number(), created, fingerprint);
    let mut response = if stream {
        call.attempt.set_status(200);
        stream_response(encoder.content_type(), SimBody::stream(call, encoder, plan, shared.clock))
    } else {
        full_response(call, &encoder).await?
    };
    response.headers_mut().extend(rate);
    Ok(response)
}

/// Waits for all tokens, and returns the answer to a call that is not streamed.
///
/// # Errors
///
/// Returns an error if an outage kills the server before the last token.
async fn full_response(mut call: CallGuard, encoder: &Encoder) -> Result<Response<SimBody>, ConnectionError> {
    loop {
        match call.signal().await {
            Some(SequenceEvent::Token(_)) => call.attempt.token_sent(),
            Some(SequenceEvent::Finished) => {
                call.attempt.set_status(200);
                call.attempt.end(AttemptEnd::Completed);
                return Ok(with_type(200, "application/json", encoder.full(call.attempt.sent())));
            }
            Some(SequenceEvent::Died) => {
                call.attempt.set_status(500);
                call.attempt.end(AttemptEnd::Rejected);
                return Ok(error(Some(encoder.protocol()), &ApiError::engine_dead()));
            }
            None => {
                call.attempt.end(AttemptEnd::Refused);
                return Err(ConnectionError::Broken);
            }
        }
    }
}

struct AcceptedCall {
    request: GenerationRequest,
    plan: StreamPlan,
    rate: HeaderMap,
}

/// Records the arrival of an attempt, and decides whether a fault rejects the attempt. Returns the
/// attempt, and an error if a fault rejects it. Both happen under one lock, so that concurrent
/// attempts count each other exactly once.
fn begin_attempt(
    shared: &Arc<Shared>,
    path: &str,
    headers: &HeaderMap,
) -> (AttemptGuard, Result<(), Rejection>) {
    let now = shared.clock.now();
    let mut state = shared.state.lock();
    let others = state.stats.in_flight();
    let (number, tenant) = state.stats.begin(now, stats::tenant(headers), path);
    let arrived = state.faults.on_arrival(now, others);
    drop(state);
    (AttemptGuard::new(Arc::clone(shared), number, tenant), arrived)
}

/// Validates the body and charges the rate budgets, as a gateway or provider does before the
/// engine. Returns the parsed call and the faults that were drawn for it.
///
/// # Errors
///
/// Returns the error answer if the body is invalid or a budget is exceeded.
// The error is the response itself, which is moved once.
#[allow(clippy::result_large_err)]
fn admit(
    shared: &Shared,
    protocol: Protocol,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
    attempt: &AttemptGuard,
) -> Result<AcceptedCall, Response<SimBody>> {
    let limits = ServerLimits::from_config(&shared.config);
    // Parsed outside of the lock, because the body may be large.
    let request = read(protocol, uri, headers, body, limits).map_err(|api| error(Some(protocol), &api))?;
    let now = shared.clock.now();
    let mut state = shared.state.lock();
    if let Some(row) = state.stats.attempt(attempt.number()) {
        row.prompt_tokens = request.prompt_tokens;
    }
    let charged = state.faults.charge(now, request.prompt_tokens, request.max_tokens);
    let rate = charged.map_err(|rejection| {
        fault_responses::response(shared, protocol, rejection, &state.faults.headers(now))
    })?;
    Ok(AcceptedCall {
        request,
        plan: state.faults.plan(),
        rate: fault_responses::rate_headers(shared, protocol, &rate),
    })
}

fn submit(
    shared: &Arc<Shared>,
    request: &GenerationRequest,
    attempt: AttemptGuard,
) -> Result<CallGuard, Box<(AttemptGuard, ApiError)>> {
    let submission = Submission {
        attempt: attempt.number(),
        prompt_tokens: request.prompt_tokens,
        output_tokens: request.output_tokens,
        finish: request.finish,
        blocks: &request.blocks,
    };
    let mut state = shared.state.lock();
    let now = state.advance(shared.clock.now());
    if state.faults.queue_full(state.pool.waiting()) {
        state.metrics.queue_full();
        drop(state);
        return Err(Box::new((attempt, ApiError::overloaded())));
    }
    let before = state.pool.next_event();
    let submitted = state.submit(now, &submission);
    let woken = state.pool.next_event() != before;
    drop(state);
    if woken {
        shared.wake.notify_one();
    }
    match submitted {
        Ok((id, signals)) => Ok(CallGuard::new(Arc::clone(shared), id, signals, attempt)),
        Err(long) => Err(Box::new((attempt, ApiError::bad_request(long.to_string()).param("input_tokens")))),
    }
}

fn stream_response(kind: &'static str, body: SimBody) -> Response<SimBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

pub(super) fn with_type(status: u16, kind: &'static str, body: impl Into<Bytes>) -> Response<SimBody> {
    let mut response = Response::new(SimBody::whole(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

pub(super) fn json(status: u16, value: &Value) -> Response<SimBody> {
    with_type(status, "application/json", value.to_string())
}

pub(super) fn error(protocol: Option<Protocol>, api: &ApiError) -> Response<SimBody> {
    json(api.status, &api.body(protocol))
}

impl SimBody {
    /// Returns an error answer for a request that could not be read completely, and so was not
    /// passed to [`Simulator::respond`](super::Simulator::respond).
    pub(crate) fn status(status: u16, message: &str) -> Response<Self> {
        error(None, &ApiError::new(status, "BadRequestError", message))
    }
}
