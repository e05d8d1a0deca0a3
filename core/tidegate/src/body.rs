//! The bodies of requests and responses.
//!
//! A request body in memory can be sent again for a retry. A streamed request body cannot. Response
//! bodies are not buffered, but one that has arrived whole is passed on as bytes in memory.

mod declared_length;
mod split;

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use tokio::sync::watch;
use tokio::time::timeout;

use self::declared_length::{DeclaredLengthBody, mismatch};
use self::split::SplitBody;
use crate::clock;
use crate::error::Error;

/// The body of a request: empty, bytes in memory, or a stream that is read once.
///
/// ```
/// use tidegate::RequestBody;
///
/// let body = RequestBody::from(r#"{"model": "gpt-4o"}"#);
/// assert!(body.try_clone().is_some(), "a body in memory can be sent again");
/// ```
#[derive(Debug, Default)]
pub struct RequestBody(Kind);

#[derive(Debug, Default)]
enum Kind {
    #[default]
    Empty,
    Full(Bytes),
    Stream(BoxBody<Bytes, Error>, UploadProgress),
}

/// Tracks a streamed request body: how far it was sent, and whether it failed. Timeouts for the
/// response do not run while the caller produces the body. Clones refer to the same body.
#[derive(Clone, Debug, Default)]
pub(crate) struct UploadProgress(Arc<Upload>);

#[derive(Debug, Default)]
struct Upload {
    state: watch::Sender<UploadState>,
    /// The first error that the body returned. Empty if the body has not failed.
    failure: OnceLock<Error>,
}

/// How far a streamed request body was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum UploadState {
    /// The transport waits for the caller's next frame, or has not begun to read the body.
    #[default]
    AwaitsBody,
    /// The transport took a frame at this time, and has not asked for the next one.
    Taken(Instant),
    /// The body was sent completely or abandoned at this time.
    Over(Instant),
}

impl UploadProgress {
    /// Resolves when nothing has happened for `limit` except that the upstream is waited for: the
    /// transport has not asked for more of the body, or the body was sent. Returns `true` if the
    /// body was sent or abandoned.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub(crate) async fn stalled_for(&self, limit: Duration) -> bool {
        let mut state = self.0.state.subscribe();
        loop {
            let now = *state.borrow_and_update();
            let changed = state.changed();
            // `changed` fails only if the sender is dropped, and `self` owns it.
            match now {
                UploadState::AwaitsBody => drop(changed.await),
                UploadState::Taken(at) | UploadState::Over(at) => {
                    let left = limit.saturating_sub(clock::now().saturating_duration_since(at));
                    if timeout(left, changed).await.is_err() {
                        return matches!(now, UploadState::Over(_));
                    }
                }
            }
        }
    }

    /// Returns when the body was sent completely or abandoned, or `None` if it is still sent.
    pub(crate) fn finished_at(&self) -> Option<Instant> {
        match *self.0.state.borrow() {
            UploadState::Over(at) => Some(at),
            UploadState::AwaitsBody | UploadState::Taken(_) => None,
        }
    }

    /// Returns the first error that the body itself returned, or `None` if the body has not failed.
    /// The error of an HTTP/2 connection is only a reset, which does not contain this cause.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.0.failure.get().cloned()
    }

    /// Records the progress of the upload. Nothing changes after the end of the upload.
    fn set(&self, state: UploadState) {
        self.0.state.send_if_modified(|current| {
            let is_new = *current != state && !matches!(current, UploadState::Over(_));
            if is_new {
                *current = state;
            }
            is_new
        });
    }
}

impl RequestBody {
    /// Creates a body that is read once, as the caller produces it. A call with such a body is
    /// attempted only once, without retries.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::{BodyExt, Full};
    /// use tidegate::RequestBody;
    ///
    /// let upload = Full::new(Bytes::from("from a file")).map_err(|never| match never {});
    /// assert!(RequestBody::stream(upload).try_clone().is_none(), "a stream cannot be sent again");
    /// ```
    pub fn stream<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error = Error> + Send + Sync + 'static,
    {
        let body = SplitBody::new(Box::pin(body));
        Self(Kind::Stream(body.boxed(), UploadProgress::default()))
    }

