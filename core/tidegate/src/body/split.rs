//! A streamed request body whose frames have a limited length.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::error::Error;

/// The maximum length of a frame in bytes: 64 KiB.
const MAX_FRAME: usize = 64 * 1024;

/// A body that passes on longer frames in several parts, so that the frames that a transport takes
/// show the progress of an upload.
#[derive(Debug)]
pub(super) struct SplitBody<B> {
    body: B,
    /// What is left of the frame that `body` produced last.
    rest: Bytes,
}

impl<B> SplitBody<B> {
    pub(super) fn new(body: B) -> Self {
        Self { body, rest: Bytes::new() }
    }
}

impl<B: Body<Data = Bytes, Error = Error> + Unpin> Body for SplitBody<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) if frame.data_ref().is_some_and(|data| data.len() > MAX_FRAME) => {
                    this.rest = frame.into_data().unwrap_or_default();
                }
                frame => return Poll::Ready(frame),
            }
        }
        let part = this.rest.split_to(this.rest.len().min(MAX_FRAME));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}
