//! The tower service that all layers of the stack share.
//!
//! A layer is a type that implements [`Middleware`], and [`tower_layer!`] makes a tower layer of
//! it. The tower service of each layer is [`Layered`], which passes on unchanged each request that
//! carries no [`Call`] or to whose call the layer does not apply.

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

/// The future that each service of the stack returns. Resolves with the response or with the error
/// of the call.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// A cloneable service from requests to responses, which a layer of the stack can wrap.
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

/// What a layer does with the requests of calls. `S` is the service below the layer.
pub trait Middleware<S: InnerService>: Clone {
    /// Returns `true` if the layer acts on requests of the call. Otherwise [`Layered`] passes them
    /// unchanged to the inner service.
    fn applies_to(&self, _call: &Call) -> bool {
        true
    }

    /// Returns the response to `request`, which belongs to `call`. `inner` is the service below the
    /// layer, and is ready for one request.
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
            None => Box::pin(self.inner.call(request)),
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

/// Returns `inner`, which is ready for one request, and leaves a clone in its place. The clone may
/// not be ready.
pub(crate) fn take_ready<S: Clone>(inner: &mut S) -> S {
    let clone = inner.clone();
    std::mem::replace(inner, clone)
}
