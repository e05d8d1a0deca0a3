//! The service.

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
use super::{HttpJudge, Judge, LimitedBody, Snapshot};

/// A service behind an [`AdaptiveLimitLayer`](super::AdaptiveLimitLayer). Cheap to clone where the
/// service is; clones share the limit.
///
/// It is always ready, and waits in `call`: what a call is permit against depends on its request,
/// which `poll_ready` has not seen; and a caller that has been told to be ready and then does not
/// call would keep a slot from those who do. The inner service is made ready once the slot is
/// there, so that nothing that *it* reserves is permit while a call waits here.
///
/// *Cancellation safety*: dropping the future leaves the queue, or ends the exchange and gives the
/// slot back; so does dropping the body.
///
/// # Errors
/// [`tidegate::Error`](crate::Error) of kind `Refused`, to be had by `downcast`, with when to come
/// back: `QueueFull`, `WaitBudget` (without one `Deadline`, after 10 minutes), or `PredictedWait`,
/// where its slot would come after that. All others are the inner service's own.
pub struct AdaptiveLimit<S, J = HttpJudge> {
    pub(super) inner: S,
    pub(super) state: Arc<LimitState<J>>,
}

impl<S, J> AdaptiveLimit<S, J> {
    /// What the limit sees now, and why it moved.
    pub fn snapshot(&self) -> Snapshot {
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

// By hand: a derived one would want the judge to be `Clone`.
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
