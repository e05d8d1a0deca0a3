//! A streamed request body that is checked against its declared length.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::BoxBody;

use crate::error::{Error, ErrorKind};

/// A streamed body that fails if its length differs from the declared length.
///
/// The last chunk is withheld until the inner body has ended. Otherwise a transport, which stops
/// reading at the declared length, would send the beginning of a too long body as if it were the
/// complete body.
#[derive(Debug)]
pub(super) struct DeclaredLengthBody {
    body: BoxBody<Bytes, Error>,
    declared: u64,
    /// Number of bytes of the declared length that the inner body has not produced yet.
    left: u64,
    /// Frames held back until `body` ends: the last chunk and the trailers.
    withheld: VecDeque<Frame<Bytes>>,
    /// `true` once `body` has ended.
    ended: bool,
}

impl DeclaredLengthBody {
    pub(super) fn new(body: BoxBody<Bytes, Error>, declared: u64) -> Self {
        Self { body, declared, left: declared, withheld: VecDeque::new(), ended: false }
    }
}

impl Body for DeclaredLengthBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        loop {
            if this.ended {
                return Poll::Ready(this.withheld.pop_front().map(Ok));
            }
            let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)).transpose()? else {
                if this.left > 0 {
                    let (sent, declared) = (this.declared - this.left, this.declared);
                    return Poll::Ready(Some(Err(mismatch(declared, &format!("ends after {sent}")))));
                }
                this.ended = true;
                continue;
            };
            let length = frame.data_ref().map_or(0, Bytes::len) as u64;
            let Some(left) = this.left.checked_sub(length) else {
                return Poll::Ready(Some(Err(mismatch(this.declared, "is longer"))));
            };
            this.left = left;
            if left > 0 {
                return Poll::Ready(Some(Ok(frame)));
            }
            if length > 0 || frame.is_trailers() {
                this.withheld.push_back(frame);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && self.withheld.is_empty() && (self.ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            // A transport that is told that 0 bytes follow never polls the body.
            0 => SizeHint::default(),
            left => SizeHint::with_exact(left),
        }
    }
}

/// Returns the error for a body whose length is not `declared` bytes, of the kind `Request`. `body`
/// completes the sentence "the body ..." in the message, for example `is longer`.
pub(super) fn mismatch(declared: u64, body: &str) -> Error {
    let message = format!(
        "content-length declares {declared} bytes, but the body {body}; correct or remove the header"
    );
    Error::new(ErrorKind::Request, message)
}
