//! The stream layer: classifies each attempt, and records what its response contains.

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response};

use super::body::ObservedBody;
use super::error_outcome::{failed, timed_out};
use super::idle_body::limit_silence;
use super::replay::Replay;
use crate::body::{RequestBody, ResponseBody, UploadProgress};
use crate::call::{Call, ExchangeRecord};
use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::layers::middleware::{InnerService, Middleware, ResponseFuture, tower_layer};
use crate::placement::Placed;
use crate::transport::Foreign;
use tidegate_policy::outcome::{AttemptOutcome, FailureCause};
use tidegate_protocol::prompt::Task;
use tidegate_protocol::request::decompress;
use tidegate_protocol::signed_or_compressed::is_signed;
use tidegate_protocol::{Observer, classify};

/// Maximum number of bytes of an error response that are read to classify it: 64 KiB. The rest is
/// passed on unread.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// Maximum time that an error response is held until the start of its body has arrived: 1 s.
/// Providers send the head and this start together.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of bytes of a stream that are read before the response head is returned: 1 MiB.
/// The Responses API repeats the instructions and tools of the request in two events before the
/// first token.
const MAX_HELD_HEAD: usize = 1024 * 1024;
/// Maximum time for which the head of a stream is held after its first event: 2 s. A model may
/// think for minutes before its first token, and some clients limit the time until the head.
const FIRST_TOKEN_AWAITED: Duration = Duration::from_secs(2);

/// Classifies each attempt, and observes its response.
///
/// Each response and error that the layer returns has the outcome of the attempt in its extensions.
/// Each response also has the record of its exchange.
///
/// *Default*: acts on every call.
///
/// # Cancel safety
/// Dropping the future or the body ends the exchange.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamLayer;

tower_layer!(StreamLayer);

