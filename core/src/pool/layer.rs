//! The tower layer: a call goes to the replica that its permit names.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::HOST;
use http::{Request, Response, Uri};
use tower::{Layer, Service};

use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::error::{Error, ErrorKind, Reason};
use crate::wire::base::Base;

/// Puts the address of a call's replica into its request.
///
/// *Default*: acts on requests that carry a [`Call`] to a target that is a pool. Wrong order: above admission, which chooses the replica.
/// *Cancellation safety*: as the service below.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolLayer;

impl<S> Layer<S> for PoolLayer {
    type Service = PoolService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PoolService { inner }
    }
}

/// See [`PoolLayer`].
#[derive(Clone, Debug)]
pub struct PoolService<S> {
    inner: S,
}

impl<S> Service<Request<RequestBody>> for PoolService<S>
where
    S: Service<Request<RequestBody>, Response = Response<ResponseBody>, Error = Error>,
    S::Future: Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let call = request.extensions().get::<Call>().filter(|call| call.target().config().pool.is_some());
        let Some(call) = call.cloned() else { return Box::pin(self.inner.call(request)) };
        let placed = if call.is_inference() { call.placed() } else { call.target().admission().beside() };
        let Some(placed) = placed else {
            let name = call.target().name().clone();
            return Box::pin(async move { Err(nowhere().at(&name)) });
        };
        match address(request.uri(), &call.target().config().matches.urls, &placed.url) {
            Some(uri) => *request.uri_mut() = uri,
            None => {
                let error = Error::new(ErrorKind::Request, "its URL cannot be put below the replica's");
                return Box::pin(async move { Err(error) });
            }
        }
        request.headers_mut().remove(HOST);
        Box::pin(self.inner.call(request))
    }
}

fn nowhere() -> Error {
    Error::new(ErrorKind::Refused(Reason::Outage), "the pool has no replica now")
}

fn address(uri: &Uri, of_pool: &[String], replica: &str) -> Option<Uri> {
    let there = of_pool.iter().filter_map(|url| Base::parse(url)).find(|base| base.holds(uri));
    Base::parse(replica)?.address(uri, there.as_ref())
}
