//! The tower service that all layers of the stack share.
//!
//! A layer is a type that implements [`Middleware`], and [`tower_layer!`] makes a tower layer of
//! it. The tower service of each layer is [`Layered`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower::Service;

use crate::body::{RequestBody, ResponseBody};
use crate::error::Error;

type Call = Request<RequestBody>;
type Answer = Response<ResponseBody>;

/// The future of each service of the stack.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// A service that a layer can wrap.
pub trait InnerService:
    Service<Call, Response = Answer, Error = Error, Future: Send + 'static> + Clone + Send + 'static
{
}

impl<S> InnerService for S where
    S: Service<Call, Response = Answer, Error = Error, Future: Send + 'static> + Clone + Send + 'static
{
}

/// The behaviour of a layer.
pub trait Middleware<S: InnerService>: Clone {
    /// Returns the response to `request`. `inner` is ready for one call.
    fn call(&self, inner: &mut S, request: Call) -> ResponseFuture;
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

impl<M: Middleware<S>, S: InnerService> Service<Call> for Layered<M, S> {
    type Response = Answer;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Call) -> Self::Future {
        self.middleware.call(&mut self.inner, request)
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
