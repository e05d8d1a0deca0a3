//! HTTP/1.1 on one connection, which is driven by the call and then by the reader of the response's
//! body. There is no task for a connection, so nothing is handed between tasks, and a connection
//! that nobody polls costs its socket only.

mod body_decoder;
mod response_head;
mod upload;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{Method, Response};
use http_body::{Body, Frame, SizeHint};
use tokio_util::io::poll_read_buf;

use self::body_decoder::{BodyDecoder, Decoded};
use self::response_head::{MAX_HEAD, ResponseHead};
use self::upload::{Upload, UploadFailure};

pub(super) use self::upload::RequestHead;
use super::errors;
use super::stream::Stream;
use crate::body::RequestBody;
use crate::error::Error;

/// The space that a read offers, in bytes: that of the first read, and the most. It doubles when a
/// read has filled it.
const READ: std::ops::RangeInclusive<usize> = 4 * 1024..=256 * 1024;

/// A connection between two exchanges.
#[derive(Debug)]
pub(super) struct Connection(Stream);

impl Connection {
    /// Takes a stream that nothing was sent on.
    pub(super) fn new(stream: Stream) -> Self {
        Self(stream)
    }

    /// Returns `true` if the connection is still open, and the server has sent no unrequested
    /// bytes.
    pub(super) fn is_usable(&mut self) -> bool {
        self.0.is_open_and_silent()
    }

    /// Sends a request, and returns the response when its head has arrived.
    ///
    /// # Errors
    /// The failure contains the body again if nothing was sent.
    ///
    /// # Cancel safety
    /// Dropping the future or the response's body closes the connection.
    pub(super) async fn exchange(
        self,
        head: &RequestHead<'_>,
        body: RequestBody,
    ) -> Result<Response<IncomingBody>, Failure> {
        let mut exchange = Exchange {
            stream: self.0,
            input: BytesMut::new(),
            searched: 0,
            read: *READ.start(),
            upload: Some(Upload::new(head, body)),
            broken: None,
        };
        let arrived = poll_fn(|cx| exchange.poll_head(head.method, cx)).await;
        match arrived {
            Ok(ResponseHead { response, body: decoder, is_persistent }) => {
                Ok(response.map(|()| IncomingBody { exchange: Some(exchange), decoder, is_persistent }))
            }
            Err(error) => Err(Failure { error, unsent: exchange.upload.and_then(Upload::into_unsent) }),
        }
    }
}

/// Why there is no response.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    /// The body of the request, if nothing of the request was sent.
    pub(super) unsent: Option<RequestBody>,
}

/// A request and its response on a connection.
struct Exchange {
    stream: Stream,
    /// Bytes that were received and not yet decoded.
    input: BytesMut,
    /// The length of the part of `input` in which the end of the head was searched.
    searched: usize,
    /// The space that the next read offers, in bytes.
    read: usize,
    /// The request, until it is written completely.
    upload: Option<Upload>,
    /// Why the rest of the request cannot be sent. The server may still answer.
    broken: Option<io::Error>,
}

impl Exchange {
    /// Takes the head of the final response from the input. Returns `None` if more bytes are
    /// needed.
    ///
    /// A head is parsed only at the first bytes and at the end of a line. A server that sends one
    /// byte at a time could cause much work otherwise.
    fn take_head(&mut self, method: &Method) -> Result<Option<ResponseHead>, Error> {
        let unsearched = self.input.get(self.searched..).unwrap_or_default();
        let is_due = self.searched == 0 || unsearched.contains(&b'\n') || self.input.len() >= MAX_HEAD;
        let head = if is_due { response_head::take(&mut self.input, method)? } else { None };
        self.searched = self.input.len();
        Ok(head)
    }

    /// Writes the request, and resolves when the head of the final response has arrived.
    fn poll_head(&mut self, method: &Method, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, Error>> {
        self.poll_upload(cx)?;
        loop {
            if let Some(head) = self.take_head(method)? {
                return Poll::Ready(Ok(head));
            }
            let received = ready!(self.poll_receive(cx));
            match (received, self.broken.take()) {
                (Ok(1..), broken) => self.broken = broken,
                (_, Some(broken)) => return Poll::Ready(Err(errors::exchange(&broken))),
                (Ok(0), None) => return Poll::Ready(Err(errors::closed())),
                // TLS was not closed before the connection. Nothing of the response had arrived.
                (Err(error), None) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Err(errors::closed()));
                }
                (Err(error), None) => return Poll::Ready(Err(errors::exchange(&error))),
            }
        }
    }

    /// Writes what is available of the request.
    ///
    /// # Errors
    /// Fails only if the body of the request does. A broken connection is noted in `broken`.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let Some(upload) = self.upload.as_mut().filter(|_| self.broken.is_none()) else { return Ok(()) };
        match upload.poll(&mut self.stream, cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.upload = None,
            Poll::Ready(Err(UploadFailure::Connection(error))) => self.broken = Some(error),
            Poll::Ready(Err(failure)) => return Err(failure.into()),
        }
        Ok(())
    }

    /// Receives bytes into `input`, and returns their number. 0 is the end of the connection.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.capacity() - self.input.len() < self.read / 4 {
            self.input.reserve(self.read);
        }
        let space = self.input.capacity() - self.input.len();
        let received = ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.input))?;
        if received >= space {
            self.read = (2 * self.read).min(*READ.end());
        }
        Poll::Ready(Ok(received))
    }
}

/// The body of a response while it is received.
pub(super) struct IncomingBody {
    /// `None` once the body has ended or failed.
    exchange: Option<Exchange>,
    decoder: BodyDecoder,
    is_persistent: bool,
}

impl IncomingBody {
    /// Takes the whole body, if it was received with the head, and the request was written.
    /// Otherwise returns `None`, and takes nothing.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        let exchange = self.exchange.as_mut().filter(|exchange| exchange.upload.is_none())?;
        self.decoder.take_whole(&mut exchange.input)
    }

    /// Takes the connection after the end of the body, if it can be used again. Otherwise returns
    /// `None`, and the connection is closed.
    pub(super) fn take_reusable(&mut self) -> Option<Connection> {
        if !self.decoder.has_ended() {
            return None;
        }
        let exchange = self.exchange.take()?;
        // Bytes beyond the response, or a request that is not written, would belong to no exchange.
        let is_clean = exchange.input.is_empty() && exchange.upload.is_none();
        (self.is_persistent && is_clean).then(|| Connection(exchange.stream))
    }

    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decoded, Error>> {
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(Ok(Decoded::End)) };
        exchange.poll_upload(cx)?;
        loop {
            match self.decoder.decode(&mut exchange.input)? {
                Decoded::Incomplete => {}
                decoded => return Poll::Ready(Ok(decoded)),
            }
            match ready!(exchange.poll_receive(cx)) {
                Ok(0) if self.decoder.ends_with_connection() => return Poll::Ready(Ok(Decoded::End)),
                Ok(0) => return Poll::Ready(Err(errors::truncated())),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(errors::exchange(&error))),
            }
        }
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let frame = match ready!(this.poll_decoded(cx)) {
            Ok(Decoded::Data(data)) => Ok(Frame::data(data)),
            Ok(Decoded::Trailers(trailers)) => Ok(Frame::trailers(trailers)),
            Ok(Decoded::End | Decoded::Incomplete) => return Poll::Ready(None),
            Err(error) => {
                this.exchange = None;
                Err(error)
            }
        };
        Poll::Ready(Some(frame))
    }

    fn is_end_stream(&self) -> bool {
        self.decoder.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        self.decoder.remaining().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
