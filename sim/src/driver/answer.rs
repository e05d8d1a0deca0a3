//! From a request to a response.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use serde_json::Value;

use super::body::SimBody;
use super::core::{Signal, Work};
use super::stats::{self, Outcome};
use super::ticket::{AttemptGuard, Ticket};
use super::{Refused, Shared, control, reject};
use crate::api::request::{Limits, read};
use crate::api::{ApiError, Encoder, Job, Protocol, error_stream};
use crate::faults::{Rejection, StreamPlan};

/// Where simulated dates begin, in seconds since 1970: dates are of the simulation, so that runs repeat
/// themselves.
pub(super) const EPOCH: u64 = 1_750_000_000;

pub(super) async fn answer(
    shared: &Arc<Shared>,
    request: Request<Bytes>,
) -> Result<Response<SimBody>, Refused> {
    let (parts, body) = request.into_parts();
    match (Protocol::of(&parts.uri), &parts.method) {
        (Some(protocol), &Method::POST) => {
            generate(shared, protocol, &parts.uri, &parts.headers, &body).await
        }
        (Some(_), _) => Ok(error(None, &ApiError::new(405, "Method Not Allowed", "Method Not Allowed"))),
        (None, method) => control::control(shared, method, parts.uri.path(), &body).await,
    }
}

async fn generate(
    shared: &Arc<Shared>,
    protocol: Protocol,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response<SimBody>, Refused> {
    shared.ensure_pump();
    let (mut attempt, arrived) = arrive(shared, uri.path(), headers);
    let admitted = match arrived {
        Ok(()) => admit(shared, protocol, uri, headers, body, &attempt),
        Err(Rejection::Connection) => {
            attempt.end(Outcome::Refused);
            return Err(Refused);
        }
        // Until the caller goes.
        Err(Rejection::Silence) => std::future::pending().await,
        Err(no) => Err(reject::response(shared, protocol, no, &[])),
    };
    let Admitted { job, plan, rate } = match admitted {
        Ok(admitted) => admitted,
        Err(response) => {
            attempt.answered(response.status().as_u16());
            attempt.end(Outcome::Rejected);
            return Ok(response);
        }
    };
    match plan.before_headers {
        Some(None) => std::future::pending().await,
        Some(Some(pause)) => tokio::time::sleep(shared.clock.client(pause)).await,
        None => {}
    }
    let stream = job.stream;
    let mut ticket = match submit(shared, &job, attempt) {
        Ok(ticket) => ticket,
        Err(no) => {
            let (mut attempt, api) = *no;
            // vLLM has sent the head of a stream before it looks at its queue.
            let response = if stream && api.status == 503 && protocol != Protocol::Gemini {
                stream_of("text/event-stream; charset=utf-8", SimBody::whole(error_stream(protocol, &api)))
            } else {
                error(Some(protocol), &api)
            };
            attempt.answered(response.status().as_u16());
            attempt.end(Outcome::Rejected);
            return Ok(response);
        }
    };
    let created = EPOCH + shared.clock.now().as_secs();
    let encoder = Encoder::new(job, ticket.attempt.number(), created);
    let mut response = if stream {
        ticket.attempt.answered(200);
        stream_of(encoder.content_type(), SimBody::stream(ticket, encoder, plan, shared.clock))
    } else {
        whole(ticket, &encoder).await?
    };
    response.headers_mut().extend(rate);
    Ok(response)
}

/// # Errors
///
/// The server was killed meanwhile.
async fn whole(mut ticket: Ticket, encoder: &Encoder) -> Result<Response<SimBody>, Refused> {
    loop {
        match ticket.signal().await {
            Some(Signal::Token(_)) => ticket.attempt.token_sent(),
            Some(Signal::Finished) => {
                ticket.attempt.answered(200);
                ticket.attempt.end(Outcome::Completed);
                return Ok(with_type(200, "application/json", encoder.full(ticket.attempt.sent())));
            }
            Some(Signal::Died) => {
                ticket.attempt.answered(500);
                ticket.attempt.end(Outcome::Rejected);
                return Ok(error(Some(encoder.protocol()), &ApiError::dead()));
            }
            None => {
                ticket.attempt.end(Outcome::Refused);
                return Err(Refused);
            }
        }
    }
}

struct Admitted {
    job: Job,
    plan: StreamPlan,
    rate: HeaderMap,
}

/// Books an attempt and asks the faults, under one lock: two at once must not count each other.
fn arrive(shared: &Arc<Shared>, path: &str, headers: &HeaderMap) -> (AttemptGuard, Result<(), Rejection>) {
    let now = shared.clock.now();
    let mut core = shared.core.lock();
    let others = core.record.in_flight();
    let (number, tenant) = core.record.begin(now, stats::tenant(headers), path);
    let arrived = core.gate.arrive(now, others);
    drop(core);
    (AttemptGuard::new(Arc::clone(shared), number, tenant), arrived)
}

/// What a gateway or provider judges before the engine: the body, then the budgets.
// The error is the answer itself, moved once.
#[allow(clippy::result_large_err)]
fn admit(
    shared: &Shared,
    protocol: Protocol,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
    attempt: &AttemptGuard,
) -> Result<Admitted, Response<SimBody>> {
    let config = &shared.config;
    let limits = Limits {
        models: &config.models,
        adapters: &config.adapters,
        block_size: config.engine.prefix_cache.then_some(config.engine.block_size),
        max_model_len: config.engine.max_model_len,
        default_output_tokens: config.default_output_tokens,
    };
    // Outside the lock: the body may be large.
    let job = read(protocol, uri, headers, body, limits).map_err(|api| error(Some(protocol), &api))?;
    let now = shared.clock.now();
    let mut core = shared.core.lock();
    if let Some(row) = core.record.attempt(attempt.number()) {
        row.prompt_tokens = job.prompt_tokens;
    }
    let charged = core.gate.charge(now, job.prompt_tokens, job.max_tokens);
    let rate = charged.map_err(|no| reject::response(shared, protocol, no, &core.gate.headers(now)))?;
    Ok(Admitted { job, plan: core.gate.plan(), rate: reject::rate_headers(shared, protocol, &rate) })
}

fn submit(
    shared: &Arc<Shared>,
    job: &Job,
    attempt: AttemptGuard,
) -> Result<Ticket, Box<(AttemptGuard, ApiError)>> {
    let work = Work {
        attempt: attempt.number(),
        prompt_tokens: job.prompt_tokens,
        output_tokens: job.output_tokens,
        finish: job.finish,
        blocks: &job.blocks,
    };
    let mut core = shared.core.lock();
    let now = core.advance(shared.clock.now());
    if core.gate.queue_full(core.pool.waiting()) {
        core.metrics.queue_full();
        drop(core);
        return Err(Box::new((attempt, ApiError::overloaded())));
    }
    let before = core.pool.next_event();
    let submitted = core.submit(now, &work);
    let woken = core.pool.next_event() != before;
    drop(core);
    if woken {
        shared.wake.notify_one();
    }
    match submitted {
        Ok((id, signals)) => Ok(Ticket::new(Arc::clone(shared), id, signals, attempt)),
        Err(long) => Err(Box::new((attempt, ApiError::bad_request(long.to_string()).param("input_tokens")))),
    }
}

fn stream_of(kind: &'static str, body: SimBody) -> Response<SimBody> {
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
    /// An error that never reached [`super::Simulator::respond`].
    pub(crate) fn status(status: u16, message: &str) -> Response<Self> {
        error(None, &ApiError::new(status, "BadRequestError", message))
    }
}
