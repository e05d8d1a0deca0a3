//! The building blocks of the layers of the stack: the trait that a layer implements, and the tower
//! service that runs it.
//!
//! A layer is a type that implements [`Middleware`]. [`tower_layer!`] makes it a tower layer, whose
//! service is [`Layered`]. A request that carries no [`Call`], or to whose call the layer does not
//! apply, is passed to the inner service unchanged.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower::Service;

use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::error::Error;

type CallRequest = Request<RequestBody>;
type Answer = Response<ResponseBody>;

/// The future of a response, which each service of the stack returns. Resolves with the response or
/// with the error of the call.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// The requirements on a service that a layer of the stack wraps: it turns requests into responses
/// and can be cloned.
pub trait InnerService:
    Service<CallRequest, Response = Answer, Error = Error, Future: Send + 'static> + Clone + Send + 'static
{
}

impl<S> InnerService for S where
    S: Service<CallRequest, Response = Answer, Error = Error, Future: Send + 'static>
        + Clone
        + Send
        + 'static
{
}

/// The behaviour of one layer of the stack. `S` is the service below the layer.
pub trait Middleware<S: InnerService>: Clone {
    /// Returns `true` if the layer processes the requests of this call. Otherwise [`Layered`]
    /// passes them to the inner service unchanged.
    fn applies_to(&self, _call: &Call) -> bool {
        true
    }

    /// Returns the response to `request`, which belongs to `call`. `inner` is the service below the
    /// layer. In the client's stack it is always ready, because the transport is.
    fn call(&self, call: Call, inner: &mut S, request: CallRequest) -> ResponseFuture;
}

/// The tower service of a layer: passes the requests of calls to the layer's [`Middleware`].
#[derive(Clone, Debug)]
pub struct Layered<M, S> {
    middleware: M,
    inner: S,
}

impl<M, S> Layered<M, S> {
    pub(crate) fn new(middleware: M, inner: S) -> Self {
        Self { middleware, inner }
    }
}

impl<M: Middleware<S>, S: InnerService> Service<CallRequest> for Layered<M, S> {
    type Response = Answer;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: CallRequest) -> Self::Future {
        let call = request.extensions().get::<Call>().filter(|call| self.middleware.applies_to(call));
        match call.cloned() {
            Some(call) => self.middleware.call(call, &mut self.inner, request),
            None => boxed(self.inner.call(request)),
        }
    }
}

/// Implements `tower::Layer` for a type that implements [`Middleware`]. The resulting service is
/// [`Layered`].
macro_rules! tower_layer {
    ($middleware:ty) => {
        impl<S> tower::Layer<S> for $middleware {
            type Service = $crate::layers::middleware::Layered<Self, S>;

            fn layer(&self, inner: S) -> Self::Service {
                $crate::layers::middleware::Layered::new(self.clone(), inner)
            }
        }
    };
}
pub(crate) use tower_layer;

/// Boxes a future, unless it is boxed already, as those of the layers are.
pub(crate) fn boxed<F>(future: F) -> ResponseFuture
where
    F: Future<Output = Result<Answer, Error>> + Send + 'static,
{
    let mut future = Some(future);
    let is_boxed = (&mut future as &mut dyn Any).downcast_mut::<Option<ResponseFuture>>();
    match (is_boxed.and_then(Option::take), future) {
        (Some(boxed), _) => boxed,
        (None, Some(future)) => Box::pin(future),
        (None, None) => Box::pin(std::future::pending()),
    }
}

/// Returns `inner`, which is ready for one request, and replaces it with a clone, which may not be
/// ready.
pub(crate) fn take_ready<S: Clone>(inner: &mut S) -> S {
    let clone = inner.clone();
    std::mem::replace(inner, clone)
}
