//! A body whose first frames can be read in advance and are then passed on like the others.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::body::ResponseBody;
use crate::error::Error;
use crate::layers::{memory_of, size_hint_after};

/// A body whose first frames were read in advance. It returns those frames first, and then the rest
/// of the inner body.
pub(super) struct Replay<B> {
    /// The frames that were read in advance and not returned yet, oldest first.
    read: VecDeque<Frame<Bytes>>,
    /// The number of data bytes in `read`.
    len: usize,
    /// The inner body, without the frames that were read in advance.
    pub(super) rest: B,
    /// `true` once the inner body has ended.
    ended: bool,
    /// The error with which the inner body has ended. Returned after the frames in `read`.
    error: Option<Error>,
}

impl<B: Body<Data = Bytes, Error = Error> + Unpin> Replay<B> {
    pub(super) fn new(body: B) -> Self {
        Self { read: VecDeque::new(), len: 0, rest: body, ended: false, error: None }
    }

    /// Reads one more frame in advance. Returns `false` if the inner body has ended.
    ///
    /// # Errors
    /// The error of the inner body.
    pub(super) async fn pull(&mut self) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        match self.rest.frame().await {
            Some(Ok(frame)) => {
                self.len += data_len(&frame);
                self.read.push_back(frame);
                self.ended = self.rest.is_end_stream();
                Ok(true)
            }
            Some(Err(error)) => Err(error),
            None => {
                self.ended = true;
                Ok(false)
            }
        }
    }

    /// Ends the body with an error that [`Replay::pull`] has returned, after the frames that were
    /// read before.
    pub(super) fn end_with(&mut self, error: Error) {
        self.ended = true;
        self.error = Some(error);
    }

    /// Returns the start of the data that was read in advance, at most `max` bytes.
    pub(super) fn seen(&self, max: usize) -> Bytes {
        let mut seen = BytesMut::new();
        for data in self.read.iter().filter_map(Frame::data_ref) {
            let left = max.saturating_sub(seen.len());
            seen.extend_from_slice(data.get(..left).unwrap_or(data));
        }
        seen.freeze()
    }

    /// Returns the body of a response. If all of it was read in advance, it is in memory.
    pub(super) fn into_response_body(mut self) -> ResponseBody
    where
        B: Send + 'static,
    {
        if !self.ended || self.error.is_some() || !self.read.iter().all(Frame::is_data) {
            return ResponseBody::new(self);
        }
        let only = if self.read.len() == 1 { self.read.pop_front() } else { None };
        let only = only.and_then(|frame| frame.into_data().ok());
        ResponseBody::full(only.unwrap_or_else(|| self.seen(usize::MAX)))
    }

    /// Returns the memory in bytes of the frames that were read in advance and not returned yet.
    pub(super) fn memory(&self) -> usize {
        memory_of(self.len, self.read.len())
    }
}

/// Returns the number of data bytes of a frame, which is 0 for trailers.
fn data_len(frame: &Frame<Bytes>) -> usize {
    frame.data_ref().map_or(0, Bytes::len)
}

impl<B: Body<Data = Bytes, Error = Error> + Unpin> Body for Replay<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if let Some(frame) = this.read.pop_front() {
            this.len -= data_len(&frame);
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(error) = this.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if this.ended { Poll::Ready(None) } else { Pin::new(&mut this.rest).poll_frame(cx) }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.error.is_none() && (self.ended || self.rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.len as u64;
        let rest = if self.ended { SizeHint::with_exact(0) } else { self.rest.size_hint() };
        size_hint_after(read, &rest)
    }
}
