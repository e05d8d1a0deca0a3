//! Writes requests to HTTP/1.1 connections: the head, then the body as it becomes available.

use std::io;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method};
use http_body::Body as _;
use tokio::io::AsyncWrite as _;

use super::super::errors;
use super::super::stream::Stream;
use crate::body::RequestBody;
use crate::error::{Error, ErrorKind};

/// The parts of a request that stand in the head of its HTTP/1.1 message.
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a Method,
    /// What the request line names: the path, or the URL for a forwarding proxy.
    pub(crate) target: &'a str,
    /// All headers, with `host`. Those of the framing are replaced.
    pub(crate) headers: &'a HeaderMap,
}

/// A request while it is written.
pub(super) struct Upload {
    /// What is written next, in this order: the head, or the size of a chunk; data; the end of the
    /// chunk.
    parts: [Bytes; 3],
    /// How the rest of `body` is written. `None` if nothing of it is left.
    framing: Option<Framing>,
    body: RequestBody,
    has_begun: bool,
}

/// How a streamed body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// This many bytes are left.
    Length(u64),
    Chunked,
}

/// Why a request could not be written.
#[derive(Debug)]
pub(super) enum UploadFailure {
    /// The body of the request failed.
    Body(Error),
    /// The connection failed.
    Connection(io::Error),
}

impl From<UploadFailure> for Error {
    fn from(failure: UploadFailure) -> Self {
        match failure {
            UploadFailure::Body(error) => error,
            UploadFailure::Connection(error) => errors::exchange(&error),
        }
    }
}

impl Upload {
    /// Prepares a request to be written.
    pub(super) fn new(head: &RequestHead<'_>, body: RequestBody) -> Self {
        let data = body.bytes().cloned().unwrap_or_default();
        let framing = match body.bytes() {
            Some(_) => None,
            None if body.is_end_stream() => None,
            None => Some(framing_of_stream(head.headers, body.size_hint().exact())),
        };
        let mut text = Vec::with_capacity(512);
        // Writing to a vector does not fail.
        let _ = write!(text, "{} {} HTTP/1.1\r\n", head.method, head.target);
        for (name, value) in head.headers {
            if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING {
                text.extend_from_slice(name.as_str().as_bytes());
                text.extend_from_slice(b": ");
                text.extend_from_slice(value.as_bytes());
                text.extend_from_slice(b"\r\n");
            }
        }
        let _ = match framing {
            Some(Framing::Chunked) => write!(text, "transfer-encoding: chunked\r\n"),
            Some(Framing::Length(length)) => write!(text, "content-length: {length}\r\n"),
            None if !data.is_empty() || is_with_body(head) => {
                write!(text, "content-length: {}\r\n", data.len())
            }
            None => Ok(()),
        };
        text.extend_from_slice(b"\r\n");
        Self { parts: [text.into(), data, Bytes::new()], framing, body, has_begun: false }
    }

    /// Returns the body if nothing was written, so that the request can be sent again.
    pub(super) fn into_unsent(self) -> Option<RequestBody> {
        (!self.has_begun).then_some(self.body)
    }

    /// Writes what is available. Ready when the whole request is written.
    pub(super) fn poll(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadFailure>> {
        loop {
            ready!(self.poll_parts(stream, cx)).map_err(UploadFailure::Connection)?;
            let Some(framing) = self.framing else {
                ready!(Pin::new(stream).poll_flush(cx)).map_err(UploadFailure::Connection)?;
                // Shows that the upload is over.
                self.body = RequestBody::default();
                return Poll::Ready(Ok(()));
            };
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                ready!(Pin::new(stream).poll_flush(cx)).map_err(UploadFailure::Connection)?;
                return Poll::Pending;
            };
            match frame.transpose().map_err(UploadFailure::Body)? {
                None => self.end(framing)?,
                // Trailers of requests are not sent.
                Some(frame) => self.push(framing, frame.into_data().unwrap_or_default())?,
            }
        }
    }

    /// Writes `parts`.
    fn poll_parts(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.parts.iter().any(|part| !part.is_empty()) {
            let slices = self.parts.each_ref().map(|part| io::IoSlice::new(part));
            let mut written = ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.has_begun = true;
            for part in &mut self.parts {
                let of_part = written.min(part.len());
                part.advance(of_part);
                written -= of_part;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Prepares data of the body to be written.
    fn push(&mut self, framing: Framing, data: Bytes) -> Result<(), UploadFailure> {
        if data.is_empty() {
            return Ok(());
        }
        match framing {
            Framing::Chunked => {
                let size = format!("{:x}\r\n", data.len());
                self.parts = [size.into(), data, Bytes::from_static(b"\r\n")];
            }
            Framing::Length(left) => {
                let left = left.checked_sub(data.len() as u64);
                let left = left.ok_or_else(|| wrong_length("longer"))?;
                self.framing = Some(Framing::Length(left));
                self.parts = [Bytes::new(), data, Bytes::new()];
            }
        }
        Ok(())
    }

    /// Ends the body.
    fn end(&mut self, framing: Framing) -> Result<(), UploadFailure> {
        match framing {
            Framing::Length(1..) => return Err(wrong_length("shorter")),
            Framing::Length(0) => {}
            Framing::Chunked => self.parts = [Bytes::from_static(b"0\r\n\r\n"), Bytes::new(), Bytes::new()],
        }
        self.framing = None;
        Ok(())
    }
}

/// Returns the error for a body whose length is not that which it announced.
fn wrong_length(than: &str) -> UploadFailure {
    UploadFailure::Body(Error::new(
        ErrorKind::Request,
        format!("the body of the request is {than} than its content-length"),
    ))
}

/// Returns how a streamed body is written: with a length if the body knows it or a header states
/// it.
fn framing_of_stream(headers: &HeaderMap, exact: Option<u64>) -> Framing {
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    exact.or(declared).map_or(Framing::Chunked, Framing::Length)
}

/// Returns `true` if a request without a body must have the header `content-length: 0`.
fn is_with_body(head: &RequestHead<'_>) -> bool {
    matches!(*head.method, Method::POST | Method::PUT | Method::PATCH)
        || head.headers.contains_key(CONTENT_LENGTH)
}
