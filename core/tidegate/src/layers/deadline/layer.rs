//! The deadline layer: ends calls at their deadline.

use std::sync::Arc;

use http::Request;

use super::body::{DeadlineBody, overdue};
use super::watch::BodyWatch;
use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::layers::middleware::{InnerService, Middleware, ResponseFuture, tower_layer};

/// Ends each call at its deadline, including its stream. Releases the slot of a response whose
/// reader has stopped reading for the `stall` limit.
///
/// *Default*: acts in mode `enforce` on calls that run a model, with a deadline of 600 s and a
/// `stall` limit of 300 s. Other calls, such as uploads, end only at a deadline that the caller or
/// the configuration has set. The layer must be above retry, because the deadline applies to all
/// attempts together.
///
/// # Cancel safety
///
/// Dropping the future or the body ends the call.
#[derive(Clone, Debug, Default)]
pub struct DeadlineLayer {
    watch: Arc<BodyWatch>,
}

tower_layer!(DeadlineLayer);

impl<S: InnerService> Middleware<S> for DeadlineLayer {
    fn applies_to(&self, call: &Call) -> bool {
        call.is_enforced() && (call.is_inference() || call.has_own_deadline())
    }

    fn call(&self, call: Call, inner: &mut S, request: Request<RequestBody>) -> ResponseFuture {
        let response = inner.call(request);
        let watch = self.watch.clone();
        Box::pin(async move {
            let deadline = tokio::time::Instant::from_std(call.deadline());
            let mut response = std::pin::pin!(response);
            let answer = match tokio::time::timeout_at(deadline, &mut response).await {
                Ok(answer) => answer,
                Err(_) if call.is_queued() => {
                    // The scheduler rejects the call, with its position and what it waited for. If
                    // another thread has just removed it from the queue, its result is about to
                    // arrive. A slot granted this late results in a rejection too.
                    call.target().admission().refresh();
                    response.await
                }
                // The attempt is dropped with this future. Until then, its record shows whether it
                // was in flight.
                Err(_) => Err(overdue(&call)),
            };
            Ok(answer?.map(|body| match body.has_arrived() {
                true => body,
                false => ResponseBody::new(DeadlineBody::new(call, body, &watch)),
            }))
        })
    }
}
