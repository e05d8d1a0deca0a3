//! The tower layer: one target after the other, until one of them lets the call in.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Request, Response};

use super::Ways;
use super::address::Original;
use super::policy::mendable;
use crate::active::{Active, Between};
use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::clock;
use crate::error::{Error, Reason};
use crate::middleware::{InnerService, Middleware, ResponseFuture, take_ready, tower_layer};

/// Says which target answered in place of the one that was meant.
const ANSWERED_BY: HeaderName = HeaderName::from_static("x-tidegate-fallback");

/// Takes what a target refuses to its fallback.
///
/// *Default*: does nothing; acts on requests that carry a [`Call`] to a target with a `fallback`. Wrong order: below the books or the deadline, where
/// all targets would share one entry.
/// *Cancellation safety*: dropping the future leaves the queue that the call stands in; dropping the body ends the exchange.
#[derive(Clone)]
pub(crate) struct FallbackLayer {
    ways: Arc<Ways>,
    active: Arc<Active>,
}

impl FallbackLayer {
    pub(crate) fn new(ways: Arc<Ways>, active: Arc<Active>) -> Self {
        Self { ways, active }
    }
}

tower_layer!(FallbackLayer);

impl<S: InnerService> Middleware<S> for FallbackLayer {
    fn call(&self, inner: &mut S, request: Request<RequestBody>) -> ResponseFuture {
        let mut inner = take_ready(inner);
        let call =
            request.extensions().get::<Call>().filter(|call| call.is_enforced() && call.is_inference());
        match call.filter(|call| self.ways.from(call).is_some()).cloned() {
            Some(call) => {
                let between = self.active.between();
                Box::pin(in_turn(call, request, inner, self.ways.clone(), between))
            }
            None => Box::pin(inner.call(request)),
        }
    }
}

async fn in_turn<S: InnerService>(
    mut call: Call,
    request: Request<RequestBody>,
    mut inner: S,
    ways: Arc<Ways>,
    _between: Between,
) -> Result<Response<ResponseBody>, Error> {
    let (parts, body) = request.into_parts();
    // An upload is read once, by the target that it was meant for.
    let again = body.again();
    let mut next = Request::from_parts(parts.clone(), body);
    let original = again.map(|body| Original { parts, body });
    let meant = call.target().clone();
    let mut tried = vec![meant.name().clone()];
    let mut first: Option<Reason> = None;
    loop {
        let error = match inner.call(next).await {
            Ok(response) if first.is_none() => return Ok(response),
            Ok(response) => return Ok(answered_by(&call, response)),
            Err(error) => error,
        };
        let error = match first {
            Some(reason) => error.refused_first(meant.name(), reason),
            None => error,
        };
        let now = clock::now();
        let Some(reason) = mendable(&call, &error, now) else { return Err(error) };
        let Some(way) = ways.from(&call).filter(|way| !tried.contains(way.target.name())) else {
            return Err(error);
        };
        let made = original.as_ref().ok_or("its body is an upload, which is read once");
        match made.and_then(|original| way.take(&call, original, meant.config(), now)) {
            Ok((there, request)) => {
                call.target().metrics().fell_back(reason);
                tracing::debug!(from = %call.target().name(), to = %there.target().name(), reason = reason.as_str(), "falls back");
                (call, next) = (there, request);
            }
            Err(why) => return Err(error.no_fallback(way.target.name(), why)),
        }
        tried.push(call.target().name().clone());
        first.get_or_insert(reason);
        std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
    }
}

fn answered_by(call: &Call, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    // Names have no control characters; what lies beyond ASCII goes as UTF-8.
    if let Ok(name) = HeaderValue::from_bytes(call.target().name().as_bytes()) {
        response.headers_mut().insert(ANSWERED_BY, name);
    }
    response
}