    /// Declares the length of the body in bytes. A streamed body whose length differs fails when it
    /// is read.
    ///
    /// # Errors
    /// `Request` if the body is empty or in memory and its length differs.
    pub(crate) fn declare_length(&mut self, declared: u64) -> Result<(), Error> {
        let length = match &mut self.0 {
            Kind::Empty => 0,
            Kind::Full(bytes) => bytes.len() as u64,
            Kind::Stream(body, _) => {
                *body = DeclaredLengthBody::new(std::mem::take(body), declared).boxed();
                return Ok(());
            }
        };
        if length == declared { Ok(()) } else { Err(mismatch(declared, &format!("has {length}"))) }
    }

    /// Returns the tracker of a streamed body's upload. `None` if the body is empty or in memory.
    pub(crate) fn upload_progress(&self) -> Option<UploadProgress> {
        match &self.0 {
            Kind::Stream(_, taken) => Some(taken.clone()),
            Kind::Empty | Kind::Full(_) => None,
        }
    }

    /// Returns the bytes of a body in memory. `None` if the body is empty or a stream.
    pub fn bytes(&self) -> Option<&Bytes> {
        match &self.0 {
            Kind::Full(bytes) => Some(bytes),
            Kind::Empty | Kind::Stream(..) => None,
        }
    }

    /// Returns a copy of the body, which shares the bytes in memory. `None` if the body is a
    /// stream.
    pub fn try_clone(&self) -> Option<Self> {
        match &self.0 {
            Kind::Empty => Some(Self(Kind::Empty)),
            Kind::Full(bytes) => Some(Self(Kind::Full(bytes.clone()))),
            Kind::Stream(..) => None,
        }
    }
}

impl Drop for RequestBody {
    /// Marks a streamed body as sent or abandoned. Needed because a transport that has read the
    /// declared length may drop the body without polling for its end.
    fn drop(&mut self) {
        if let Kind::Stream(_, taken) = &self.0 {
            taken.set(UploadState::Over(clock::now()));
        }
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self(Kind::Empty) } else { Self(Kind::Full(bytes)) }
    }
}

impl From<Vec<u8>> for RequestBody {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for RequestBody {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for RequestBody {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let kind = &mut self.get_mut().0;
        match kind {
            Kind::Empty => Poll::Ready(None),
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *kind = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Stream(body, taken) => {
                let frame = Pin::new(body).poll_frame(cx);
                if let Poll::Ready(Some(Err(error))) = &frame {
                    taken.0.failure.get_or_init(|| error.clone());
                }
                taken.set(match &frame {
                    Poll::Pending => UploadState::AwaitsBody,
                    Poll::Ready(Some(Ok(_))) => UploadState::Taken(clock::now()),
                    Poll::Ready(Some(Err(_)) | None) => UploadState::Over(clock::now()),
                });
                frame
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Full(_) => false,
            Kind::Stream(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(body, _) => body.size_hint(),
        }
    }
}

/// The body of a response.
///
/// The body of a response that [`Client`](crate::Client) returns holds the slot of its call. The
/// slot is released when the body has been read to its end, fails, or is dropped. A body that had
/// arrived whole with the head of its response holds no slot.
///
/// # Cancel safety
/// Dropping the body ends the exchange with the upstream immediately.
pub struct ResponseBody(Received);

enum Received {
    /// The whole body in memory, or what is left of it to read.
    Full(Bytes),
    Stream(UnsyncBoxBody<Bytes, Error>),
}

impl ResponseBody {
    /// Creates a response body from any [`Body`] of bytes. It holds no slot.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error = Error> + Send + 'static,
    {
        Self(Received::Stream(body.boxed_unsync()))
    }

    /// Creates a response body from bytes in memory. It holds no slot.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Received::Full(bytes.into()))
    }

    /// Returns `true` if the whole body is in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.0, Received::Full(_))
    }

    /// Returns `true` if nothing is left to receive: the body is in memory or has ended. No slot is
    /// then needed to read it, and its reader never waits.
    pub(crate) fn has_arrived(&self) -> bool {
        self.is_in_memory() || self.is_end_stream()
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.get_mut().0 {
            Received::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Received::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Received::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Received::Full(bytes) => bytes.is_empty(),
            Received::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Received::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Received::Stream(body) => body.size_hint(),
        }
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResponseBody")
    }
}
