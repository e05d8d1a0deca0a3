//! A response body from which the usage that was requested by this layer is removed.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::strip_usage::UsageFilter;
use crate::body::ResponseBody;
use crate::error::Error;

/// A body that passes on its inner body without the hidden events, as soon as possible.
pub(super) struct FilteredBody {
    body: ResponseBody,
    hide: UsageFilter,
    /// The frame or error that follows the data just released.
    then: Option<Result<Frame<Bytes>, Error>>,
    done: bool,
}

impl FilteredBody {
    pub(super) fn new(body: ResponseBody) -> Self {
        Self { body, hide: UsageFilter::new(), then: None, done: false }
    }

    /// Takes the next frame, or the end, and returns the data that can be passed on now.
    fn see(&mut self, frame: Option<Result<Frame<Bytes>, Error>>) -> Bytes {
        let seen = match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => self.hide.push(data),
            Some(Ok(Err(trailers))) => {
                self.then = Some(Ok(trailers));
                self.hide.finish()
            }
            Some(Err(error)) => {
                (self.then, self.done) = (Some(Err(error)), true);
                self.hide.give_up()
            }
            None => {
                self.done = true;
                self.hide.finish()
            }
        };
        // A reader may not poll a body for its end if the length shows it.
        if self.done || self.hide.held() == 0 || !self.body.is_end_stream() {
            return seen;
        }
        self.done = true;
        [seen, self.hide.finish()].concat().into()
    }
}

impl Body for FilteredBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(then) = this.then.take() {
                return Poll::Ready(Some(then));
            }
            if this.done {
                return Poll::Ready(None);
            }
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            let seen = this.see(frame);
            if !seen.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(seen))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.then.is_none() && (self.done || (self.hide.held() == 0 && self.body.is_end_stream()))
    }

    fn size_hint(&self) -> SizeHint {
        // Unknown, because the hidden part has not been received yet.
        SizeHint::default()
    }
}
