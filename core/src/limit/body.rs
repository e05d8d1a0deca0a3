//! The body of a response, which holds its call's slot.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};

use super::held::Held;
use super::{HttpJudge, Judge};

/// A response's body behind an [`AdaptiveLimitLayer`](super::AdaptiveLimitLayer). Frames pass as
/// they come; the slot goes back at its end, when it fails, or when it is dropped.
///
/// *Cancellation safety*: dropping it at any moment drops the inner body, and then gives the slot
/// back.
///
/// # Errors
/// The inner body's own.
pub struct LimitedBody<B, J = HttpJudge> {
    /// `None`: it is over.
    open: Option<Open<B, J>>,
}

struct Open<B, J> {
    // In this order: the exchange goes first, then the slot. Boxed, since it is dropped where it
    // stands.
    body: Pin<Box<B>>,
    held: Held<J>,
}

impl<B: Body, J: Judge> LimitedBody<B, J> {
    pub(super) fn new(body: B, mut held: Held<J>) -> Self {
        if body.is_end_stream() {
            held.completed();
            return Self { open: None };
        }
        Self { open: Some(Open { body: Box::pin(body), held }) }
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
        let Some(Open { body, held }) = &mut this.open else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    held.saw(data);
                }
                // Many readers never ask for the end once they have all that was announced.
                if body.is_end_stream() {
                    held.completed();
                    this.open = None;
                }
            }
            Some(Err(_)) => {
                held.broke();
                this.open = None;
            }
            None => {
                held.completed();
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
