//! A transport between the gate and the real transport, which observes every exchange.
//!
//! It sends no request that could exceed a ceiling. Bytes pass unchanged and unbuffered.
//!
//! # Cancel safety
//!
//! Dropping the response future or the body ends the exchange and reports its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody, Transport};
use tower::Service;

use super::call_state::CallState;
use super::event_hub::EventHub;
use super::exchange::Exchange;

/// Request extension with the call that a request belongs to. The gate copies it to retries.
/// Requests without it are not observed.
#[derive(Clone)]
pub(super) struct CallTag(pub(super) Arc<CallState>);

#[derive(Clone)]
pub(crate) struct MeteringTransport {
    inner: Transport,
    hub: Arc<EventHub>,
}

impl MeteringTransport {
    pub(crate) fn over(inner: Transport, hub: Arc<EventHub>) -> Transport {
        Transport::new(Self { inner, hub })
    }
}

impl Service<Request<RequestBody>> for MeteringTransport {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let Some(CallTag(call)) = request.extensions().get::<CallTag>().cloned() else {
            return Box::pin(self.inner.call(request));
        };
        let reservation = match self.hub.tracker.reserve(call.input, call.output, !call.was_sent()) {
            Ok(reservation) => reservation,
            Err(_) => {
                call.mark_cancelled();
                return Box::pin(std::future::ready(Err(Error::new(
                    ErrorKind::Request,
                    "not sent, because the request could exceed a ceiling of the sweep",
                ))));
            }
        };
        let mut exchange = Exchange::open(self.hub.clone(), call, reservation);
        let response_future = self.inner.call(request);
        Box::pin(async move {
            match response_future.await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    exchange.on_response(&head);
                    Ok(Response::from_parts(head, ResponseBody::new(MeteredBody { body, exchange })))
                }
                Err(error) => {
                    exchange.on_error(error.kind());
                    Err(error)
                }
            }
        })
    }
}

struct MeteredBody {
    body: ResponseBody,
    exchange: Exchange,
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    this.exchange.on_bytes(bytes);
                }
                if this.body.is_end_stream() {
                    // The reader need not poll for the end.
                    this.exchange.on_end();
                }
            }
            Some(Err(error)) => this.exchange.on_error(error.kind()),
            None => this.exchange.on_end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
