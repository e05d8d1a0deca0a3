//! The response body that a [`Host`](super::Host) sends through an exchange.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

use super::exchange_state::Reader;
use crate::error::{Error, ErrorKind};

/// A response body that fails if the host ends it before the length that `content-length`
/// announced.
pub(super) struct Incoming {
    reader: Reader,
    /// Number of bytes still expected. `None` if no length was announced, or if the host has sent
    /// more than the announced length.
    left: Option<u64>,
}

impl Incoming {
    /// Creates the body of the response `head`. `headless` is `true` if the request method was
    /// `HEAD`: the response then announces a length without having a body.
    pub(super) fn new(reader: Reader, head: &Response<()>, headless: bool) -> Self {
        let empty = matches!(head.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let left = if headless || empty { None } else { announced(head) };
        Self { reader, left }
    }
}

/// Returns the value of `content-length`. `None` if the header is missing or is not a number.
fn announced(head: &Response<()>) -> Option<u64> {
    head.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        Poll::Ready(match ready!(this.reader.poll_chunk(cx)) {
            Some(Ok(chunk)) => {
                // A longer body passes: the host decides what its upstream may do.
                this.left = this.left.and_then(|left| left.checked_sub(chunk.len() as u64));
                Some(Ok(Frame::data(chunk)))
            }
            Some(Err(error)) => {
                this.left = None;
                Some(Err(error))
            }
            None => this.left.take().filter(|left| *left > 0).map(|left| {
                Err(Error::new(
                    ErrorKind::Truncated,
                    format!("the response ended {left} bytes before its content-length"),
                ))
            }),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_none_or(|left| left == 0) && self.reader.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
