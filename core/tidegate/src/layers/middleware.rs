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

/// The future of each service of the stack.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// A service that a layer can wrap.
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

/// The behaviour of a layer.
pub trait Middleware<S: InnerService>: Clone {
    /// Returns `true` if the layer acts on the call. Otherwise its requests pass unchanged.
    fn applies_to(&self, _call: &Call) -> bool {
        true
    }

    /// Returns the response to `request`, which belongs to `call`. `inner` is ready for one request.
    fn call(&self, call: Call, inner: &mut S, request: CallRequest) -> ResponseFuture;
}

/// The service of a layer: passes each request to the layer's [`Middleware`].
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

/// Implements `tower::Layer` for a [`Middleware`].
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

/// Returns the service, which is ready for one call, and leaves a clone in its place.
///
/// The clone need not be ready, so the returned service is the one to call.
pub(crate) fn take_ready<S: Clone>(inner: &mut S) -> S {
    let clone = inner.clone();
    std::mem::replace(inner, clone)
}