impl<S: InnerService> Middleware<S> for StreamLayer {
    fn call(&self, call: Call, inner: &mut S, mut request: Request<RequestBody>) -> ResponseFuture {
        if is_observed(&call) && !is_signed(request.headers()) {
            // A compressed response cannot be observed, and compression would hold tokens back.
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        let upload = request.body().upload_progress();
        let placed = request.extensions().get::<Placed>().cloned();
        let has_own_transport = request.extensions().get::<Foreign>().is_some();
        let engine = call.target().engine();
        let identifies = engine.is_some_and(|engine| engine.on_attempt(request.uri(), has_own_transport));
        let traits = ExchangeTraits { placed, upload, has_own_transport, identifies };
        Box::pin(observe(call, traits, inner.call(request)))
    }
}

/// Returns `true` if the gate must be able to parse the response to the call, which then must not
/// be compressed: in mode `enforce`, for calls that run a model through a known endpoint.
fn is_observed(call: &Call) -> bool {
    call.is_enforced() && call.is_inference() && call.facts().task != Task::Other
}

/// Returns `true` if a response is a web page, such as the login page of a proxy.
fn is_web_page(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/html"))
}

/// What is known of an exchange before its response.
struct ExchangeTraits {
    /// The replica of the attempt. `None` if the target is not a pool.
    placed: Option<Placed>,
    /// Tracks a streamed request body. `None` if there is none.
    upload: Option<UploadProgress>,
    /// Whether the caller has a transport of its own, which may block.
    has_own_transport: bool,
    /// Whether the answer is needed to identify the engine.
    identifies: bool,
}

/// Waits for the response of an attempt, and returns it with the outcome of the attempt attached.
async fn observe(
    call: Call,
    traits: ExchangeTraits,
    response: impl Future<Output = Result<Response<ResponseBody>, Error>>,
) -> Result<Response<ResponseBody>, Error> {
    let ExchangeTraits { placed, upload, has_own_transport, identifies } = traits;
    let sent_at = clock::now();
    let exchange = ExchangeRecord::new(sent_at);
    call.attempt_sent(&exchange);
    call.target().metrics().on_attempt(placed.as_ref());
    let mut head = with_head_limit(&call, upload.as_ref(), response).await?;
    exchange.on_awaited_data(clock::now());
    let status = head.status();
    exchange.update(|seen| seen.status = Some(status.as_u16()));
    head.extensions_mut().insert(exchange.clone());
    if status.is_client_error() || status.is_server_error() {
        // Boxed, so that the futures of accepted attempts stay smaller.
        return Box::pin(rejected(&call, head)).await;
    }
    if placed.is_some() && is_observed(&call) && is_web_page(head.headers()) {
        let text = "the replica returned a web page (text/html) instead of a response of the API";
        return Err(failed(&call, Error::new(ErrorKind::Transport, text)));
    }
    if !status.is_success() {
        // A redirect has no terminal event.
        head.extensions_mut().insert(AttemptOutcome::Accepted { streams: false });
        return Ok(head.map(|body| limit_silence(&call, body)));
    }
    let (mut parts, body) = head.into_parts();
    let is_whole = body.is_in_memory();
    let (streams, hold_head);
    // A block, because this future would otherwise keep memory for what was moved out of it.
    let mut replay = {
        let observer = Observer::new(call.facts().dialect, &parts.headers, call.facts().stream);
        streams = observer.is_stream();
        hold_head = streams && call.is_enforced();
        let uploaded_at = upload.map_or(sent_at, |upload| upload.finished_at().unwrap_or_else(clock::now));
        let observed = ObservedBody::new(call, placed, body, observer, exchange, identifies, uploaded_at);
        if !hold_head && !is_whole {
            parts.extensions.insert(AttemptOutcome::Accepted { streams });
            return Ok(Response::from_parts(parts, ResponseBody::new(observed)));
        }
        Replay::new(observed)
    };
    if hold_head {
        read_start(&mut replay, has_own_transport).await?;
    } else {
        // The body in memory is at most one frame.
        replay.pull().await?;
    }
    let outcome = match replay.rest.early_failure().filter(|_| hold_head) {
        Some(verdict) => {
            let mut verdict = verdict.clone();
            // Azure sends a Retry-After with status 200 if the stream begins with a rate limit.
            verdict.raise_delay(&parts.headers, clock::wall());
            AttemptOutcome::Rejected(verdict)
        }
        None => AttemptOutcome::Accepted { streams },
    };
    parts.extensions.insert(outcome);
    Ok(Response::from_parts(parts, replay.into_response_body()))
}

/// Reads the start of a stream in advance: up to its first token or an error event, because until
/// then the call can be retried without the caller noticing. Outside pools, reads for at most
/// [`FIRST_TOKEN_AWAITED`] after the first event, or only the first event from a caller's own
/// transport: while that blocks, no time is seen to pass.
///
/// # Errors
/// The error of the body, which fails the attempt. Outside pools, the caller gets what a stream
/// that breaks off after its first event has sent.
async fn read_start(replay: &mut Replay<ObservedBody>, has_own_transport: bool) -> Result<(), Error> {
    let read_until = async |replay: &mut Replay<ObservedBody>, is_enough: fn(&ObservedBody) -> bool| {
        while !is_enough(&replay.rest) && replay.memory() < MAX_HELD_HEAD && replay.pull().await? {}
        Ok(())
    };
    if replay.rest.is_from_replica() {
        return read_until(replay, ObservedBody::is_classifiable).await;
    }
    read_until(replay, ObservedBody::has_event).await?;
    if has_own_transport || replay.rest.is_classifiable() {
        return Ok(());
    }
    let first_token = read_until(replay, ObservedBody::is_classifiable);
    // Boxed, because a timer is large, and many streams begin with a token.
    let read = Box::pin(tokio::time::timeout(FIRST_TOKEN_AWAITED, first_token)).await;
    if let Ok(Err(error)) = read {
        replay.end_with(error);
    }
    Ok(())
}

/// Classifies an error response by its status and the start of its body, and attaches the outcome.
/// Returns the response with its complete body.
async fn rejected(call: &Call, head: Response<ResponseBody>) -> Result<Response<ResponseBody>, Error> {
    let (mut parts, body) = head.into_parts();
    let mut replay = Replay::new(limit_silence(call, body));
    let limit = call.idle_limit().map_or(ERROR_BODY_TIMEOUT, |(idle, _)| idle.min(ERROR_BODY_TIMEOUT));
    // The status counts even if the body breaks off or never ends.
    let _ = tokio::time::timeout(limit, async {
        while replay.memory() < MAX_ERROR_BODY {
            match replay.pull().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return replay.end_with(error),
            }
        }
    })
    .await;
    let seen: Bytes = replay.seen(MAX_ERROR_BODY);
    // The upstream may compress the response to a call for which `is_observed` is false.
    let content = decompress(&parts.headers, &seen).unwrap_or(Cow::Borrowed(&seen));
    let verdict = classify(parts.status, &parts.headers, &content, clock::wall());
    parts.extensions.insert(AttemptOutcome::Rejected(verdict));
    Ok(Response::from_parts(parts, replay.into_response_body()))
}

/// Waits for `response`, at most the head limit of the call. With a streamed request body, which
/// `upload` tracks, the limit runs from the last frame that the transport took or from the end of
/// the upload, and not while the caller produces the next frame.
///
/// # Errors
/// `FirstTokenTimeout` if the limit has passed. Otherwise the error of `response`. The outcome of
/// the attempt is attached to the error.
async fn with_head_limit<T>(
    call: &Call,
    upload: Option<&UploadProgress>,
    response: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some((limit, cause)) = call.head_limit() else {
        return response.await.map_err(|error| failed(call, error));
    };
    // Boxed, because a timer is large, and this future is moved.
    let too_late = Box::pin(async {
        match upload {
            Some(upload) => upload.stalled_for(limit).await,
            None => {
                tokio::time::sleep(limit).await;
                true
            }
        }
    });
    tokio::select! {
        biased;
        result = response => result.map_err(|error| failed(call, error)),
        is_sent = too_late => {
            let whose = match cause {
                FailureCause::CallerTimeout => "the client's read timeout",
                _ => "the target's `first_token` limit",
            };
            let limit = limit.as_secs_f64();
            let text = match is_sent {
                true => format!("no response within {limit:.1} s of sending ({whose})"),
                false => format!("the server took no more of the request body for {limit:.1} s ({whose})"),
            };
            Err(timed_out(call, Error::new(ErrorKind::FirstTokenTimeout, text), cause))
        }
    }
}
