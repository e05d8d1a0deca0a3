//! The fallback layer: if the target of a call rejects it or cannot be connected to, sends the call
//! to its fallback targets in turn until one admits it.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderName, HeaderValue, Request, Response};

use super::FallbackRoutes;
use super::fallback_request::Original;
use crate::active_calls::{Active, FallbackInProgress};
use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::clock;
use crate::error::{Error, ErrorKind, Reason};
use crate::layers::middleware::{InnerService, Middleware, ResponseFuture, take_ready, tower_layer};

/// The response header with the name of the fallback target that answered the call.
const ANSWERED_BY: HeaderName = HeaderName::from_static("x-tidegate-fallback");

/// Sends calls that their target rejects, or that find no connection to it, to the target's
/// fallback.
///
/// *Default*: acts in mode `enforce` on calls that run a model, if their target sets `fallback`
/// (default: none). The layer must be above the observing layer and the deadline, because each
/// target that a call reaches has its own record of the call.
///
/// # Cancel safety
/// Dropping the future removes the call from the queue. Dropping the response body ends the
/// exchange.
#[derive(Clone)]
pub(crate) struct FallbackLayer {
    routes: Arc<FallbackRoutes>,
    active: Arc<Active>,
}

impl FallbackLayer {
    pub(crate) fn new(routes: Arc<FallbackRoutes>, active: Arc<Active>) -> Self {
        Self { routes, active }
    }
}

tower_layer!(FallbackLayer);

impl<S: InnerService> Middleware<S> for FallbackLayer {
    fn applies_to(&self, call: &Call) -> bool {
        call.is_enforced() && call.is_inference() && self.routes.of_call(call).is_some()
    }

    fn call(&self, call: Call, inner: &mut S, request: Request<RequestBody>) -> ResponseFuture {
        let in_fallback = self.active.in_fallback();
        Box::pin(try_in_turn(call, request, take_ready(inner), self.routes.clone(), in_fallback))
    }
}

/// Sends the call to its target, and then to one fallback target after the other until one admits
/// the call. Returns the response of that target, or the last error if the call may not be sent to
/// another target.
async fn try_in_turn<S: InnerService>(
    mut call: Call,
    request: Request<RequestBody>,
    mut inner: S,
    routes: Arc<FallbackRoutes>,
    _in_fallback: FallbackInProgress,
) -> Result<Response<ResponseBody>, Error> {
    let (parts, body) = request.into_parts();
    // A streamed body can be sent only once, to the first target.
    let copy = body.try_clone();
    let mut next = Request::from_parts(parts.clone(), body);
    let original = copy.map(|body| Original { parts, body });
    let first_target = call.target().clone();
    let mut tried = vec![first_target.name().clone()];
    let mut first: Option<Reason> = None;
    loop {
        let error = match inner.call(next).await {
            Ok(response) if first.is_none() => return Ok(response),
            Ok(response) => return Ok(answered_by(&call, response)),
            Err(error) => error,
        };
        let error = match first {
            Some(reason) => error.with_first_rejection(first_target.name(), reason),
            None => error,
        };
        let Some(reason) = fallback_reason(&call, &error, clock::now()) else { return Err(error) };
        let Some(route) = routes.of_call(&call).filter(|route| !tried.contains(route.target.name())) else {
            return Err(error);
        };
        let made = original.as_ref().ok_or("its body is an upload, which can be read only once");
        match made.and_then(|original| route.redirect(&call, original, first_target.config())) {
            Ok((there, request)) => {
                call.target().metrics().on_fallback(reason);
                tracing::debug!(from = %call.target().name(), to = %there.target().name(), reason = reason.as_str(), "falls back");
                (call, next) = (there, request);
            }
            Err(why) => return Err(error.with_fallback_problem(route.target.name(), why)),
        }
        tried.push(call.target().name().clone());
        first.get_or_insert(reason);
        std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
    }
}

/// Adds the header [`ANSWERED_BY`] with the name of the call's target to a response.
fn answered_by(call: &Call, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    // Names have no control characters. Characters beyond ASCII are sent as UTF-8.
    if let Ok(name) = HeaderValue::from_bytes(call.target().name().as_bytes()) {
        response.headers_mut().insert(ANSWERED_BY, name);
    }
    response
}

/// Returns the reason of a rejection if the call may be sent to another target: the reason allows
/// it ([`Reason::can_fall_back`]), sending the call again is safe, and its deadline is after `now`.
/// If the last attempt found no connection, the reason is an outage. Otherwise returns `None`.
fn fallback_reason(call: &Call, error: &Error, now: Instant) -> Option<Reason> {
    let reason = match error.kind() {
        ErrorKind::Connect | ErrorKind::ConnectTimeout => Reason::Outage,
        _ => error.reason().filter(Reason::can_fall_back)?,
    };
    // The call may have run already if it is a retry that was rejected.
    let is_safe = !call.may_have_run() || call.facts().repeatable;
    (is_safe && now < call.deadline()).then_some(reason)
}
