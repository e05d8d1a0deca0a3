//! The observing layer: counts and logs each call once, however it ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};

use super::CallLog;
use super::open_record::{OpenRecord, outcome_of};
use crate::active_calls::Active;
use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::error::Error;
use crate::layers::middleware::{InnerService, Middleware, ResponseFuture, tower_layer};
use crate::metrics::Outcome;

/// Counts and logs each call once, when it ends.
///
/// *Default*: acts on every call. Calls that run no model are counted, but not logged.
///
/// # Cancel safety
/// Dropping the future or the response body counts the call as cancelled, unless the response was
/// received completely.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObserveLayer {
    log: Arc<CallLog>,
    active: Arc<Active>,
}

impl ObserveLayer {
    pub(crate) fn new(log: Arc<CallLog>, active: Arc<Active>) -> Self {
        Self { log, active }
    }
}

tower_layer!(ObserveLayer);

impl<S: InnerService> Middleware<S> for ObserveLayer {
    fn call(&self, call: Call, inner: &mut S, request: Request<RequestBody>) -> ResponseFuture {
        let response = inner.call(request);
        let mut record = OpenRecord::open(call, self.log.clone(), &self.active);
        Box::pin(async move {
            match response.await {
                Ok(response) => {
                    let failed = response.status().is_client_error() || response.status().is_server_error();
                    record.on_response(&response);
                    Ok(response.map(|body| {
                        // Readers do not poll an empty body, and need not read one in memory.
                        let is_over = body.has_arrived();
                        let mut counted = CountedBody { body, failed, record: Some(record) };
                        if !is_over {
                            return ResponseBody::new(counted);
                        }
                        counted.end(Outcome::Completed);
                        counted.body
                    }))
                }
                Err(error) => {
                    record.failed(&error);
                    Err(error.with_call(record.call().id()))
                }
            }
        })
    }
}

/// A response body that closes the record of its call when the body ends.
struct CountedBody {
    body: ResponseBody,
    /// `true` if the response has an error status.
    failed: bool,
    /// The open record of the call. `None` once the body has ended.
    record: Option<OpenRecord>,
}

impl CountedBody {
    /// Closes the record of the call with `outcome`. A completed call is recorded as failed if its
    /// response has an error status or an error event. Later calls have no effect.
    fn end(&mut self, outcome: Outcome) {
        if let Some(mut record) = self.record.take() {
            let failed = self.failed || record.is_failed();
            record.set_outcome(if failed && outcome == Outcome::Completed {
                Outcome::Failed
            } else {
                outcome
            });
        }
    }
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(_)) if !this.body.is_end_stream() => {}
            Some(Ok(_)) | None => this.end(Outcome::Completed),
            Some(Err(error)) => this.end(outcome_of(error)),
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
