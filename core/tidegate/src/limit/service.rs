//! The tower service of the adaptive limit.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower::{BoxError, Service, ServiceExt};

use super::limit_permit::LimitPermit;
use super::state::LimitState;
use super::{AdaptiveLimitSnapshot, HttpJudge, Judge, LimitedBody};

/// A service behind an [`AdaptiveLimitLayer`](super::AdaptiveLimitLayer). Cheap to clone if the
/// inner service is. Clones share the limit.
///
/// The service is always ready, and waits in `call`, for two reasons: the wait depends on the
/// request, which `poll_ready` does not receive; and a caller that is ready but never calls would
/// hold a slot. The inner service is polled for readiness once the slot is held, so it reserves
/// nothing while a call waits.
///
/// # Cancel safety
///
/// Dropping the future leaves the queue, or ends the exchange and releases the slot. Dropping the
/// body also ends the exchange and releases the slot.
///
/// # Errors
///
/// A [`tidegate::Error`](crate::Error) of kind `Refused`, available by `downcast`. It contains the
/// delay after which to try again, if the delay is known. Its reason is one of these:
///
/// - `QueueFull`: the queue is full.
/// - `WaitBudget`: the slot was not free within the wait budget.
/// - `Deadline`: without a wait budget, the slot was not free within 10 minutes.
/// - `PredictedWait`: the wait for the slot is predicted to be longer than the wait budget or,
///   without one, than 10 minutes.
///
/// All other errors are those of the inner service.
pub struct AdaptiveLimit<S, J = HttpJudge> {
    pub(super) inner: S,
    pub(super) state: Arc<LimitState<J>>,
}

impl<S, J> AdaptiveLimit<S, J> {
    /// Returns the current state of the limit and its queue, and the latest changes of the limit.
    pub fn snapshot(&self) -> AdaptiveLimitSnapshot {
        self.state.snapshot()
    }
}

impl<S, J, Q, B> Service<Request<Q>> for AdaptiveLimit<S, J>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    J: Judge,
    Q: Body + Send + 'static,
    B: Body,
{
    type Response = Response<LimitedBody<B, J>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let (inner, state) = (self.inner.clone(), self.state.clone());
        let kind = state.judge.kind(&request);
        Box::pin(async move {
            let permit = state.acquire(kind).await?;
            let mut permit = LimitPermit::new(state, permit, kind);
            match inner.oneshot(request).await {
                Ok(response) => {
                    permit.on_response(&response);
                    Ok(response.map(|body| LimitedBody::new(body, permit)))
                }
                Err(error) => {
                    let error = error.into();
                    permit.on_error(&error);
                    Err(error)
                }
            }
        })
    }
}

// Not derived: a derived implementation would require `J: Clone`.
impl<S: Clone, J> Clone for AdaptiveLimit<S, J> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), state: self.state.clone() }
    }
}

impl<S: fmt::Debug, J> fmt::Debug for AdaptiveLimit<S, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLimit").field("inner", &self.inner).field("state", &self.state).finish()
    }
}
