//! The tower layer.

use std::sync::Arc;

use http::Request;

use super::body::{Guarded, overdue};
use super::watch::Watch;
use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::middleware::{InnerService, Middleware, ResponseFuture, tower_layer};

/// Ends each call, its stream included, at its deadline; takes the slot back from a reader that stalls.
///
/// *Default*: 600 s, and 300 s for a reader. Wrong order: below retry, where each attempt would get the whole time again.
/// *Cancellation safety*: dropping the future or the body ends the call.
#[derive(Clone, Debug, Default)]
pub struct DeadlineLayer {
    watch: Arc<Watch>,
}

tower_layer!(DeadlineLayer);

impl<S: InnerService> Middleware<S> for DeadlineLayer {
    fn call(&self, inner: &mut S, request: Request<RequestBody>) -> ResponseFuture {
        let call = request
            .extensions()
            .get::<Call>()
            .filter(|call| call.is_enforced() && call.is_inference())
            .cloned();
        let response = inner.call(request);
        let Some(call) = call else { return Box::pin(response) };
        let watch = self.watch.clone();
        Box::pin(async move {
            let deadline = tokio::time::Instant::from_std(call.deadline());
            let mut response = std::pin::pin!(response);
            let answer = match tokio::time::timeout_at(deadline, &mut response).await {
                Ok(answer) => answer,
                // The attempt is still there, and says whether it waited or was in flight; it goes with this future.
                Err(_) => match call.why() {
                    // It has just left the queue, on another thread, and the answer that says why is on its way. A slot at this hour is a refusal too.
                    None if call.is_queued() => response.await,
                    why => return Err(call.target().admit_ignorance(overdue(&call, why))),
                },
            };
            Ok(answer?.map(|body| {
                let guarded = Guarded::new(call, body);
                watch.over(guarded.cell());
                ResponseBody::new(guarded)
            }))
        })
    }
}
