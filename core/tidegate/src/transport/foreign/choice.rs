//! Selects the transport of each request: its own, or the gate's.

use std::task::{Context, Poll};

use http::{Request, Response};
use tower::Service;

use super::Foreign;
use crate::body::{RequestBody, ResponseBody};
use crate::error::Error;
use crate::transport::Transport;

/// A service that sends a request over the [`Foreign`] transport in its extensions, if there is
/// one, and otherwise over the gate's transport.
#[derive(Clone)]
pub(crate) struct ForeignOr(Transport);

impl ForeignOr {
    /// Creates the service with the gate's transport as the default.
    pub(crate) fn over(transport: Transport) -> Self {
        Self(transport)
    }
}

impl Service<Request<RequestBody>> for ForeignOr {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = <Transport as Service<Request<RequestBody>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        match request.extensions_mut().remove::<Foreign>() {
            Some(mut own) => own.call(request),
            None => self.0.call(request),
        }
    }
}
