//! A transport layer between the gate and the transport that observes every exchange, and refuses
//! to send those that could exceed a ceiling.
//!
//! Bytes pass unchanged and unbuffered.
//!
//! # Cancellation safety
//!
//! Dropping the future or the body ends the exchange and reports its end.

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

/// Request extension that identifies the call. Retries carry it too.
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
        let hold = match self.hub.tracker.reserve(call.input, call.output, !call.was_sent()) {
            Ok(hold) => hold,
            Err(_) => {
                call.mark_given_up();
                return Box::pin(std::future::ready(Err(Error::new(
                    ErrorKind::Request,
                    "not sent, because the request could exceed a ceiling of the sweep",
                ))));
            }
        };
        let mut exchange = Exchange::open(self.hub.clone(), call, hold);
        let answer = self.inner.call(request);
        Box::pin(async move {
            match answer.await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    exchange.answered(&head);
                    Ok(Response::from_parts(head, ResponseBody::new(MeteredBody { body, exchange })))
                }
                Err(error) => {
                    exchange.broke(error.kind());
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
                    this.exchange.chunk(bytes);
                }
                if this.body.is_end_stream() {
                    // The reader need not poll for the end.
                    this.exchange.finish();
                }
            }
            Some(Err(error)) => this.exchange.broke(error.kind()),
            None => this.exchange.finish(),
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
