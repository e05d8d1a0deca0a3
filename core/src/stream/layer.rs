//! The tower layer: classifies failures, holds the head for the first event, and watches the body.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Request, Response};

use super::body::Watched;
use super::outcome::failed;
use super::replay::Replay;
use crate::body::{RequestBody, ResponseBody, Taken};
use crate::call::{Call, ExchangeRecord};
use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::middleware::{InnerService, Middleware, ResponseFuture, tower_layer};
use crate::placement::Placed;
use crate::wire::sealed::is_signed;
use crate::wire::{Dialect, Observer, classify};
use tidegate_policy::outcome::AttemptOutcome;

/// The most of an error's body that is read to classify it. The rest passes unread.
const MOST_OF_AN_ERROR: usize = 64 * 1024;
/// The longest that an error's body may keep its head back, by default and at most. Providers send both at once.
const LONGEST_OF_AN_ERROR: Duration = Duration::from_secs(1);
/// The most of a stream that is held back in search of its first event.
const MOST_OF_A_HEAD: usize = 64 * 1024;

/// Watches each attempt's response.
///
/// Each response and error leaves with the [`AttemptOutcome`] in its extensions, and each response
/// with the [`ExchangeRecord`].
///
/// *Default*: acts on requests that carry a [`Call`]; others pass.
/// *Cancellation safety*: dropping the future or the body ends the exchange.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamLayer;

tower_layer!(StreamLayer);

impl<S: InnerService> Middleware<S> for StreamLayer {
    fn call(&self, inner: &mut S, mut request: Request<RequestBody>) -> ResponseFuture {
        let call = request.extensions().get::<Call>().cloned();
        if call.as_ref().is_some_and(is_watched) && !is_signed(request.headers()) {
            // What is compressed could not be watched, and compression would hold tokens back.
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        let upload = request.body().taken();
        let placed = request.extensions().get::<Placed>().cloned();
        let response = inner.call(request);
        match call {
            Some(call) => Box::pin(watch(call, placed, upload, response)),
            None => Box::pin(response),
        }
    }
}

/// Whether what comes back is read on its way.
fn is_watched(call: &Call) -> bool {
    call.is_enforced() && call.is_inference() && call.facts().dialect != Dialect::Other
}

async fn watch(
    call: Call,
    placed: Option<Placed>,
    upload: Option<Taken>,
    response: impl Future<Output = Result<Response<ResponseBody>, Error>>,
) -> Result<Response<ResponseBody>, Error> {
    let sent_at = clock::now();
    let exchange = ExchangeRecord::new(sent_at);
    call.attempt_sent(exchange.clone());
    call.target().metrics().attempted(placed.as_ref());
    let limit = call.head_limit();
    let mut head = within(limit, upload, response).await.map_err(|error| failed(&call, error))?;
    let status = head.status();
    exchange.update(|seen| seen.status = Some(status.as_u16()));
    head.extensions_mut().insert(exchange.clone());
    if status.is_client_error() || status.is_server_error() {
        return rejected(&call, head).await;
    }
    if !status.is_success() {
        // A redirect is no answer, and has no end to miss.
        head.extensions_mut().insert(AttemptOutcome::Accepted { streams: false });
        return Ok(head);
    }
    let (mut parts, body) = head.into_parts();
    let observer = Observer::new(call.facts().dialect, &parts.headers, call.facts().stream);
    let streams = observer.is_stream();
    let hold_head = streams && call.is_enforced();
    let watched = Watched::new(call, placed, body, observer, exchange);
    if !hold_head {
        parts.extensions.insert(AttemptOutcome::Accepted { streams });
        return Ok(Response::from_parts(parts, ResponseBody::new(watched)));
    }
    let mut replay = Replay::new(watched);
    while !replay.rest().has_begun() && replay.len() < MOST_OF_A_HEAD {
        if !replay.pull().await? {
            break;
        }
    }
    let outcome = match replay.rest().early_failure() {
        Some(verdict) => AttemptOutcome::Rejected(verdict.clone()),
        None => AttemptOutcome::Accepted { streams },
    };
    parts.extensions.insert(outcome);
    Ok(Response::from_parts(parts, ResponseBody::new(replay)))
}

/// A failure by status: what its body says decides what it means. The body is played back whole.
async fn rejected(call: &Call, head: Response<ResponseBody>) -> Result<Response<ResponseBody>, Error> {
    let (mut parts, body) = head.into_parts();
    let mut replay = Replay::new(body);
    let limit = call.idle_limit().map_or(LONGEST_OF_AN_ERROR, |idle| idle.min(LONGEST_OF_AN_ERROR));
    // The status stands even where its explanation breaks off, or never ends.
    let _ = tokio::time::timeout(limit, async {
        while replay.len() < MOST_OF_AN_ERROR && matches!(replay.pull().await, Ok(true)) {}
    })
    .await;
    let seen: Bytes = replay.seen(MOST_OF_AN_ERROR);
    let verdict = classify(parts.status, &parts.headers, &seen, clock::wall());
    parts.extensions.insert(AttemptOutcome::Rejected(verdict));
    Ok(Response::from_parts(parts, ResponseBody::new(replay)))
}

/// Bounds a wait for the upstream, which begins once the upload, if there is one, has been taken.
async fn within<T>(
    limit: Option<Duration>,
    upload: Option<Taken>,
    what: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(limit) = limit else { return what.await };
    let too_late = async {
        if let Some(upload) = upload {
            upload.whole().await;
        }
        tokio::time::sleep(limit).await;
    };
    tokio::select! {
        biased;
        result = what => result,
        () = too_late => Err(Error::new(
            ErrorKind::FirstTokenTimeout,
            format!(
                "no answer within {:.1} s of sending (the target's `first_token` limit, or the client's read timeout)",
                limit.as_secs_f64()
            ),
        )),
    }
}
