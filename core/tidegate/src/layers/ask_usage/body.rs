//! A response body that hides the token usage that this layer requested.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::strip_usage::UsageFilter;
use crate::body::ResponseBody;
use crate::error::Error;

/// A response body from which a [`UsageFilter`] removes the requested usage. Data is passed on as
/// soon as the filter releases it.
pub(super) struct FilteredBody {
    body: ResponseBody,
    filter: UsageFilter,
    /// The trailers or the error to return in the next poll, after the data that the filter has
    /// just released. `None` if there are none.
    next: Option<Result<Frame<Bytes>, Error>>,
    done: bool,
}

impl FilteredBody {
    pub(super) fn new(body: ResponseBody) -> Self {
        Self { body, filter: UsageFilter::new(), next: None, done: false }
    }

    /// Passes a frame to the filter, or the end of the body if `frame` is `None`. Returns the data
    /// that can be passed on now, which may be empty. Stores trailers and errors in `next`.
    fn filter(&mut self, frame: Option<Result<Frame<Bytes>, Error>>) -> Bytes {
        let ready = match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => self.filter.push(data),
            Some(Ok(Err(trailers))) => {
                self.next = Some(Ok(trailers));
                self.filter.finish()
            }
            Some(Err(error)) => {
                (self.next, self.done) = (Some(Err(error)), true);
                self.filter.give_up()
            }
            None => {
                self.done = true;
                self.filter.finish()
            }
        };
        // Readers that know the length of a body may not poll for its end.
        if self.done || self.filter.held() == 0 || !self.body.is_end_stream() {
            return ready;
        }
        self.done = true;
        [ready, self.filter.finish()].concat().into()
    }
}

impl Body for FilteredBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(next) = this.next.take() {
                return Poll::Ready(Some(next));
            }
            if this.done {
                return Poll::Ready(None);
            }
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            let data = this.filter(frame);
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && (self.done || (self.filter.held() == 0 && self.body.is_end_stream()))
    }

    fn size_hint(&self) -> SizeHint {
        // Unknown, because the hidden part has not been received yet.
        SizeHint::default()
    }
}
