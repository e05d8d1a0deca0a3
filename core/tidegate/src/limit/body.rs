//! The response body of a service behind an adaptive limit. It holds the slot of its call until it
//! ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};

use super::limit_permit::LimitPermit;
use super::{HttpJudge, Judge};

/// A response body behind an [`AdaptiveLimitLayer`](super::AdaptiveLimitLayer).
///
/// Frames pass unchanged. The slot is released when the body ends, fails or is dropped. Errors are
/// those of the inner body.
///
/// # Cancel safety
///
/// Dropping the body drops the inner body, and then releases the slot.
pub struct LimitedBody<B, J = HttpJudge> {
    /// The inner body. `None` after it has ended or failed.
    open: Option<Open<B, J>>,
}

/// An inner body that has not ended, with the permit of its call.
struct Open<B, J> {
    // Field order matters: the exchange is dropped first, then the slot. The body is boxed so that
    // it can be dropped in place while pinned.
    body: Pin<Box<B>>,
    permit: LimitPermit<J>,
}

impl<B: Body, J: Judge> LimitedBody<B, J> {
    pub(super) fn new(body: B, mut permit: LimitPermit<J>) -> Self {
        if body.is_end_stream() {
            permit.on_completed();
            return Self { open: None };
        }
        Self { open: Some(Open { body: Box::pin(body), permit }) }
    }
}

impl<B: Body, J: Judge> Body for LimitedBody<B, J> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let Some(Open { body, permit }) = &mut this.open else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    permit.on_data(data);
                }
                // Many readers stop polling once they have received the announced length.
                if body.is_end_stream() {
                    permit.on_completed();
                    this.open = None;
                }
            }
            Some(Err(_)) => {
                permit.on_broken_body();
                this.open = None;
            }
            None => {
                permit.on_completed();
                this.open = None;
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.open.as_ref().is_none_or(|open| open.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.open.as_ref().map_or_else(|| SizeHint::with_exact(0), |open| open.body.size_hint())
    }
}

impl<B, J> fmt::Debug for LimitedBody<B, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedBody").field("is_over", &self.open.is_none()).finish_non_exhaustive()
    }
}
