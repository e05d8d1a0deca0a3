//! The tower layer: one target after the other, until one of them lets the call in.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderName, HeaderValue, Request, Response};
use tower::{Layer, Service};

use super::Ways;
use super::address::Original;
use super::policy::mendable;
use crate::active::{Active, Between};
use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::clock;
use crate::error::{Error, Reason};

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

impl<S> Layer<S> for FallbackLayer {
    type Service = FallbackService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        FallbackService { inner, layer: self.clone() }
    }
}

/// See [`FallbackLayer`].
#[derive(Clone)]
pub(crate) struct FallbackService<S> {
    inner: S,
    layer: FallbackLayer,
}

impl<S> Service<Request<RequestBody>> for FallbackService<S>
where
    S: Service<Request<RequestBody>, Response = Response<ResponseBody>, Error = Error>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let call =
            request.extensions().get::<Call>().filter(|call| call.is_enforced() && call.is_inference());
        match call.filter(|call| self.layer.ways.from(call).is_some()).cloned() {
            Some(call) => {
                let between = self.layer.active.between();
                Box::pin(in_turn(call, request, inner, self.layer.ways.clone(), between))
            }
            None => Box::pin(inner.call(request)),
        }
    }
}

async fn in_turn<S>(
    mut call: Call,
    request: Request<RequestBody>,
    mut inner: S,
    ways: Arc<Ways>,
    _between: Between,
) -> Result<Response<ResponseBody>, Error>
where
    S: Service<Request<RequestBody>, Response = Response<ResponseBody>, Error = Error>,
{
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
